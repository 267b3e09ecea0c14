"""Libraries that released versions made load and run: one of each is kept in ``released/``, with the begin of its name.

They compute relu(x W^T), with W of multiples of a quarter drawn by seed 0, for any x86-64 processor.
"""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import runtime

LIBRARIES = sorted((Path(__file__).parent / "released").glob("*.so"))


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.stem)
def test_a_released_library_runs(library: Path) -> None:
    version, machine = library.stem.split("-", 1)
    assert runtime.library_info(library).made_by == f"Tilewright {version}"
    if platform.machine() != machine:
        pytest.skip(f"needs {machine}")
    weight = (np.random.default_rng(0).integers(-4, 4, (4, 8)) / 4).astype("float32")
    x = np.arange(16, dtype="float32").reshape(2, 8)
    executor = runtime.GraphModule(runtime.load_module(library)["default"](tvm.cpu()))
    np.testing.assert_array_equal(executor.infer(x=x)["output_0"], np.maximum(x @ weight.T, 0))


def test_there_is_one() -> None:
    assert LIBRARIES
