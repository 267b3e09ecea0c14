"""Functions of the runtime on PyTorch's tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright import runtime
from tilewright.contrib.dlpack import convert_func, to_pytorch_func


def add(x: runtime.NDArray, y: runtime.NDArray, shift: int, out: runtime.NDArray) -> int:
    out.copyfrom(x.numpy() + y.numpy() + shift)
    return shift


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (7, 5)])
def test_tensors_are_read_and_written_in_place(shape: tuple[int, ...]) -> None:
    x, out = torch.rand(shape), torch.zeros(shape)
    y = runtime.array(np.ones(shape, "float32"))
    assert to_pytorch_func(add)(x, y, 2, out) == 2
    np.testing.assert_allclose(out.numpy(), x.numpy() + 3, rtol=1e-6)


def test_any_library_that_gives_capsules_will_do() -> None:
    out = np.zeros(3, "float32")
    share = convert_func(add, np.ndarray, lambda array: runtime.numpyasarray(array).to_dlpack())
    share(np.ones(3, "float32"), np.ones(3, "float32"), 1, out)
    np.testing.assert_array_equal(out, [3, 3, 3])
