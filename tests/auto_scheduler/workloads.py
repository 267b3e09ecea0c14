"""Computations that the tests schedule, each with what numpy makes of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tilewright import te, topi
from tilewright.auto_scheduler import register_workload

Array = Any


class Workload(NamedTuple):
    """A registered function, arguments, and its result in numpy, of the inputs in order."""

    function: Callable[..., list[te.Tensor]]
    args: tuple[Any, ...]
    expected: Callable[..., Array]


@register_workload
def matmul_as(n: int, m: int, k: int) -> list[te.Tensor]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    attrs = {"layout_free_placeholders": [b]}
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C", attrs=attrs)
    return [a, b, c]


@register_workload
def matmul_relu_as(n: int, m: int, k: int) -> list[te.Tensor]:
    a, b, c = matmul_as(n, m, k)
    return [a, b, topi.nn.relu(c)]


@register_workload
def padded_conv_as(channels: int, size: int, filters: int) -> list[te.Tensor]:
    data = te.placeholder((1, channels, size, size), name="data")
    weight = te.placeholder((filters, channels, 3, 3), name="weight")
    bias = te.placeholder((filters, 1, 1), name="bias")
    conv = topi.nn.conv2d_nchw(data, weight, 1, 1, 1)
    return [data, weight, bias, topi.nn.relu(topi.add(conv, bias))]


@register_workload
def depthwise_as(channels: int, size: int) -> list[te.Tensor]:
    data = te.placeholder((1, channels, size, size), name="data")
    weight = te.placeholder((channels, 1, 3, 3), name="weight")
    return [data, weight, topi.nn.depthwise_conv2d_nchw(data, weight, 2, 1, 1)]


@register_workload
def softmax_as(n: int, m: int) -> list[te.Tensor]:
    a = te.placeholder((n, m), name="A")
    return [a, topi.nn.softmax(a, axis=1)]


@register_workload
def norm_as(n: int, m: int) -> list[te.Tensor]:
    a = te.placeholder((n, m), name="A")
    r, q = te.reduce_axis((0, m), name="r"), te.reduce_axis((0, m), name="q")
    total = te.compute((n,), lambda i: te.sum(a[i, r], axis=r), name="total")
    scaled = te.compute((n, m), lambda i, j: a[i, j] - total[i] * (1.0 / m), name="centred")
    square = te.compute((n,), lambda i: te.sum(scaled[i, q] * scaled[i, q], axis=q), name="square")
    return [a, te.compute((n, m), lambda i, j: scaled[i, j] / te.sqrt(square[i] + 1e-3), name="normed")]


@register_workload
def sum_all_as(n: int) -> list[te.Tensor]:
    a = te.placeholder((n,), name="A")
    r = te.reduce_axis((0, n), name="r")
    return [a, te.compute((), lambda: te.sum(a[r], axis=r), name="total")]


def _conv(data: Array, weight: Array, stride: int = 1, groups: int = 1) -> Array:
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
    if groups > 1:
        return np.einsum("nchwij,cij->nchw", windows, weight[:, 0])
    return np.einsum("nchwij,fcij->nfhw", windows, weight)


def _softmax(a: Array) -> Array:
    e = np.exp(a - a.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _norm(a: Array) -> Array:
    centred = a - a.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).sum(axis=1, keepdims=True) + 1e-3)


WORKLOADS = {
    "matmul": Workload(matmul_as, (12, 34, 17), lambda a, b: a @ b),
    "matmul of one row": Workload(matmul_as, (1, 67, 5), lambda a, b: a @ b),
    "small matmul of a long reduction": Workload(matmul_as, (3, 2, 96), lambda a, b: a @ b),
    "matmul and relu": Workload(matmul_relu_as, (16, 24, 9), lambda a, b: np.maximum(a @ b, 0)),
    "convolution, bias, relu": Workload(padded_conv_as, (3, 9, 8), lambda d, w, b: np.maximum(_conv(d, w) + b, 0)),
    "depthwise": Workload(depthwise_as, (5, 13), lambda d, w: _conv(d, w, 2, 5)),
    "softmax": Workload(softmax_as, (6, 35), _softmax),
    "softmax of whole vectors": Workload(softmax_as, (3, 64), _softmax),
    "softmax of a prime": Workload(softmax_as, (3, 67), _softmax),
    "matmul of primes": Workload(matmul_as, (23, 67, 19), lambda a, b: a @ b),
    "norm": Workload(norm_as, (4, 21), _norm),
    "norm of whole vectors": Workload(norm_as, (2, 64), _norm),
    "sum of all": Workload(sum_all_as, (60,), lambda a: a.sum()),
}
