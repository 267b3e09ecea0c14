"""Loops of element-wise computes: what they read and write in order is read and written in whole vectors."""

from __future__ import annotations

import numpy as np
import pytest
from tests.topi.harness import compiled

import tilewright as tvm
from tilewright import te, topi
from tilewright.tir.expr import Load, Ramp
from tilewright.tir.stmt import Store
from tilewright.tir.visitor import post_order_visit


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "bool"])
@pytest.mark.parametrize("shape", [(64, 112, 112), (8, 64, 56), (3, 5, 7, 128), (2, 3, 1000)])
def test_vectors_that_cross_the_ends_of_rows(shape: tuple[int, ...], dtype: str) -> None:
    with tvm.target.Target("llvm -mcpu=skylake-avx512"):
        x = te.placeholder(shape, name="x")
        y = topi.greater(x, x * 2.0) if dtype == "bool" else topi.cast(x, dtype)
        func = tvm.lower(topi.cpu.schedule_injective([y]), [x, y])["main"]
    indices = []
    post_order_visit(func.body, lambda node: indices.append(node.index) if isinstance(node, (Load, Store)) else None)
    assert indices and all(isinstance(index, Ramp) for index in indices)


@pytest.mark.parametrize("shape", [(3, 7, 11), (5, 16, 56), (2, 3, 112, 112), (1, 1, 1), (0, 5)])
def test_narrow_results(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).uniform(-100, 100, shape).astype("float32")
    np.testing.assert_array_equal(compiled(lambda a: topi.cast(a, "int8"), x), x.astype("int8"))
    np.testing.assert_array_equal(compiled(lambda a: topi.greater(a, topi.negative(a)), x), x > -x)
