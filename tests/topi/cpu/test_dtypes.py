"""Every data type through the schedules, compiled."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.topi.harness import Array, close, compiled, pack_channels, pack_kernel

from tilewright import topi

REAL = ["float64", "float16", "bfloat16"]
INTEGER = ["int8", "uint8", "int16", "int32", "int64"]
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1}


def numbers(dtype: str, *shape: int) -> Array:
    rng = np.random.default_rng(0)
    if "int" in dtype:
        return rng.integers(0 if dtype[0] == "u" else -4, 5, shape).astype(dtype)
    return rng.uniform(-1, 1, shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def agree(found: Array, expected: Array, dtype: str) -> None:
    tolerance = TOLERANCE.get(dtype, 1e-6)
    close(found.astype("float64"), expected, tolerance, tolerance)


@pytest.mark.parametrize("dtype", REAL + INTEGER)
def test_element_wise_reductions_and_moves(dtype: str) -> None:
    x = numbers(dtype, 3, 50)
    wide = x.astype("float64")
    agree(compiled(lambda a: topi.nn.relu(topi.add(a, a)), x), np.maximum(wide * 2, 0), dtype)
    reduced = partial(compiled, schedule=topi.cpu.schedule_reduce)
    for axis in (0, 1):
        agree(reduced(lambda a, k=axis: topi.max(a, k), x), wide.max(axis), dtype)
        agree(reduced(lambda a, k=axis: topi.argmax(a, k), x), wide.argmax(axis), dtype)
    matrix = numbers(dtype, 70, 90)
    agree(compiled(topi.transpose, matrix), matrix.astype("float64").T, dtype)
    agree(compiled(lambda a: topi.concatenate([a, a], 1), x), np.concatenate([wide, wide], 1), dtype)
    agree(compiled(lambda a: topi.cast(a, "float32"), x), wide, dtype)


@pytest.mark.parametrize("dtype", REAL + INTEGER)
def test_convolutions_and_pooling(dtype: str) -> None:
    x, kernel = numbers(dtype, 1, 16, 9, 9), numbers(dtype, 32, 16, 3, 3)
    out = dtype if dtype in REAL else "int32"
    wide, wide_kernel = (torch.tensor(v.astype("float64")) for v in (x, kernel))
    layouts = topi.cpu.conv2d_layouts(16, 32, 1, dtype)
    assert layouts is not None
    found = compiled(
        lambda a, w: topi.cpu.conv2d_NCHWc(a, w, 1, 1, 1, layouts.data_layout, layouts.out_layout, out),
        pack_channels(x, layouts.in_block),
        pack_kernel(kernel, layouts.in_block, layouts.out_block),
        schedule=topi.cpu.schedule_conv2d_NCHWc,
    )
    plain = compiled(
        lambda a, w: topi.cpu.conv2d_nchw(a, w, 1, 1, 1, out), x, kernel, schedule=topi.cpu.schedule_conv2d_nchw
    )
    if dtype not in TOLERANCE:  # sums of 144 products in 16 bits are no measure
        expected = F.conv2d(wide, wide_kernel, None, 1, 1).numpy()
        agree(plain, expected, dtype)
        agree(found, pack_channels(expected, layouts.out_block), dtype)
    pooled = compiled(
        lambda a: topi.nn.pool2d(a, (3, 3), (2, 2), (1, 1), (1,) * 4, "max"),
        x,
        schedule=partial(topi.cpu.schedule_pool, layout="NCHW"),
    )
    agree(pooled, F.max_pool2d(wide, 3, 2, 1).numpy(), dtype)


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint8", "int32"])
def test_products(dtype: str) -> None:
    out = dtype if dtype in REAL else "int32"
    x, w = numbers(dtype, 3, 50), numbers(dtype, 64, 50)
    expected = x.astype("float64") @ w.astype("float64").T
    agree(
        compiled(lambda a, b: topi.nn.dense(a, b, None, out), x, w, schedule=topi.cpu.schedule_dense), expected, dtype
    )
    block = topi.cpu.dense_block(3, 64, 50, dtype)
    if block is not None:
        packed = w.reshape(64 // block, block, 50).transpose(0, 2, 1)
        found = compiled(
            lambda a, b: topi.cpu.dense_pack(a, b, None, out), x, packed, schedule=topi.cpu.schedule_dense_pack
        )
        agree(found, expected, dtype)
    found = compiled(
        lambda a, b: topi.cpu.batch_matmul(a, b, None, out), x[None], w[None], schedule=topi.cpu.schedule_batch_matmul
    )
    agree(found[0], expected, dtype)


def test_truth_values() -> None:
    x = numbers("int8", 3, 50) > 0
    y = x[::-1]
    assert (compiled(topi.logical_and, x, y) == (x & y)).all()
    assert (compiled(lambda a: topi.all(a, 1), x, schedule=topi.cpu.schedule_reduce) == x.all(1)).all()
    assert (compiled(lambda a: topi.any(a, 0), x, schedule=topi.cpu.schedule_reduce) == x.any(0)).all()
