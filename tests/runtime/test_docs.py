"""The examples in docs/gpu.md run as they stand, where there is a GPU."""

from __future__ import annotations

from tests.documents.blocks import ROOT, blocks
from tests.runtime.gpu_sources import need_opencl


def test_examples_run_in_order() -> None:
    need_opencl()
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in blocks(ROOT / "docs" / "gpu.md"):
        exec(compile(block.text, block.place, "exec"), namespace)
