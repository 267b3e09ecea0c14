"""Matrices of Winograd transforms, as TVM's programs ask for them."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.topi.nn.winograd_util import toom_cook_matrices, winograd_transform_matrices


@pytest.mark.parametrize(("results", "taps"), [(2, 3), (3, 3), (4, 3), (6, 3), (2, 5), (4, 5)])
def test_tiles_are_correlations(results: int, taps: int) -> None:
    a, b, g = toom_cook_matrices(results, taps)
    rng = np.random.default_rng(0)
    data, window = rng.standard_normal(results + taps - 1), rng.standard_normal(taps)
    np.testing.assert_allclose(a.T @ ((g @ window) * (b.T @ data)), np.correlate(data, window), rtol=1e-9, atol=1e-12)


def test_constant_tensors_hold_the_matrices() -> None:
    for tensor, expected in zip(winograd_transform_matrices(4, 3, "float32"), toom_cook_matrices(4, 3), strict=True):
        out = tvm.nd.array(np.zeros(expected.shape, "float32"))
        tvm.build(te.create_schedule(tensor.op), [tensor], "llvm")(out)
        np.testing.assert_array_equal(out.numpy(), expected.astype("float32"))


def test_sizes_that_are_not_accurate_are_refused() -> None:
    with pytest.raises(ValueError, match="tiles of 2 to 8 results, not 9"):
        winograd_transform_matrices(9, 3, "float32")
