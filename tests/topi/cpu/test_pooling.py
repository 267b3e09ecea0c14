"""Pooling against numpy: windows in the padding, tiles that do not divide a row, odd blocks, whole planes."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
from tests.topi.harness import close, compiled, random

import tilewright as tvm
from tilewright import te, topi

CASES = [
    # n, chunks, h, w, block, kernel, stride, padding
    (1, 2, 17, 17, 16, (3, 3), (1, 1), (1, 1, 1, 1)),
    (2, 1, 13, 19, 8, (3, 2), (2, 1), (0, 1, 1, 0)),
    (1, 3, 9, 41, 4, (2, 2), (2, 2), (0, 0, 0, 0)),
    (1, 1, 7, 1, 24, (3, 1), (1, 1), (1, 0, 1, 0)),
    (1, 2, 8, 8, 40, (5, 5), (1, 1), (2, 2, 2, 2)),
    (1, 1, 11, 11, 3, (3, 3), (2, 2), (1, 1, 1, 1)),
    (1, 2, 40, 6, 16, (37, 3), (1, 1), (0, 0, 0, 0)),
    # windows that share columns: bands that do not divide the rows, wide windows, padding on one side, no padding
    (1, 1, 67, 67, 16, (3, 3), (1, 1), (1, 1, 1, 1)),
    (1, 3, 73, 31, 16, (3, 3), (2, 2), (0, 0, 0, 0)),
    (2, 9, 13, 13, 8, (3, 3), (2, 2), (1, 0, 0, 1)),
    (1, 2, 13, 13, 16, (13, 13), (1, 1), (6, 6, 6, 6)),
    (1, 1, 9, 10, 16, (7, 5), (3, 2), (0, 2, 3, 0)),
    (1, 1, 1, 1, 16, (3, 3), (1, 1), (1, 1, 1, 1)),
    (3, 1, 2, 23, 2, (2, 3), (1, 1), (0, 1, 0, 1)),
    # windows in passes: several, rows in the padding, windows not written out, blocks that fill no vector
    (1, 2, 28, 30, 16, (2, 2), (2, 2), (0, 0, 0, 0)),
    (1, 2, 13, 17, 16, (4, 3), (3, 2), (2, 1, 1, 0)),
    (1, 1, 16, 9, 8, (4, 4), (4, 4), (0, 0, 0, 0)),
    (1, 1, 11, 47, 16, (3, 34), (2, 1), (1, 5, 1, 0)),
    (2, 1, 9, 9, 2, (3, 3), (2, 2), (1, 1, 1, 1)),
    (1, 1, 5, 1, 16, (5, 1), (3, 1), (2, 0, 2, 0)),
    (1, 1, 300, 3, 16, (2, 3), (2, 1), (1, 0, 1, 0)),
]


def pool(x: np.ndarray, case: tuple, kind: str, include: bool) -> np.ndarray:
    *_, (kh, kw), (sh, sw), (top, left, bottom, right) = case
    outside = -np.inf if kind == "max" else np.nan
    wide = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right), (0, 0)], constant_values=outside)
    oh, ow = (wide.shape[2] - kh) // sh + 1, (wide.shape[3] - kw) // sw + 1
    out = np.empty((*x.shape[:2], oh, ow, x.shape[4]), "float32")
    for i, j in itertools.product(range(oh), range(ow)):
        window = wide[:, :, i * sh : i * sh + kh, j * sw : j * sw + kw]
        if kind == "max":
            out[:, :, i, j] = window.max((2, 3))
        else:
            out[:, :, i, j] = np.nansum(window, (2, 3)) / (kh * kw) if include else np.nanmean(window, (2, 3))
    return out


@pytest.mark.covering(1)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("kind", "include"), [("max", True), ("avg", True), ("avg", False)])
@pytest.mark.parametrize("followed", [False, True])
def test_packed_pooling(case: tuple, kind: str, include: bool, followed: bool) -> None:
    *shape, kernel, stride, padding = case
    layout = f"NCHW{shape[-1]}c"
    with tvm.target.Target("llvm"):
        x = te.placeholder(shape, name="x")
        y = topi.nn.pool2d(x, kernel, stride, (1, 1), padding, kind, layout=layout, count_include_pad=include)
        result = topi.nn.relu(y) if followed else y
        function = tvm.build(topi.cpu.schedule_pool([result], layout), [x, result])
    array = np.random.default_rng(0).standard_normal(shape).astype("float32")
    expected = pool(array, case, kind, include)
    out = tvm.nd.empty(expected.shape)
    function(tvm.nd.array(array), out)
    np.testing.assert_allclose(out.numpy(), np.maximum(expected, 0) if followed else expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "passes"),
    [
        ((2, 2), (2, 2), (1, 1), [1, 1]),
        ((3, 3), (2, 2), (1, 1), [2, 1]),
        ((4, 4), (3, 3), (1, 1), [2, 1, 1]),
        ((2, 2), (3, 3), (1, 1), [1, 1]),
        ((3, 3), (1, 1), (1, 1), [3]),
        ((3, 3), (2, 2), (2, 2), [3]),
        ((7, 7), (7, 7), (1, 1), [7]),
    ],
)
def test_each_pass_has_one_new_row(kernel: tuple, stride: tuple, dilation: tuple, passes: list[int]) -> None:
    x = te.placeholder((1, 2, 21, 21, 16), name="x")
    op = topi.nn.pool2d(x, kernel, stride, dilation, (0, 0, 0, 0), "max", layout="NCHW16c").op
    found = []
    while op.input_tensors:
        found += [int(axis.dom.extent) for axis in op.reduce_axis if axis.var.name == "rv0"]
        op = next((t.op for t in op.input_tensors if t.op.tag.startswith("pool")), x.op)
    assert found[::-1] == passes


@pytest.mark.covering(1)
@pytest.mark.parametrize("case", [*CASES, (1, 3, 30, 112, 1, (5, 5), (1, 1), (2, 2, 2, 2))])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_unpacked_pooling(case: tuple, layout: str, kind: str) -> None:
    n, chunks, h, w, block, kernel, stride, padding = case
    array = np.random.default_rng(0).standard_normal((n, chunks, h, w, block)).astype("float32")
    order = (0, 1, 4, 2, 3) if layout == "NCHW" else (0, 2, 3, 1, 4)
    ends = (
        (lambda a: (n, chunks * block, *a.shape[3:]))
        if layout == "NCHW"
        else (lambda a: (*a.shape[:3], chunks * block))
    )
    data, wanted = (a.transpose(order) for a in (array, pool(array, case, kind, include=False)))
    data, wanted = data.reshape(ends(data)), wanted.reshape(ends(wanted))
    with tvm.target.Target("llvm"):
        x = te.placeholder(data.shape, name="x")
        y = topi.nn.pool2d(x, kernel, stride, (1, 1), padding, kind, layout=layout, count_include_pad=False)
        for result in (y, topi.nn.relu(y)):
            function = tvm.build(topi.cpu.schedule_pool([result], layout), [x, result])
            out = tvm.nd.empty(wanted.shape)
            function(tvm.nd.array(np.ascontiguousarray(data)), out)
            np.testing.assert_allclose(
                out.numpy(), wanted if result is y else np.maximum(wanted, 0), rtol=1e-5, atol=1e-6
            )


PLANES = [  # n, c, h, w, kernel, stride, padding
    (1, 3, 17, 19, (5, 5), (1, 1), (2, 2, 2, 2)),
    (2, 2, 40, 67, (5, 4), (2, 2), (0, 1, 2, 1)),
    (1, 2, 13, 13, (13, 13), (1, 1), (6, 6, 6, 6)),
    (1, 1, 131, 140, (5, 3), (1, 2), (2, 1, 2, 1)),  # columns of a plane take more than the first-level cache
    (3, 1, 28, 28, (3, 3), (2, 2), (1, 1, 1, 1)),
    (1, 1, 7, 9, (7, 2), (3, 1), (0, 0, 0, 0)),
    (1, 5, 6, 1, (3, 1), (1, 1), (1, 0, 1, 0)),
    (1, 1, 1, 1, (7, 7), (1, 1), (3, 3, 3, 3)),
    (2, 3, 7, 7, (7, 7), (1, 1), (0, 0, 0, 0)),  # the whole plane,
    (2, 3, 5, 6, (7, 8), (1, 1), (1, 1, 1, 1)),  # with its padding,
    (1, 3, 21, 11, (4, 11), (2, 1), (0, 0, 0, 0)),  # and whole rows
    (2, 5, 7, 7, (3, 3), (1, 1), (1, 1, 1, 1)),  # small planes with a border
    (1, 7, 14, 14, (3, 3), (2, 2), (1, 1, 1, 1)),
    (1, 2, 28, 28, (5, 5), (2, 2), (2, 2, 2, 2)),
    (1, 3, 1, 1, (3, 3), (1, 1), (1, 1, 1, 1)),
    (2, 1, 1, 5, (2, 3), (1, 2), (1, 0, 0, 2)),
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("case", PLANES)
@pytest.mark.parametrize(("kind", "include"), [("max", True), ("avg", True), ("avg", False)])
def test_pooling_of_planes(case: tuple, kind: str, include: bool, target: str) -> None:
    *shape, kernel, stride, padding = case
    array = random(*shape)
    expected = pool(array[..., None], (*case[:4], 1, *case[4:]), kind, include)[..., 0]
    schedule = partial(topi.cpu.schedule_pool, layout="NCHW")

    def compute(x: te.Tensor) -> te.Tensor:
        return topi.nn.pool2d(x, kernel, stride, (1, 1), padding, kind, count_include_pad=include)

    close(compiled(compute, array, schedule=schedule, target=target), expected)
    found = compiled(lambda x: topi.nn.relu(compute(x)), array, schedule=schedule, target=target)
    close(found, np.maximum(expected, 0))


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (2, 5, 3, 3), (2, 67, 7, 7), (1, 3, 13, 11), (1, 2, 1, 129), (3, 0, 4, 4)]
)
def test_global_pooling_of_planes(shape: tuple, kind: str, target: str) -> None:
    x = random(*shape)
    schedule = partial(topi.cpu.schedule_adaptive_pool, layout="NCHW")
    expected = (np.max if kind == "max" else np.mean)(x, (2, 3), keepdims=True) if x.size else x[:, :, :1, :1]
    close(compiled(lambda a: topi.nn.global_pool(a, kind), x, schedule=schedule, target=target), expected)
    found = compiled(lambda a: topi.exp(topi.nn.global_pool(a, kind)), x, schedule=schedule, target=target)
    close(found, np.exp(expected))
    volumes = random(2, 3, 5, *shape[2:])
    found = compiled(lambda a: topi.nn.adaptive_pool3d(a, (1, 1, 1), kind), volumes, schedule=schedule, target=target)
    close(found, (np.max if kind == "max" else np.mean)(volumes, (2, 3, 4), keepdims=True))


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=nehalem"])
@pytest.mark.parametrize("window", [(3, 3), (5, 3), (2, 7), (30, 3)])
@pytest.mark.parametrize("image", [(56, 56), (14, 14), (7, 7), (1, 41), (113, 127), (37, 64), (1, 1)])
def test_what_follows_a_pool_of_planes(image: tuple[int, int], window: tuple[int, int], target: str) -> None:
    (height, width), (kh, kw) = image, window
    padding = (kh // 2, (kw - 1) // 2, kh - 1 - kh // 2, kw // 2)
    x, scale = random(1, 3, height, width), random(1, 3, 1, 1)

    def pooled(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        average = topi.nn.pool2d(a, window, (1, 1), (1, 1), padding, "avg", count_include_pad=False)
        return topi.multiply(topi.subtract(average, a), b)

    averages = pool(x[..., None], (window, (1, 1), padding), "avg", include=False)[..., 0]
    found = compiled(pooled, x, scale, schedule=partial(topi.cpu.schedule_pool, layout="NCHW"), target=target)
    close(found, (averages - x) * scale, atol=1e-6)
