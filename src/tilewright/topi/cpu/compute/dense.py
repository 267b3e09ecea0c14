"""Matrix products of packed and of plain operands."""

from __future__ import annotations

from typing import Any

from tilewright import autotvm, te, tir
from tilewright.autotvm.task.space import ConfigSpace, OtherOptionEntity, SplitEntity
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import nn, tag
from tilewright.topi.cpu.byte_products import ByteProduct, byte_product, packed_form
from tilewright.topi.cpu.byte_tiles import BLOCK, row_choices, tile_rows
from tilewright.topi.cpu.common import (
    machine,
    typical_extent,
    vector_lanes,
)
from tilewright.topi.cpu.model.dense import _chunk, row_groups
from tilewright.topi.cpu.model.float_tiles import float_tiles
from tilewright.topi.cpu.model.tiling import row_tile
from tilewright.topi.cpu.tile_code import SIDE
from tilewright.topi.kinds import BATCH_MATMUL_PACKED, MATRIX_PACK
from tilewright.topi.nn.float_parts import STEP, dense_of_parts, parts_of_data
from tilewright.topi.utils import get_const_tuple, rounded

_HALF, _PAIR = "bfloat16", 2


@autotvm.register_topi_compute("dense_pack.x86", version="2")
def dense_pack(
    cfg: ConfigSpace,
    data: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    out_dtype: str | None = None,
    small_weights: bool = False,
) -> te.Tensor:
    """Compute ``topi.nn.dense_pack``: data (m, k), weight (n / b, k, b), or (n, k), which is packed first.

    Of bytes: (n / b, k / g, b, g), as ``packed_form`` says.
    """
    columns = weight.shape[0] if weight.ndim == 2 else None
    if columns is not None:
        lanes = vector_lanes(out_dtype or data.dtype)
        weight = _pack_columns(weight, lanes if typical_extent(columns) <= lanes else 2 * lanes)
    out = nn.dense_pack(data, weight, bias if columns is None else None, out_dtype, small_weights)
    shape = get_const_tuple(out.shape)
    if columns is None and bias is None:
        out = _in_float_tiles(cfg, data, weight, out)
    _, inner, block, *group = get_const_tuple(weight.shape)
    step_bytes = dt.nbytes(data.dtype) * (group[0] if group else 1)
    taken = packed_form(data.dtype, weight.dtype, group[0], small_weights).registers if group else 0
    rows = typical_extent(shape[-2]) if len(shape) > 1 else 1
    known = len(shape) < 2 or isinstance(shape[-2], int)
    cfg.define_split("tile_m", max(rows, 1), num_outputs=2, max_factor=32, policy="verbose", no_tail=False)
    cfg.define_knob("columns_outer", [True, False])
    cfg.define_knob("row_groups", sorted({1, machine().cores}))
    cfg.define_knob("tile_k", sorted({inner, *(n for n in (256, 512, 768, 1024) if inner % n == 0 and inner > n)}))
    registers = max(1, block // machine().lanes(max(8, dt.bits(out.dtype))))
    groups, tile_m = row_groups(machine(), max(rows, 1), registers, inner * step_bytes, taken)
    groups = groups if known else 1
    cfg.settle("tile_m", SplitEntity([-1, tile_m]))
    cfg.settle("columns_outer", OtherOptionEntity(True))
    cfg.settle("row_groups", OtherOptionEntity(groups))
    if group:
        tiles = tile_rows(machine(), _known_rows(shape), inner, group[0], data.dtype) if block == BLOCK else 0
        _define_tiles(cfg, _known_rows(shape), tiles)
    chunk = _chunk(-(-rows // groups), tile_m, inner, block, step_bytes)
    cfg.settle("tile_k", OtherOptionEntity(chunk), lambda entity: isinstance(entity, OtherOptionEntity))
    return out if columns is None else _cut_columns(out, columns, bias)


def _in_float_tiles(cfg: ConfigSpace, data: te.Tensor, weight: te.Tensor, out: te.Tensor) -> te.Tensor:
    """Return the product in tiles of parts of its floats where the configuration has them; else ``out``."""
    blocks, inner, block, *group = get_const_tuple(weight.shape)
    if group or block != BLOCK or data.ndim != 2 or {data.dtype, weight.dtype, out.dtype} != {"float32"}:
        return out
    rows = get_const_tuple(data.shape)[0]
    tiles = float_tiles(machine(), rows, blocks * block, inner)
    if tiles is None:
        return out
    cfg.define_knob("matrix_tiles", [True, False])
    cfg.settle("matrix_tiles", OtherOptionEntity(tiles.is_faster))
    if not cfg["matrix_tiles"].val:
        return out
    parts = parts_of_data(data, tiles.blocks * tiles.tiles, tiles.height, tiles.parts)
    return dense_of_parts(parts, weight, rows, inner, tiles.tiles)


def _define_tiles(cfg: ConfigSpace, rows: Any, untuned: int) -> None:
    """Define whether tiles compute the product, and how many of ``rows`` rows at once; ``untuned`` 0: they do not."""
    cfg.define_knob("matrix_tiles", [True, False] if untuned else [False])
    cfg.settle("matrix_tiles", OtherOptionEntity(untuned > 0))
    if untuned:
        choices = row_choices(rows, untuned)
        cfg.define_knob("matrix_rows", choices)
        cfg.settle("matrix_rows", OtherOptionEntity(untuned), lambda entity: entity.val in choices)


def _known_rows(shape: tuple[Any, ...]) -> Any:
    return shape[-2] if len(shape) == 2 else None


def _byte_form(a: te.Tensor, b: te.Tensor, out: te.Tensor) -> ByteProduct | None:
    """Return the form of the product of two computed matrices of bytes, or of bfloat16; None of others."""
    if (a.dtype, b.dtype, out.dtype) == (_HALF, _HALF, "float32"):
        fits = batch_matmul_takes_halves(a, b, False, get_const_tuple(out.shape)[2])
        if not fits or get_const_tuple(a.shape)[2] % STEP:
            return None
    elif (b.dtype, out.dtype) != ("int8", "int32") or a.dtype not in ("int8", "uint8", "int16"):
        return None
    form, depth = byte_product(a.dtype, b.dtype), get_const_tuple(a.shape)[-1]
    fits = form.is_fast and form.data_dtype == a.dtype and isinstance(depth, int) and depth % form.group == 0
    return form if fits else None


@nn.batch_matmul_takes_halves.provide("cpu")
def batch_matmul_takes_halves(a: Any, b: Any, transpose_a: bool, columns: Any) -> bool:
    """Return whether tiles fit a batched product of matrices of bfloat16, with a sum of whole steps."""
    (_, rows, inner), (columns,) = get_const_tuple(a.shape), get_const_tuple([columns])
    if transpose_a or not isinstance(inner, int) or not isinstance(columns, int) or columns <= SIDE:
        return False
    return tile_rows(machine(), rows, rounded(inner, STEP) // _PAIR, _PAIR, _HALF) > 0


def _pack_columns(matrix: te.Tensor, block: int, transposed: bool = True, group: int = 0) -> te.Tensor:
    """Pack (..., n, k), or (..., k, n) if not ``transposed``, to (..., n / block, k, block), padding with zeros.

    Of bytes in groups: (..., n / block, k / group, block, group).
    """
    *batch, inner, columns = matrix.shape if not transposed else (*matrix.shape[:-2], *matrix.shape[:-3:-1])

    def pack(*i: PrimExpr) -> PrimExpr:
        *b, c, k, j = i[:-1] if group else i
        k = k * group + i[-1] if group else k
        column = c * block + j
        element = matrix(*b, column, k) if transposed else matrix(*b, k, column)
        if _whole(columns, block):
            return element
        return tir.if_then_else(tir.likely(column < columns), element, ops.const(0, matrix.dtype))

    shape = (
        *batch,
        _chunks(columns, block),
        *([ops.floordiv(inner, group), block, group] if group else [inner, block]),
    )
    return te.compute(shape, pack, name="packed_b", tag=MATRIX_PACK)


def _chunks(columns: Any, block: int) -> Any:
    """Return how many blocks ``columns`` take."""
    known = get_const_tuple([columns])[0]
    return -(-known // block) if isinstance(known, int) else ops.floordiv(ops.as_expr(columns) + (block - 1), block)


def _whole(columns: Any, block: int) -> bool:
    """Return whether ``columns`` are known to fill whole blocks."""
    known = get_const_tuple([columns])[0]
    return isinstance(known, int) and known % block == 0


def _cut_columns(product: te.Tensor, columns: Any, bias: te.Tensor | None = None) -> te.Tensor:
    """Return the first ``columns`` columns, plus ``bias``."""
    shape = (*product.shape[:-1], columns)
    if bias is not None:
        return te.compute(
            shape, lambda *i: product(*i) + ops.cast(product.dtype, bias(i[-1])), name="T_bias", tag=tag.BROADCAST
        )
    if _whole(columns, int(product.op.attrs["block"])):
        return product
    return te.compute(shape, lambda *i: product(*i), name="T_cut", tag=tag.INJECTIVE)


def dense_nopack(
    data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, out_dtype: str | None = None
) -> te.Tensor:
    """Compute ``topi.nn.dense`` with weights that are not packed at compile time."""
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
    """Compute ``topi.nn.batch_matmul`` with B packed to (b, n / block, k, block), so that tiles read it in order."""
    plain = nn.batch_matmul(tensor_a, tensor_b, oshape, out_dtype, transpose_a, transpose_b)
    rows, columns = get_const_tuple(plain.shape)[1:]
    if any(isinstance(n, int) and n in (0, 1) for n in (rows, columns)):
        return plain
    lanes = vector_lanes(plain.dtype)
    likely_rows = typical_extent(rows)
    cfg.define_split("tile_m", max(likely_rows, 1), num_outputs=2, max_factor=32, policy="verbose", no_tail=False)
    cfg.define_knob("block", [lanes, 2 * lanes, 3 * lanes])
    registers = 2 if typical_extent(columns) > lanes else 1
    cfg.settle("block", OtherOptionEntity(registers * lanes))
    last = 1 if transpose_a else get_const_tuple(tensor_a.shape)[-1]
    stride = last if isinstance(last, int) else 1
    form = None if transpose_a else _byte_form(tensor_a, tensor_b, plain)
    taken = form.registers if form else 0
    cfg.settle(
        "tile_m",
        SplitEntity([-1, row_tile(machine(), likely_rows, registers, stride * dt.nbytes(tensor_a.dtype), taken)]),
    )
    block = cfg["block"].val
    group = form.group if form else 1
    inner = get_const_tuple(tensor_a.shape)[-1]
    fits = form is not None and block == BLOCK and isinstance(inner, int)
    tiles = tile_rows(machine(), rows, inner // group, group, tensor_a.dtype) if fits else 0
    _define_tiles(cfg, rows, tiles)
    packed = _pack_columns(tensor_b, block, transpose_b, form.group if form else 0)
    one_a, one_b = (ops.is_const_int(t.shape[0], 1) for t in (tensor_a, tensor_b))
    k = te.reduce_axis((0, packed.shape[2]), name="k")
    inside = [te.reduce_axis((0, group), name="k_inside")] if form else []

    def body(b: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        batch_a, depth = 0 if one_a else b, k.var * group + inside[0].var if inside else k.var
        x = tensor_a(batch_a, depth, i) if transpose_a else tensor_a(batch_a, i, depth)
        y = packed(0 if one_b else b, tir.indexdiv(j, block), k.var, tir.indexmod(j, block), *inside)
        return te.sum(ops.cast(plain.dtype, x) * ops.cast(plain.dtype, y), axis=[k, *inside])

    # The product covers whole blocks of columns, so its loops need no tests; the copy leaves out what is too much.
    product = te.compute(
        (plain.shape[0], rows, packed.shape[1] * block),
        body,
        name="T_batch_matmul",
        tag=BATCH_MATMUL_PACKED,
        attrs={"block": block},
    )
    return _cut_columns(product, columns)
