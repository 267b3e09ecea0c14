"""Matrix products, packed and as they lie."""

from __future__ import annotations

from typing import Any

from tilewright import autotvm, te, tir
from tilewright.autotvm.task.space import ConfigSpace, OtherOptionEntity, SplitEntity
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import nn, tag
from tilewright.topi.cpu.common import (
    machine,
    vector_lanes,
)
from tilewright.topi.cpu.model.dense import _chunk, row_groups
from tilewright.topi.cpu.model.tiling import row_tile
from tilewright.topi.utils import get_const_tuple


@autotvm.register_topi_compute("dense_pack.x86", version="1")
def dense_pack(
    cfg: ConfigSpace,
    data: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    out_dtype: str | None = None,
) -> te.Tensor:
    """``topi.nn.dense_pack``: data (m, k), weight (n / b, k, b)."""
    out = nn.dense_pack(data, weight, bias, out_dtype)
    shape = get_const_tuple(out.shape)
    _, inner, block = get_const_tuple(weight.shape)
    rows = shape[-2] if len(shape) > 1 and isinstance(shape[-2], int) else 1
    cfg.define_split("tile_m", max(rows, 1), num_outputs=2, max_factor=32, policy="verbose", no_tail=False)
    cfg.define_knob("columns_outer", [True, False])
    cfg.define_knob("row_groups", sorted({1, machine().cores}))
    cfg.define_knob("tile_k", sorted({inner, *(n for n in (256, 512, 768, 1024) if inner % n == 0 and inner > n)}))
    if cfg.is_fallback:
        registers = max(1, block // machine().lanes(max(8, dt.bits(out.dtype))))
        groups, tile_m = row_groups(machine(), max(rows, 1), registers, inner * dt.nbytes(data.dtype))
        cfg["tile_m"] = SplitEntity([-1, tile_m])
        cfg["columns_outer"] = OtherOptionEntity(True)
        cfg["row_groups"] = OtherOptionEntity(groups)
        chunk = _chunk(-(-rows // groups), tile_m, inner, block, dt.nbytes(data.dtype))
        cfg["tile_k"] = OtherOptionEntity(chunk)
    return out


def dense_nopack(
    data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, out_dtype: str | None = None
) -> te.Tensor:
    """``topi.nn.dense`` for weights that are not packed while compiling."""
    return nn.dense(data, weight, bias, out_dtype)


@autotvm.register_topi_compute("batch_matmul.x86", version="1")
def batch_matmul(
    cfg: ConfigSpace,
    tensor_a: te.Tensor,
    tensor_b: te.Tensor,
    oshape: Any = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> te.Tensor:
    """``topi.nn.batch_matmul`` with B packed to (b, n / block, k, block) inside, so that tiles read it in order."""
    plain = nn.batch_matmul(tensor_a, tensor_b, oshape, out_dtype, transpose_a, transpose_b)
    rows, columns = get_const_tuple(plain.shape)[1:]
    if not isinstance(rows, int) or not isinstance(columns, int) or columns == 0 or 1 in (rows, columns):
        return plain
    lanes = vector_lanes(plain.dtype)
    cfg.define_split("tile_m", max(rows, 1), num_outputs=2, max_factor=32, policy="verbose", no_tail=False)
    cfg.define_knob("block", [lanes, 2 * lanes, 3 * lanes])
    if cfg.is_fallback:
        registers = 2 if columns > lanes else 1
        cfg["block"] = OtherOptionEntity(registers * lanes)
        last = 1 if transpose_a else get_const_tuple(tensor_a.shape)[-1]
        stride = last if isinstance(last, int) else 1
        cfg["tile_m"] = SplitEntity([-1, row_tile(machine(), rows, registers, stride * dt.nbytes(tensor_a.dtype))])
    block = cfg["block"].val
    chunks = -(-columns // block)
    batch_b, inner = tensor_b.shape[0], tensor_b.shape[2 if transpose_b else 1]
    one_a, one_b = (ops.is_const_int(t.shape[0], 1) for t in (tensor_a, tensor_b))

    def pack(b: PrimExpr, c: PrimExpr, k: PrimExpr, j: PrimExpr) -> PrimExpr:
        column = c * block + j
        element = tensor_b(b, column, k) if transpose_b else tensor_b(b, k, column)
        if columns % block == 0:
            return element
        return tir.if_then_else(tir.likely(column < columns), element, ops.const(0, tensor_b.dtype))

    packed = te.compute((batch_b, chunks, inner, block), pack, name="packed_b", tag="batch_matmul_pack")
    k = te.reduce_axis((0, inner), name="k")

    def body(b: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        batch_a = 0 if one_a else b
        x = tensor_a(batch_a, k.var, i) if transpose_a else tensor_a(batch_a, i, k.var)
        y = packed(0 if one_b else b, tir.indexdiv(j, block), k.var, tir.indexmod(j, block))
        return te.sum(ops.cast(plain.dtype, x) * ops.cast(plain.dtype, y), axis=k)

    # The product covers whole blocks of columns, so its loops need no tests; the copy leaves out what is too much.
    attrs = {"block": block}
    product = te.compute(
        (plain.shape[0], rows, chunks * block), body, name="T_batch_matmul", tag="batch_matmul_packed", attrs=attrs
    )
    if columns % block == 0:
        return product
    return te.compute(plain.shape, lambda b, i, j: product(b, i, j), name="T_batch_matmul_cut", tag=tag.INJECTIVE)
