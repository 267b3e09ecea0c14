"""benchmarks.large, at a fiftieth of the size: compiling a large model keeps no copy of its weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiers import full

from benchmarks import large

SIZES = large.Sizes(layers=8, width=512, heads=8, groups=4, inner=1408, vocabulary=4096)  # 90 MB of float32
CODE_GENERATOR = 40 << 20  # bytes of its own, when no kernel is in the cache
WIDER = large.Sizes(layers=4, width=1024, heads=16, groups=4, inner=2816, vocabulary=4096)  # 100 MB of bfloat16


@pytest.mark.parametrize(
    ("weights", "sizes", "executor"),
    [("float32", SIZES, "auto"), *full(("bfloat16", WIDER, "auto"), ("float32", SIZES, "vm"), several=True)],
)
def test_compiling_keeps_no_copy_of_the_weights(
    tmp_path: Path, weights: str, sizes: large.Sizes, executor: str
) -> None:
    model = large.make_model(tmp_path, sizes, weights)
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    found = large._in_process("--compile", str(model), "--executor", executor)
    grown = max(stage["anonymous"] for stage in found["stages"].values()) - found["before"]["anonymous"]
    assert {"import", "optimize", "lower", "codegen", "export"} <= found["stages"].keys()
    assert found["library"] > 80 << 20 and grown < size / 2 + CODE_GENERATOR


def test_scaled_sizes_keep_the_groups() -> None:
    small = large.Sizes().scaled(0.01)
    assert small.heads % small.groups == 0 and small.width % small.heads == 0 and small.layers < 22
