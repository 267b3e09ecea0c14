"""Sums of products on a GPU: dense layers, convolutions and attention against numpy in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.gpu import GPU, GPU_TARGET
from tests.topi.gpu.reference import convolve, convolve_transposed

import tilewright as tvm
from tilewright import te, topi
from tilewright.topi import cuda

Array = np.ndarray


def run(
    compute: Callable[..., te.Tensor], schedule: Callable[..., te.Schedule], arrays: Sequence[Array], relu: bool = True
) -> Array:
    """The result on the device, after a relu in the same kernel."""
    with tvm.target.Target(GPU_TARGET):
        inputs = [te.placeholder(a.shape, str(a.dtype), f"in{k}") for k, a in enumerate(arrays)]
        out = compute(*inputs)
        out = topi.nn.relu(out) if relu else out
        built = tvm.build(schedule([out]), [*inputs, out], GPU_TARGET)
    device = GPU
    result = tvm.nd.array(np.full([int(d) for d in out.shape], 3, out.dtype), device)
    built(*[tvm.nd.array(a, device) for a in arrays], result)
    return result.numpy()


def arrays(*shapes: tuple[int, ...], dtype: str = "float32") -> list[Array]:
    rng = np.random.default_rng(0)
    if dtype.startswith("int"):
        return [rng.integers(-128, 128, s).astype(dtype) for s in shapes]
    return [rng.uniform(-1, 1, s).astype(dtype) for s in shapes]


def close(result: Array, expected: Array, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(result, np.maximum(expected, 0), rtol=tolerance, atol=tolerance * 10)


@pytest.mark.covering(1)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 300, 257), (37, 53, 71), (64, 128, 64), (3, 0, 5), (3, 5, 0)])
def test_dense(m: int, n: int, k: int) -> None:
    a, b = arrays((m, k), (n, k))
    close(run(cuda.dense_large_batch, cuda.schedule_dense_large_batch, [a, b]), a.astype(np.float64) @ b.T)


@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(False, False), (True, True)])
def test_products_of_a_batch(transpose_a: bool, transpose_b: bool) -> None:
    a, b = arrays((3, 17, 29) if transpose_a else (3, 29, 17), (1, 40, 17) if transpose_b else (1, 17, 40))

    def compute(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        return cuda.batch_matmul(x, y, None, None, transpose_a, transpose_b)

    x, y = (v.swapaxes(1, 2) if t else v for v, t in ((a, transpose_a), (b, transpose_b)))
    close(run(compute, cuda.schedule_batch_matmul, [a, b]), x.astype(np.float64) @ y)


CONVOLUTIONS = [  # n, channels, extents, outputs, window, stride, padding, dilation, groups
    (1, 3, (9, 8), 5, (3, 3), 1, 1, 1, 1),
    (2, 4, (7, 7), 6, (3, 3), 2, 1, 1, 2),
    (1, 5, (6, 6), 7, (1, 1), 1, 0, 1, 1),
    (1, 3, (11, 10), 4, (3, 2), 1, 2, 2, 1),
    (2, 6, (5, 5), 12, (3, 3), 1, 1, 1, 6),
    (1, 32, (14, 14), 33, (3, 3), 1, 1, 1, 1),
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolution(case: Any, last: bool) -> None:
    n, c, extents, o, window, stride, pad, dilation, groups = case
    data, kernel = arrays((n, c, *extents), (o, c // groups, *window))
    expected = convolve(data, kernel, [stride] * 2, [pad] * 2, [dilation] * 2, groups)
    name = "group_conv2d_nhwc" if last else "group_conv2d_nchw"

    def compute(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        return getattr(cuda, name)(x, w, stride, pad, dilation, groups, "float32")

    if last:
        data, kernel = data.transpose(0, 2, 3, 1).copy(), kernel.transpose(2, 3, 1, 0).copy()
        expected = expected.transpose(0, 2, 3, 1)
    close(run(compute, getattr(cuda, f"schedule_{name}"), [data, kernel]), expected)


def test_convolutions_of_one_and_three_dimensions() -> None:
    data, kernel = arrays((2, 3, 17), (5, 3, 3))
    expected = convolve(data, kernel, [2], [1], [1])
    close(run(lambda x, w: cuda.conv1d_ncw(x, w, 2, 1, 1), cuda.schedule_conv1d_ncw, [data, kernel]), expected)
    data, kernel = arrays((1, 4, 4, 5, 6), (6, 2, 3, 3, 3))
    expected = convolve(data, kernel, [1, 2, 1], [1, 1, 1], [1, 1, 1], 2)

    def compute(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        return cuda.conv3d_ncdhw(x, w, (1, 2, 1), 1, 1, "float32", 2)

    close(run(compute, cuda.schedule_conv3d_ncdhw, [data, kernel]), expected)


@pytest.mark.parametrize(
    "case",
    [  # extents, channels, outputs of a group, window, stride, padding, output padding, groups
        ((5, 6), 3, 4, (3, 3), 1, 1, 0, 1),
        ((5, 6), 3, 4, (3, 3), 2, 1, 1, 1),
        ((4, 4), 4, 3, (2, 2), 2, 0, 0, 2),
        ((4, 3), 2, 3, (5, 4), 3, 2, 1, 1),
    ],
    ids=str,
)
def test_transposed_convolution(case: Any) -> None:
    extents, c, o, window, stride, pad, more, groups = case
    data, kernel = arrays((2, c, *extents), (c, o, *window))

    def compute(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        return cuda.conv2d_transpose_nchw(x, w, (stride, stride), (pad, pad), "float32", (more, more), groups)

    expected = convolve_transposed(data, kernel, [stride] * 2, [pad] * 2, [more] * 2, groups)
    close(run(compute, cuda.schedule_conv2d_transpose_nchw, [data, kernel]), expected)


@pytest.mark.parametrize(("n", "c", "h", "w", "o", "k"), [(1, 3, 8, 8, 4, 3), (2, 2, 7, 5, 3, 3), (1, 1, 4, 4, 1, 2)])
def test_winograd(n: int, c: int, h: int, w: int, o: int, k: int) -> None:
    data, kernel = arrays((n, c, h, w), (o, c, k, k))

    def compute(x: te.Tensor, weight: te.Tensor) -> te.Tensor:
        return cuda.conv2d_nchw_winograd(x, weight, 1, 1, 1)

    expected = convolve(data, kernel, [1, 1], [1, 1], [1, 1])
    close(run(compute, cuda.schedule_conv2d_nchw_winograd, [data, kernel]), expected, 1e-4)


@pytest.mark.parametrize(
    ("b", "h", "rows", "keys", "depth", "width"), [(1, 2, 7, 9, 8, 8), (2, 1, 20, 33, 5, 6), (1, 1, 1, 130, 16, 64)]
)
def test_attention(b: int, h: int, rows: int, keys: int, depth: int, width: int) -> None:
    query, key, value, mask = arrays((b, h, rows, depth), (b, h, keys, depth), (b, h, keys, width), (b, 1, 1, keys))

    def compute(q: te.Tensor, k: te.Tensor, v: te.Tensor, m: te.Tensor) -> te.Tensor:
        return topi.gpu.attention(q, k, v, m, 0.3)

    scores = np.einsum("bhid,bhjd->bhij", query, key, dtype=np.float64) * 0.3 + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("bhij,bhjw->bihw", weights / weights.sum(-1, keepdims=True), value)
    result = run(compute, topi.gpu.schedule_attention, [query, key, value, mask], relu=False)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_sums_of_bytes_are_exact() -> None:
    a, b = arrays((9, 70), (5, 70), dtype="int8")
    expected = a.astype(np.int64) @ b.T.astype(np.int64)
    assert np.array_equal(run(cuda.dense_int8, cuda.schedule_dense_int8, [a, b], relu=False), expected)
    data, kernel = arrays((1, 8, 6, 6), (8, 4, 3, 3), dtype="int8")

    def compute(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        return cuda.group_conv2d_NCHWc_int8(x, w, 1, 1, 1, 2)

    whole = convolve(data, kernel, [1, 1], [1, 1], [1, 1], 2)
    packed = whole.reshape(1, 2, 4, 6, 6).transpose(0, 1, 3, 4, 2)
    result = run(compute, cuda.schedule_group_conv2d_NCHWc_int8, [data, kernel], relu=False)
    assert np.array_equal(result, packed)
