"""Products on tensor cores of an NVIDIA GPU against numpy in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.gpu import GPU, GPU_TARGET, only_on_nvidia
from tests.topi.gpu.reference import convolve

import tilewright as tvm
from tilewright import te, topi
from tilewright.target import Target
from tilewright.topi import cuda

pytestmark = only_on_nvidia
Array = np.ndarray
SHAPES = [(1, 1, 1), (7, 13, 29), (16, 16, 16), (64, 64, 64), (100, 300, 257), (128, 768, 3072), (513, 1024, 128)]
CONVOLUTIONS = [  # images, channels, extent, outputs, window, stride
    (1, 3, 9, 5, 3, 1),
    (2, 64, 14, 64, 3, 1),
    (1, 32, 17, 48, 1, 2),
    (3, 16, 8, 16, 5, 2),
]
NUMBERS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "int8": np.int8}


def random(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if dtype == "int8":
        return rng.integers(-128, 128, shape).astype("int8")
    return rng.uniform(-1, 1, shape).astype(NUMBERS[dtype])


def on_gpu(
    compute: Callable[..., te.Tensor],
    schedule: Callable[..., te.Schedule],
    dtype: str,
    *arrays: Array,
    options: str = "",
) -> Array:
    """The result, of memory that held other numbers before."""
    target = Target(GPU_TARGET + options)
    with target:
        inputs = [te.placeholder(a.shape, dtype, f"in{k}") for k, a in enumerate(arrays)]
        out = compute(*inputs)
        built = tvm.build(schedule([out]), [*inputs, out], target)
    shape = [int(d) for d in out.shape]
    result = tvm.nd.array(np.full(shape, 3, NUMBERS.get(out.dtype, out.dtype)), GPU)
    built(*[tvm.nd.array(a, GPU) for a in arrays], result)
    return np.asarray(result.numpy())


def close(result: Array, expected: Array, dtype: str, depth: int) -> None:
    """``result`` errs by a rounding of its dtype, and of sums in float32."""
    if dtype == "int8":
        np.testing.assert_array_equal(result, expected)
        return
    unit = {"float16": 2**-11, "bfloat16": 2**-8, "tf32": 2**-10, "float32": 2**-23}[dtype]
    bound = 4 * unit * (np.abs(expected) + depth**0.5) if dtype in ("tf32", "float32") else 2 * unit * np.abs(expected)
    assert np.all(np.abs(result.astype("float64") - expected) <= bound + depth * 2**-22)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float32", "tf32"])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_dense(m: int, n: int, k: int, dtype: str) -> None:
    kind, options = ("float32", " -tf32=1") if dtype == "tf32" else (dtype, "")
    a, b = random((m, k), kind, 0), random((n, k), kind, 1)

    def compute(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        return cuda.dense_large_batch(x, y, None, "int32" if dtype == "int8" else kind)

    found = on_gpu(compute, cuda.schedule_dense_large_batch, kind, a, b, options=options)
    close(found, a.astype("float64") @ b.astype("float64").T, dtype, k)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize(
    "case", [(1, 3, 9, 5, 3, 1), (2, 64, 14, 64, 3, 1), (1, 32, 17, 48, 1, 2), (3, 16, 8, 16, 5, 2)]
)
def test_convolution(case: Any, dtype: str) -> None:
    n, c, size, o, window, stride = case
    data, kernel = random((n, c, size, size), dtype, 0), random((o, c, window, window), dtype, 1)

    def compute(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        return cuda.conv2d_nchw(x, w, stride, window // 2, 1, "int32" if dtype == "int8" else dtype)

    expected = convolve(data.astype("float64"), kernel.astype("float64"), [stride] * 2, [window // 2] * 2, [1, 1])
    close(on_gpu(compute, cuda.schedule_conv2d_nchw, dtype, data, kernel), expected, dtype, c * window**2)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shape", [(1, 2, 7, 8), (2, 3, 128, 64), (1, 2, 1000, 64), (1, 1, 333, 128)])
def test_attention(shape: tuple[int, int, int, int], dtype: str) -> None:
    depth = shape[-1]
    q, k, v = (random(shape, dtype, s) for s in range(3))

    def compute(*x: te.Tensor) -> te.Tensor:
        return topi.gpu.attention(*x, None, depth**-0.5)

    found = on_gpu(compute, topi.gpu.schedule_attention, dtype, q, k, v)
    scores = np.einsum("bhid,bhjd->bhij", q, k, dtype="float64") * depth**-0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("bhij,bhjw->bihw", weights / weights.sum(-1, keepdims=True), v)
    tolerance = 2e-3 if dtype == "float16" else 2e-6
    np.testing.assert_allclose(found.astype("float64"), expected, rtol=tolerance, atol=tolerance)
