"""Matrix products on GPUs: dense layers, products of matrices and of batches of them."""

from __future__ import annotations

import math
from typing import Any

from tilewright import te
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import nn, tag
from tilewright.topi.gpu.contraction import BATCH, COLUMNS, ROWS, Axis, Contraction, contract
from tilewright.topi.gpu.templates import constant_shapes, template
from tilewright.topi.utils import get_const_tuple

_FEW_ROWS = 2
_LONG = 64  # elements of a row, from which on several threads add them up


def _is_vector(a: te.Tensor, product: te.Tensor) -> bool:
    """Return whether there are so few rows that cooperating threads per result, reading the other matrix once, are
    best.
    """
    *rows, _ = get_const_tuple(product.shape)
    return 0 < math.prod(rows) <= _FEW_ROWS and get_const_tuple(a.shape)[-1] >= _LONG


def _matmul(cfg: ConfigSpace, a: te.Tensor, b: te.Tensor, out_dtype: str | None, transpose_a: bool,
            transpose_b: bool) -> te.Tensor:  # fmt: skip
    plain = nn.matmul(a, b, None, out_dtype, transpose_a, transpose_b)  # checks the shapes
    if not constant_shapes(a, b):
        return plain
    if _is_vector(a, plain) and transpose_b and not transpose_a:
        return plain
    *lead, rows, columns = get_const_tuple(plain.shape)
    depth = get_const_tuple(a.shape)[-2 if transpose_a else -1]

    def row(_: Any, at: Any, k: PrimExpr) -> PrimExpr:
        return a(*at[:-1], k, at[-1]) if transpose_a else a(*at, k)

    def column(_: Any, at: Any, k: PrimExpr) -> PrimExpr:
        return b(at[0], k) if transpose_b else b(k, at[0])

    axes = (*((Axis(d, ROWS),) for d in (*lead, rows)), (Axis(columns, COLUMNS),))
    return contract(
        cfg, Contraction(axes, depth, row, column, a.dtype, plain.dtype, not transpose_a, transpose_b), plain.op.name
    )


def _with_bias(product: te.Tensor, bias: te.Tensor | None) -> te.Tensor:
    if bias is None:
        return product
    return te.compute(
        product.shape, lambda *i: product(*i) + ops.cast(product.dtype, bias(i[-1])), name="T_bias", tag=tag.BROADCAST
    )


def dense_tiles(cfg: ConfigSpace, data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None,
           out_dtype: str | None = None) -> te.Tensor:  # fmt: skip
    """Compute ``topi.nn.dense`` in tiles: data (..., k), weight (n, k), bias (n,)."""
    return _with_bias(_matmul(cfg, data, weight, out_dtype, False, True), bias)


dense_small_batch, schedule_dense_small_batch = template("dense_small_batch.gpu", dense_tiles)
dense_large_batch, schedule_dense_large_batch = template("dense_large_batch.gpu", dense_tiles)


def _matmul_with_bias(
    cfg: ConfigSpace,
    tensor_a: te.Tensor,
    tensor_b: te.Tensor,
    bias: te.Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> te.Tensor:
    """Compute ``topi.nn.matmul`` in tiles."""
    return _with_bias(_matmul(cfg, tensor_a, tensor_b, out_dtype, transpose_a, transpose_b), bias)


matmul, schedule_matmul = template("matmul.cuda", _matmul_with_bias)


def batch_matmul_tiles(
    cfg: ConfigSpace,
    x: te.Tensor,
    y: te.Tensor,
    out_shape: Any = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> te.Tensor:
    """Compute ``topi.nn.batch_matmul`` in tiles."""
    plain = nn.batch_matmul(x, y, out_shape, out_dtype, transpose_a, transpose_b)
    if not constant_shapes(x, y):
        return plain
    batch, rows, columns = get_const_tuple(plain.shape)
    depth = get_const_tuple(x.shape)[1 if transpose_a else 2]
    one_x, one_y = (get_const_tuple(t.shape)[0] == 1 for t in (x, y))

    def row(b: Any, at: Any, k: PrimExpr) -> PrimExpr:
        first = 0 if one_x else b[0]
        return x(first, k, at[0]) if transpose_a else x(first, at[0], k)

    def column(b: Any, at: Any, k: PrimExpr) -> PrimExpr:
        first = 0 if one_y else b[0]
        return y(first, at[0], k) if transpose_b else y(first, k, at[0])

    axes = ((Axis(batch, BATCH),), (Axis(rows, ROWS),), (Axis(columns, COLUMNS),))
    return contract(
        cfg, Contraction(axes, depth, row, column, x.dtype, plain.dtype, not transpose_a, transpose_b), "T_batch_matmul"
    )


batch_matmul, schedule_batch_matmul = template("batch_matmul.cuda", batch_matmul_tiles)
