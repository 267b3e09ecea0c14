"""Attention in AMX's tiles of bfloat16: scores, softmax and the weighted sum of values, a few tiles of rows at a time.

For each matrix of the batch, keys and values are rounded and packed in blocks of 32 columns, pairs of the sum side by
side. Then, for each group of query rows, whose scores a core's cache holds::

    products = query @ key.T                                          in tiles, sums in float32
    scores   = products * scale + mask
    powers   = 2 ** ((scores - max(scores)) * log2(e))                rounded to bfloat16
    out      = (powers @ values) / sum(powers)                        in tiles, of rounded powers above and below

Rows, keys and columns are padded to whole tiles: scores of padded keys are minus infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.features import CpuFeatures, features
from tilewright.tir.expr import IterVar
from tilewright.topi import nn
from tilewright.topi.cpu.byte_products import interleave_intrinsic, transpose_intrinsic
from tilewright.topi.cpu.byte_tiles import BLOCK, has_tiles, tile_intrinsic
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    inline_injective,
    machine,
    measured,
    output_tensors,
)
from tilewright.topi.cpu.compute.attention import LOG2_E, power_of_two
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.loops import reduce_in_lanes, split_vector
from tilewright.topi.cpu.model.float_tiles import parts_in_force, row_tiles
from tilewright.topi.cpu.tile_code import SIDE
from tilewright.topi.kinds import ATTENTION_TILES
from tilewright.topi.reduction import greatest_number
from tilewright.topi.utils import get_const_tuple, rounded

_HALF, _WIDE, _PAIR = "bfloat16", "float32", 2
_LEAST_KEYS = 16
_SCORE_BYTES = 6  # of a score in float32, and its power
_CACHE_SHARE = 8  # of the second cache, one part in so many holds the scores of a group of rows
_MOST_ROWS = 128


def attention_takes_tiles(cpu: CpuFeatures, query: Any, key: Any, value: Any) -> bool:
    """Return whether attention of tensors or types like these is computed in tiles.

    Their numbers are bfloat16, or float32 that the precision of products in force lets round to it.
    """
    rounds = [t.dtype == _HALF or (t.dtype == _WIDE and parts_in_force() == 1) for t in (query, key, value)]
    return all(rounds) and fills_tiles(cpu, query, key, value)


@nn.attention_takes_halves.provide("cpu")
def attention_takes_halves(query: Any, key: Any, value: Any) -> bool:
    """Return whether tiles compute attention of operands of these types, rounded to bfloat16."""
    return fills_tiles(features(), query, key, value)


def fills_tiles(cpu: CpuFeatures, query: Any, key: Any, value: Any) -> bool:
    """Return whether the extents are known, and fill tiles of bfloat16 that the processor has."""
    shapes = [get_const_tuple(operand.shape)[1:] for operand in (query, key, value)]
    if not has_tiles(cpu, _HALF) or not all(isinstance(n, int) for shape in shapes for n in shape):
        return False
    (_, rows, depth), (_, keys, width) = shapes[0], shapes[2]
    return rows >= SIDE and keys >= _LEAST_KEYS and depth >= SIDE and width >= SIDE


@dataclass(frozen=True)
class TileAttentionParts(te.ComputeParts):
    """The steps of attention in tiles, in order, and its packed operands."""

    query: te.Tensor
    keys: te.Tensor
    packed_keys: te.Tensor
    values: te.Tensor
    packed_values: te.Tensor
    products: te.Tensor
    scores: te.Tensor
    maximum: te.Tensor
    powers: te.Tensor
    total: te.Tensor
    inverse: te.Tensor
    context: te.Tensor


def tile_attention(
    query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None = None, scale: float = 1.0
) -> te.Tensor:
    """Compute ``topi.nn.attention`` of operands that ``fills_tiles``: (batch, rows, heads, width) of their type."""
    batch, heads, rows, _ = get_const_tuple(query.shape)
    keys, width = get_const_tuple(value.shape)[2:]
    most = machine().l2_bytes // _CACHE_SHARE // (_SCORE_BYTES * rounded(keys, BLOCK))
    blocks, tiles, height = row_tiles(rows, max(BLOCK, min(_MOST_ROWS, most)))
    group = tiles * height
    queries, key_rows, value_rows = _rounded_rows(query, blocks * group), _rounded_rows(key), _rounded_rows(value)
    packed_keys, packed_values = _packed(key_rows, transposed=True), _packed(value_rows, transposed=False)
    grouped = te.compute(
        (batch, heads, blocks, group, queries.shape[3]),
        lambda b, h, g, r, k: queries(b, h, g * group + r, k),
        name="attention_query",
    )
    products = _product(grouped, packed_keys, "products")
    scores = _scores(products, mask, scale, rows, keys)
    maximum, powers, total, inverse = _softmax(scores)
    context = _product(powers, packed_values, "context")
    parts = TileAttentionParts(
        grouped, key_rows, packed_keys, value_rows, packed_values, products, scores, maximum, powers, total, inverse,
        context,
    )  # fmt: skip

    def element(b: PrimExpr, i: PrimExpr, h: PrimExpr, j: PrimExpr) -> PrimExpr:
        row = tir.indexmod(i, group)
        row = tir.Call(row.dtype, "tir.reinterpret", (row,))  # all rows of a group are computed
        at = (b, h, tir.indexdiv(i, group), row)
        return ops.cast(query.dtype, context(*at, j) * inverse(*at))

    return te.compute((batch, rows, heads, width), element, name="attention", tag=ATTENTION_TILES, parts=parts)


def _packed(rows: te.Tensor, transposed: bool) -> te.Tensor:
    """Pack matrices (batch, heads, n, m) for tiles: (batch, heads, m / 32, n / 2, 32, 2), ``transposed``: m and n."""
    *batch, n, m = get_const_tuple(rows.shape)
    inner, columns = (m, n) if transposed else (n, m)

    def element(b: PrimExpr, h: PrimExpr, c: PrimExpr, k: PrimExpr, j: PrimExpr, e: PrimExpr) -> Any:
        at = k * _PAIR + e, c * BLOCK + j
        return rows(b, h, *(at[::-1] if transposed else at))

    return te.compute((*batch, columns // BLOCK, inner // _PAIR, BLOCK, _PAIR), element, name="packed")


def _softmax(scores: te.Tensor) -> tuple[te.Tensor, ...]:
    """Return the steps of the softmax of rows: maximum, powers in bfloat16, their sum, and its inverse."""
    *each, columns = get_const_tuple(scores.shape)
    t, u = (te.reduce_axis((0, columns), name=name) for name in "tu")
    maximum = te.compute(each, lambda *i: greatest_number(scores(*i, t.var), axis=t), name="maximum")
    powers = te.compute(
        scores.shape,
        lambda *i: ops.cast(_HALF, power_of_two((scores(*i) - maximum(*i[:-1])) * ops.const(LOG2_E, _WIDE))),
        name="powers",
    )
    total = te.compute(each, lambda *i: te.sum(ops.cast(_WIDE, powers(*i, u.var)), axis=u), name="total")
    inverse = te.compute(each, lambda *i: ops.const(1.0, _WIDE) / total(*i), name="inverse")
    return maximum, powers, total, inverse


def _rounded_rows(matrices: te.Tensor, rows: int = 0) -> te.Tensor:
    """Return matrices (batch, heads, n, m) in bfloat16, padded by zeros to whole blocks, or to ``rows`` rows."""
    *batch, n, m = get_const_tuple(matrices.shape)
    rows, columns = rows or rounded(n, BLOCK), rounded(m, BLOCK)

    def element(b: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        found = ops.cast(_HALF, matrices(b, h, i, j))
        for index, extent, whole in ((i, n, rows), (j, m, columns)):
            if extent < whole:
                found = tir.if_then_else(tir.likely(index < extent), found, ops.const(0.0, _HALF))
        return found

    return te.compute((*batch, rows, columns), element, name=f"rounded_{matrices.op.name}")


def _product(data: te.Tensor, packed: te.Tensor, name: str) -> te.Tensor:
    """Multiply data (batch, heads, groups, rows, k) by a packed matrix (batch, heads, n / 32, k / 2, 32, 2)."""
    *rows, _ = get_const_tuple(data.shape)
    blocks, steps = get_const_tuple(packed.shape)[2:4]
    k, pair = te.reduce_axis((0, steps), "k"), te.reduce_axis((0, _PAIR), "pair")

    def body(b: PrimExpr, h: PrimExpr, g: PrimExpr, r: PrimExpr, j: PrimExpr) -> Any:
        x = data(b, h, g, r, k.var * _PAIR + pair.var)
        y = packed(b, h, tir.indexdiv(j, BLOCK), k, tir.indexmod(j, BLOCK), pair)
        return te.sum(ops.cast(_WIDE, x) * ops.cast(_WIDE, y), axis=[k, pair])

    return te.compute((*rows, blocks * BLOCK), body, name=name)


def _scores(products: te.Tensor, mask: te.Tensor | None, scale: float, rows: int, keys: int) -> te.Tensor:
    """Scale and mask the products; columns beyond the keys are minus infinity."""
    *_, group, columns = get_const_tuple(products.shape)

    def body(b: PrimExpr, h: PrimExpr, g: PrimExpr, r: PrimExpr, t: PrimExpr) -> PrimExpr:
        found = products(b, h, g, r, t) * ops.const(scale, _WIDE)
        if mask is not None:
            row = ops.minimum(g * group + r, rows - 1)  # those of padding are not read
            at = (0 if ops.is_const_int(n, 1) else v for v, n in zip((b, h, row, t), mask.shape, strict=True))
            found = found + mask(*at)
        if keys == columns:
            return found
        return tir.if_then_else(tir.likely(t < keys), found, ops.const(float("-inf"), _WIDE))

    return te.compute(products.shape, body, name="scores")


def schedule_tile_attention(outs: Any, emulated: bool = False) -> te.Schedule:
    """Schedule ``tile_attention``: matrices of the batch in parallel, or their groups of rows where they are few.

    ``emulated``: by loops that do what the instructions do.
    """
    threads = measured().threads
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = ATTENTION_TILES.among(tensors)
    inline_injective(s, tensors)
    parts = anchor.parts
    assert isinstance(parts, TileAttentionParts)
    out = s[anchor]
    b, i, h, j = anchor.axis
    group, columns = get_const_tuple(parts.scores.shape)[3:]
    few = (constant_extent(b) or 1) * (constant_extent(h) or 1) < threads.least_tasks
    rows, inner = out.split(i, factor=group)
    if (constant_extent(i) or 1) % group:
        for loop in (rows, inner):
            out.pragma(loop, "loop_partition_hint", 1)
    out.reorder(*([rows, b, h] if few else [b, h, rows]), inner, j)
    split_vector(out, j, constant_extent(j), machine().lanes(32))
    out.pragma(inner, "flush_subnormals")  # of results in bfloat16, as products in tiles do
    matrix = h if few else out.fuse(b, h)
    work = 2 * (constant_extent(j) or 1) * columns * (constant_extent(i) or 1) * (constant_extent(h) or 1)
    if work > threads.least_products:
        out.parallel(rows if few else matrix)
    _schedule_packing(s, parts, None if few else (out, matrix))
    _schedule_group(s, parts, out, h if few else rows, emulated)
    if tensors[0].op is not anchor:
        schedule_injective_from_existing(s, tensors[0])
    return s


def _schedule_packing(s: te.Schedule, parts: TileAttentionParts, at: tuple[te.Stage, IterVar] | None) -> None:
    """Round and pack the keys and values of a matrix before they are used, or all of them first, in parallel."""
    for copied, packed in ((s[parts.keys], s[parts.packed_keys]), (s[parts.values], s[parts.packed_values])):
        for stage in (copied, packed):
            if at is not None:
                stage.compute_at(*at)
            else:
                stage.parallel(stage.op.axis[2])
        _schedule_rounding(copied)
        _, _, _, k, column, pair = packed.op.axis
        vector, lane = packed.split(column, factor=SIDE)
        if copied is s[parts.values]:
            packed.tensorize(lane, interleave_intrinsic(_PAIR, SIDE, _HALF))
        else:
            packed.reorder(vector, k, lane, pair)
            packed.tensorize(k, transpose_intrinsic(SIDE, constant_extent(k) or 1))


def _schedule_rounding(stage: te.Stage) -> None:
    *_, row, column = stage.op.axis
    split_vector(stage, column, constant_extent(column), SIDE)
    stage.pragma(row, "loop_partition_hint", 1)
    stage.pragma(row, "flush_subnormals")


def _schedule_group(s: te.Schedule, parts: TileAttentionParts, out: te.Stage, row: IterVar, emulated: bool) -> None:
    """Schedule the steps for a group of rows."""
    lanes = machine().lanes(32)
    query, inverse = s[parts.query], s[parts.inverse]
    s[query.op.input_tensors[0]].compute_inline()
    _schedule_rounding(query)
    split_vector(inverse, inverse.op.axis[-1], constant_extent(inverse.op.axis[-1]), lanes)
    for step in (inverse, s[parts.context], s[parts.total], s[parts.powers], s[parts.maximum], s[parts.scores],
                 s[parts.products], query):  # fmt: skip
        step.compute_at(out, row)
    for stage in (s[parts.context], s[parts.products]):
        *outer, r, column = stage.op.axis
        block, column = stage.split(column, factor=BLOCK)
        stage.reorder(*outer, block, r, column, *stage.op.reduce_axis)
        steps = constant_extent(stage.op.reduce_axis[0]) or 1
        stage.tensorize(r, tile_intrinsic(constant_extent(r) or 1, steps, emulated, _HALF, fetches=False))
    for reduced in (parts.total, parts.maximum):
        reduce_in_lanes(s, reduced, 2)
    for stage in (s[parts.powers], s[parts.scores]):
        split_vector(stage, stage.op.axis[-1], constant_extent(stage.op.axis[-1]), lanes)
        stage.pragma(stage.op.axis[-2], "flush_subnormals")
