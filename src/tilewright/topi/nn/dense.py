"""Matrix products: dense layers, plain and batched."""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.te.broadcast import broadcast_shape
from tilewright.topi import tag
from tilewright.topi.kinds import BATCH_MATMUL, DENSE, DENSE_PACK, MATMUL
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, simplify


def _check_inner(what: str, a: Any, b: Any) -> None:
    a, b = simplify(ops.as_expr(a)), simplify(ops.as_expr(b))
    if isinstance(a, tir.IntImm) and isinstance(b, tir.IntImm) and int(a) != int(b):
        raise InvalidShapeError(f"{what}: the dimensions to sum over differ, {a} and {b}")


def matmul(
    tensor_a: te.Tensor,
    tensor_b: te.Tensor,
    bias: te.Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    auto_scheduler_rewritten_layout: str = "",
) -> te.Tensor:
    """Compute ``tensor_a @ tensor_b + bias`` of two matrices, each transposed if its flag is set.

    Leading dimensions of ``tensor_a`` beyond two are kept.
    """
    out_dtype = out_dtype or tensor_a.dtype
    *lead, rows, inner = tensor_a.shape if not transpose_a else (*tensor_a.shape[:-2], *tensor_a.shape[:-3:-1])
    columns, inner_b = tensor_b.shape if transpose_b else tensor_b.shape[::-1]
    _check_inner("matmul", inner, inner_b)
    k = te.reduce_axis((0, inner), name="k")

    def body(*i: PrimExpr) -> Any:
        a = tensor_a(*i[:-2], k.var, i[-2]) if transpose_a else tensor_a(*i[:-1], k.var)
        b = tensor_b(i[-1], k.var) if transpose_b else tensor_b(k.var, i[-1])
        return te.sum(ops.cast(out_dtype, a) * ops.cast(out_dtype, b), axis=k)

    name, kind = ("T_dense", DENSE) if transpose_b and not transpose_a else ("T_matmul", MATMUL)
    free = {"layout_free_placeholders": [tensor_b]}
    product = te.compute((*lead, rows, columns), body, name=name, tag=kind, attrs=free)
    if bias is None:
        return product
    return te.compute(
        product.shape,
        lambda *i: product(*i) + ops.cast(out_dtype, bias(i[-1])),
        name="T_bias",
        tag=tag.BROADCAST,
    )


def dense(
    data: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    out_dtype: str | None = None,
    auto_scheduler_rewritten_layout: str = "",
) -> te.Tensor:
    """Compute ``data @ weight.T + bias``; data (..., k), weight (n, k), bias (n,)."""
    return matmul(data, weight, bias, out_dtype, transpose_a=False, transpose_b=True)


def dense_pack(
    data: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    out_dtype: str | None = None,
    small_weights: bool = False,
) -> te.Tensor:
    """Compute ``dense`` with a packed weight (n / b, k, b), layout "NK<b>n", which vector units read in order.

    The number of columns is n / b * b; when the layer has fewer, the caller slices. A weight of bytes may be
    (n / b, k / g, b, g), layout "NK<b>n<g>k": g neighbours along the sum lie together. ``small_weights``: no product
    of two bytes with two neighbours of them exceeds 16 bits.
    """
    out_dtype = out_dtype or data.dtype
    blocks, steps, width, *group = get_const_tuple(weight.shape)
    each = group[0] if group else 1
    _check_inner("dense_pack", data.shape[-1], steps * each)
    k = te.reduce_axis((0, steps), name="k")
    inside = [te.reduce_axis((0, each), name="k_inside")] if group else []

    def body(*i: PrimExpr) -> Any:
        column = i[-1]
        w = weight(tir.indexdiv(column, width), k.var, tir.indexmod(column, width), *inside)
        depth = k.var * each + inside[0].var if inside else k.var
        return te.sum(ops.cast(out_dtype, data(*i[:-1], depth)) * ops.cast(out_dtype, w), axis=[k, *inside])

    shape = (*data.shape[:-1], blocks * width)
    product = te.compute(
        shape, body, name="T_dense_pack", tag=DENSE_PACK, attrs={"block": width, "small_weights": small_weights}
    )
    if bias is None:
        return product
    return te.compute(
        shape, lambda *i: product(*i) + ops.cast(out_dtype, bias(i[-1])), name="T_bias", tag=tag.BROADCAST
    )


def batch_matmul(
    tensor_a: te.Tensor,
    tensor_b: te.Tensor,
    oshape: Any = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
    auto_scheduler_rewritten_layout: str = "",
) -> te.Tensor:
    """Multiply the matrices of two batches, by default ``a[b] @ b[b].T``; a batch of 1 broadcasts."""
    out_dtype = out_dtype or tensor_a.dtype
    rows, inner = tensor_a.shape[1:] if not transpose_a else tensor_a.shape[:0:-1]
    columns, inner_b = tensor_b.shape[1:] if transpose_b else tensor_b.shape[:0:-1]
    _check_inner("batch_matmul", inner, inner_b)
    (batch,) = broadcast_shape(tensor_a.shape[:1], tensor_b.shape[:1])
    one_a, one_b = (ops.is_const_int(simplify(t.shape[0]), 1) for t in (tensor_a, tensor_b))
    k = te.reduce_axis((0, inner), name="k")

    def body(b: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        batch_a, batch_b = 0 if one_a else b, 0 if one_b else b
        x = tensor_a(batch_a, k.var, i) if transpose_a else tensor_a(batch_a, i, k.var)
        y = tensor_b(batch_b, j, k.var) if transpose_b else tensor_b(batch_b, k.var, j)
        return te.sum(ops.cast(out_dtype, x) * ops.cast(out_dtype, y), axis=k)

    shape = (batch, rows, columns) if oshape is None else oshape
    free = {"layout_free_placeholders": [tensor_b]}
    return te.compute(shape, body, name="T_batch_matmul", tag=BATCH_MATMUL, attrs=free)
