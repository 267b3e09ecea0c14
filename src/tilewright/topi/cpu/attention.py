"""Scaled dot-product attention in one kernel: scores, softmax and the weighted sum of values of a few rows at a time.

For every matrix of the batch, keys and values are packed as blocks of columns. Then, for each group of query rows::

    scores = query @ key.T * scale + mask      # register tiles, as in a dense layer; a block of keys for all rows
    powers = 2 ** ((scores - max(scores)) * log2(e))
    out    = (powers @ values) / sum(powers)

so that the scores of a whole matrix are never in memory. A few rows (decoding) take keys and values as they lie.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from tilewright import autotvm, te, tir
from tilewright.autotvm.space import ConfigSpace
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.features import CpuFeatures
from tilewright.target.intrinsics import EXP2_POLYNOMIAL
from tilewright.tir.expr import IterVar
from tilewright.topi.cpu.common import (
    TUNING_CANDIDATES,
    constant_extent,
    create_schedule,
    find_anchor,
    inline_injective,
    machine,
    measured,
    output_tensors,
    reduce_in_lanes,
    split_vector,
    sum_registers,
    vector_lanes,
)
from tilewright.topi.cpu.conv2d import unroll_and_vectorize
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.tiling import RegisterTile, fits, tile_cost
from tilewright.topi.reduction import greatest_number
from tilewright.topi.utils import InvalidShapeError, get_const_tuple

_LOG2_E = 1.4426950408889634
# Added to a number of at least -127, leaves it rounded to an integer plus 127, the bias of exponents, in the low bits.
_ROUND = 1.5 * 2**23 + 127


@dataclass(frozen=True)
class AttentionTiles:
    """Rows of a tile, and the columns of a block of scores and of results; a column is one lane of a register."""

    rows: int
    score_block: int
    value_block: int


def attention_tiles(cpu: CpuFeatures, rows: int, keys: int, depth: int, width: int, bits: int) -> list[AttentionTiles]:
    """Tiles, the cheapest first by the model of register tiles, for both products; padding to whole blocks counts.

    Parameters
    ----------
    rows, keys : queries and keys of one matrix
    depth, width : columns of the queries and of the values
    """
    lanes = cpu.lanes(bits)

    def time(tile_rows: int, vectors: int, blocks: int) -> float:
        return blocks * vectors * tile_cost(cpu, rows, RegisterTile(tile_rows, vectors)) if vectors else 0.0

    def scores(tile_rows: int, vectors: int) -> float:
        whole, rest = divmod(-(-keys // lanes), vectors)
        factor = cpu.processor.attention.partial_block_time if whole and rest else 1.0
        return factor * depth * (time(tile_rows, vectors, whole) + time(tile_rows, rest, 1))

    def results(tile_rows: int, vectors: int) -> float:
        return keys * time(tile_rows, vectors, -(-width // (vectors * lanes)))

    choices = [
        (scores(tile_rows, first) + results(tile_rows, second), tile_rows, first, second)
        for tile_rows, first, second in itertools.product(range(1, min(rows, 16) + 1), (1, 2, 3, 4), (1, 2, 3, 4))
        if all(n == 1 or fits(cpu, RegisterTile(tile_rows, n)) for n in (first, second))
    ]
    return [AttentionTiles(tile_rows, first * lanes, second * lanes) for _, tile_rows, first, second in sorted(choices)]


@dataclass(frozen=True)
class AttentionParts(te.ComputeParts):
    """The steps of ``attention``, in order, and what they read.

    With ``tiles`` keys and values are ``packed`` and the ``query`` is scaled; without them they are taken as they lie.
    ``addend`` is the mask with more columns, where it needs them.
    """

    products: te.Tensor
    scores: te.Tensor
    maximum: te.Tensor
    powers: te.Tensor
    total: te.Tensor
    inverse: te.Tensor
    context: te.Tensor
    addend: te.Tensor | None = None
    packed: tuple[te.Tensor, ...] = ()
    query: te.Tensor | None = None
    tiles: AttentionTiles | None = None


@autotvm.register_topi_compute("attention.x86")
def attention(
    cfg: ConfigSpace,
    query: te.Tensor,
    key: te.Tensor,
    value: te.Tensor,
    mask: te.Tensor | None = None,
    scale: float = 1.0,
) -> te.Tensor:
    """``softmax(query @ key.T * scale + mask) @ value`` for every matrix of a batch.

    Parameters
    ----------
    query : (batch, heads, rows, depth)
    key, value : (batch, heads, keys, depth) and (batch, heads, keys, width)
    mask : added to the scores; broadcasts to (batch, heads, rows, keys)

    Returns
    -------
    (batch, rows, heads, width): what the layer after the heads reads as one row for each query.
    """
    batch, heads, rows, depth = get_const_tuple(query.shape)
    keys, width = get_const_tuple(value.shape)[2:]
    if not all(isinstance(n, int) for n in (batch, heads, rows, depth, keys, width)):
        raise InvalidShapeError("attention: the shapes have to be known while compiling")
    if rows < measured().attention.few_rows:
        return _attend(query, key, value, mask, scale, None)
    candidates = attention_tiles(machine(), rows, keys, depth, width, max(8, dt.bits(query.dtype)))[:TUNING_CANDIDATES]
    cfg.define_knob("tiles", [(t.rows, t.score_block, t.value_block) for t in candidates])
    tiles = candidates[0] if cfg.is_fallback else AttentionTiles(*cfg["tiles"].val)
    block = tiles.score_block

    def pack(b: PrimExpr, h: PrimExpr, c: PrimExpr, k: PrimExpr, j: PrimExpr) -> PrimExpr:
        row = c * block + j
        return _within(row, keys, block, key(b, h, row, k), 0.0)

    factor = scale if mask is not None else scale * _LOG2_E
    scaled = te.compute(
        query.shape,
        lambda *i: query(*i) * ops.const(factor, query.dtype),
        name="attention_query",
        tag="attention_query",
    )
    packed = te.compute(
        (batch, heads, -(-keys // block), depth, block), pack, name="attention_keys", tag="attention_keys"
    )
    values = te.compute(
        (batch, heads, -(-width // tiles.value_block), keys, tiles.value_block),
        lambda b, h, c, t, j: _within(
            c * tiles.value_block + j, width, tiles.value_block, value(b, h, t, c * tiles.value_block + j), 0.0
        ),
        name="attention_values",
        tag="attention_values",
    )
    return _attend(scaled, packed, values, mask, scale, (tiles, keys, width))


def _within(index: PrimExpr, extent: int, block: int, element: PrimExpr, otherwise: float) -> PrimExpr:
    """``element``, or ``otherwise`` where the last block goes beyond ``extent``."""
    if extent % block == 0:
        return element
    return tir.if_then_else(tir.likely(index < extent), element, ops.const(otherwise, element.dtype))


def _attend(
    query: te.Tensor,
    key: te.Tensor,
    value: te.Tensor,
    mask: te.Tensor | None,
    scale: float,
    packing: tuple[AttentionTiles, int, int] | None,
) -> te.Tensor:
    """The steps of the kernel; with ``packing`` (tiles, keys, width) the inputs are packed and the query is scaled."""
    batch, heads, rows, depth = get_const_tuple(query.shape)
    block = packing[0].score_block if packing else 1
    keys, width = packing[1:] if packing else get_const_tuple(value.shape)[2:]
    dtype = query.dtype
    columns = _rounded(keys, vector_lanes(dtype)) if packing else keys
    in_query = packing is not None and mask is None  # the factor from exp to powers of 2
    k = te.reduce_axis((0, depth), name="k")

    def product(b: PrimExpr, h: PrimExpr, i: PrimExpr, t: PrimExpr) -> Any:
        other = key(b, h, tir.indexdiv(t, block), k.var, tir.indexmod(t, block)) if packing else key(b, h, t, k.var)
        return te.sum(query(b, h, i, k.var) * other, axis=k)

    products = te.compute((batch, heads, rows, columns), product, name="attention_products", tag="attention_products")
    addend = _padded_mask(mask, keys, columns)

    def score(*i: PrimExpr) -> PrimExpr:
        found = products(*i) if packing else products(*i) * ops.const(scale, dtype)
        if addend is not None:
            return found + addend(*(0 if ops.is_const_int(n, 1) else v for v, n in zip(i, addend.shape, strict=True)))
        if columns == keys:
            return found
        return found + tir.Select(i[-1] < keys, ops.const(0.0, dtype), ops.const(float("-inf"), dtype))

    scores = te.compute(products.shape, score, name="attention_scores", tag="attention_scores")
    t = te.reduce_axis((0, columns), name="t")
    maximum = te.compute(
        (batch, heads, rows),
        lambda *i: greatest_number(scores(*i, t.var), axis=t),
        name="attention_maximum",
        tag="attention",
    )

    def power(*i: PrimExpr) -> PrimExpr:
        # The rounding error of a product here shows in small powers only: nothing in a sum.
        exponent = scores(*i) - maximum(*i[:-1])
        return _power_of_two(exponent if in_query else exponent * ops.const(_LOG2_E, dtype))

    powers = te.compute(scores.shape, power, name="attention_powers", tag="attention")
    u, v = te.reduce_axis((0, columns), name="u"), te.reduce_axis((0, keys), name="v")
    total = te.compute(
        (batch, heads, rows), lambda *i: te.sum(powers(*i, u.var), axis=u), name="attention_total", tag="attention"
    )

    def weighted(b: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        if not packing:
            return te.sum(powers(b, h, i, v.var) * value(b, h, v.var, j), axis=v)
        size = packing[0].value_block
        return te.sum(powers(b, h, i, v.var) * value(b, h, tir.indexdiv(j, size), v.var, tir.indexmod(j, size)), axis=v)

    inverse = te.compute(
        (batch, heads, rows), lambda *i: ops.const(1.0, dtype) / total(*i), name="attention_inverse", tag="attention"
    )
    context = te.compute(
        (batch, heads, rows, _rounded(width, packing[0].value_block) if packing else width),
        weighted,
        name="attention_context",
        tag="attention",
    )
    parts = AttentionParts(
        products, scores, maximum, powers, total, inverse, context, addend if addend is not mask else None
    )
    if packing:
        parts = replace(parts, packed=(key, value), query=query, tiles=packing[0])
    return te.compute(
        (batch, rows, heads, width),
        lambda b, i, h, j: context(b, h, i, j) * inverse(b, h, i),
        name="attention",
        tag="attention_output",
        parts=parts,
    )


def _power_of_two(x: PrimExpr) -> PrimExpr:
    """2**x for x that is not positive; 0 below the smallest normal number."""
    if x.dtype != "float32" or machine().has("avx512f"):  # which has instructions for both ends of this
        return tir.exp2(x)
    least = ops.const(-127.0, x.dtype)
    x = tir.Select(least > x, least, x)  # keeps NaN
    shifted = x + ops.const(_ROUND, x.dtype)
    fraction = x - (shifted - ops.const(_ROUND, x.dtype))
    *lower, highest = 1.0, *EXP2_POLYNOMIAL
    power = ops.const(highest, x.dtype)
    for coefficient in reversed(lower):
        power = power * fraction + ops.const(coefficient, x.dtype)
    exponent = tir.reinterpret("int32", shifted) << 23
    return power * tir.reinterpret(x.dtype, exponent)


def _padded_mask(mask: te.Tensor | None, keys: int, columns: int) -> te.Tensor | None:
    """The mask with minus infinity for the columns that are no keys."""
    if mask is None or columns == keys:
        return mask
    one = ops.is_const_int(mask.shape[-1], 1)

    def body(*i: PrimExpr) -> PrimExpr:
        return _within(i[-1], keys, columns, mask(*i[:-1], 0 if one else i[-1]), float("-inf"))

    return te.compute((*mask.shape[:-1], columns), body, name="attention_mask", tag="attention_mask")


@autotvm.register_topi_schedule("attention.x86")
def schedule_attention(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule ``attention``: the matrices of the batch in parallel, or their tiles of rows where there are few."""
    threads = measured().threads
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = find_anchor(tensors, lambda op: op.tag == "attention_output")
    assert anchor is not None
    inline_injective(s, tensors)
    if any(constant_extent(a) == 0 for a in anchor.axis):
        return s
    parts = anchor.parts
    assert isinstance(parts, AttentionParts)
    out, tiles = s[anchor], parts.tiles
    b, i, h, j = anchor.axis
    work = 2 * (constant_extent(j) or 1) * _count(parts.products)
    matrices = (constant_extent(b) or 1) * (constant_extent(h) or 1)
    few = matrices < threads.least_tasks and tiles is not None
    group = _group(constant_extent(i) or 1, tiles.rows, few) if tiles else 1
    rows, inner = out.split(i, factor=group)
    cut = (constant_extent(i) or 0) % group != 0
    if cut:
        _cut(out, rows, inner)
    out.reorder(*([rows, b, h] if few else [b, h, rows]), inner, j)
    split_vector(out, j, constant_extent(j), vector_lanes(anchor.output(0).dtype))
    matrix = h if few else out.fuse(b, h)
    row = h if few else rows
    if work > threads.least_products:
        out.parallel(rows if few else matrix)
    _schedule_rows(s, parts, out, row, group, cut)
    for tensor in parts.packed:
        _schedule_packed(s, tensor, None if few else (out, matrix))
    if tensors[0].op is not anchor:
        schedule_injective_from_existing(s, tensors[0])
    return s


def _group(rows: int, tile: int, few: bool) -> int:
    """Rows that take a block of keys or values together, in tiles of ``tile``; ``few``: groups run in parallel."""
    attention = measured().attention
    threads = measured().threads
    tiles = max(1, rows // tile)
    return tile * min(attention.group_tiles, max(1, tiles // threads.least_tasks) if few else tiles)


def _cut(stage: te.Stage, *loops: IterVar) -> None:
    """Let the loops end where the rows or columns do, with code of its own for the last iteration of the first."""
    for loop in loops:
        stage.pragma(loop, "loop_partition_hint", 1)


def _count(tensor: te.Tensor) -> int:
    count = 1
    for extent in get_const_tuple(tensor.shape):
        count *= extent
    return count


def _rounded(extent: int, block: int) -> int:
    return -(-extent // block) * block


def _schedule_packed(s: te.Schedule, tensor: te.Tensor, at: tuple[te.Stage, IterVar] | None) -> None:
    """Pack keys or values: for each matrix when its turn comes, or all of them first, in parallel."""
    stage = s[tensor]
    axes = list(stage.op.axis)
    vectors, lanes = split_vector(stage, axes[-1], constant_extent(axes[-1]), vector_lanes(tensor.dtype))
    if stage.op.tag == "attention_values":
        stage.reorder(*axes[:2], axes[3], axes[2])  # rows are read whole
    else:  # keys, the last block of which may be partial; TransposeLoads turns them in registers
        stage.pragma(axes[2], "loop_partition_hint", 1)
        if lanes is not None and lanes is not vectors:
            stage.reorder(*axes[:3], vectors, axes[3], lanes)
    if at is not None:
        stage.compute_at(*at)
    elif _count(tensor) > measured().threads.least_products // 4:
        stage.parallel(stage.leaf_iter_vars[2])


def _schedule_rows(s: te.Schedule, parts: AttentionParts, out: te.Stage, row: IterVar, group: int, cut: bool) -> None:
    """The steps for one group of rows; ``cut``: the last one has fewer."""
    products, scores, total, tiles = parts.products, parts.scores, parts.total, parts.tiles
    lanes = vector_lanes(scores.dtype)
    if parts.query is None:
        s[products].compute_at(out, row)
        reduce_in_lanes(s, products, sum_registers())
    else:
        query = s[parts.query]
        query.compute_at(out, row)
        if cut:
            _cut(query, query.op.axis[2])
        split_vector(query, query.op.axis[-1], constant_extent(query.op.axis[-1]), lanes)
    s[parts.context].compute_at(out, row)
    _schedule_context(s, parts.context, tiles, lanes, cut)
    s[parts.inverse].compute_at(out, row)
    split_vector(s[parts.inverse], s[parts.inverse].op.axis[-1], group, lanes)
    for step in (total, parts.powers, parts.maximum, scores):
        s[step].compute_at(out, row)
        if cut and step is not scores:
            _cut(s[step], s[step].op.axis[2])
        column = s[step].op.axis[-1]
        if step is total or step is parts.maximum:
            reduce_in_lanes(s, step, 2)
        elif step is scores and tiles is not None:
            _schedule_scores(s, scores, products, tiles, cut)
        else:
            split_vector(s[step], column, constant_extent(column), lanes)
    if parts.addend is not None:
        addend = s[parts.addend]
        addend.compute_at(out, row)
        column = addend.op.axis[-1]
        blocks, vector = split_vector(addend, column, constant_extent(column), lanes)
        if vector is not None and blocks is not vector:
            addend.pragma(blocks, "loop_partition_hint", 1)


def _schedule_scores(s: te.Schedule, scores: te.Tensor, products: te.Tensor, tiles: AttentionTiles, cut: bool) -> None:
    stage, lanes = s[scores], vector_lanes(scores.dtype)
    b, h, i, t = stage.op.axis
    blocks, column = stage.split(t, factor=tiles.score_block)
    tile_rows, i = stage.split(i, factor=tiles.rows)
    vector, column = stage.split(column, factor=lanes)
    stage.reorder(b, h, blocks, tile_rows, i, vector, column)
    if (constant_extent(t) or 0) % tiles.score_block:  # the last block has fewer vectors
        _cut(stage, blocks)
    if cut:  # written out, a tile of the last group is whole, partial or not there
        stage.unroll(tile_rows)
    unroll_and_vectorize(stage, [i, vector], column)
    tile = s[products]
    tile.set_scope("local")
    tile.compute_at(stage, tile_rows)
    b, h, i, column = tile.op.axis
    vector, column = tile.split(column, factor=lanes)
    tile.reorder(b, h, tile.op.reduce_axis[0], i, vector, column)
    unroll_and_vectorize(tile, [i, vector], column)


def _schedule_context(s: te.Schedule, context: te.Tensor, tiles: AttentionTiles | None, lanes: int, cut: bool) -> None:
    stage = s[context]
    b, h, i, j = stage.op.axis
    if tiles is None:
        blocks, vector = split_vector(stage, j, constant_extent(j), lanes)
        if vector is not None:
            outer = [] if blocks is vector else [blocks]
            stage.reorder(b, h, i, *outer, stage.op.reduce_axis[0], vector)
        return
    sums = s.cache_write(context, "local")
    stage = s[context]
    b, h, i, j = stage.op.axis
    blocks, column = stage.split(j, factor=tiles.value_block)
    tile_rows, i = stage.split(i, factor=tiles.rows)
    stage.reorder(b, h, blocks, tile_rows, i, column)
    if cut:
        stage.unroll(tile_rows)
    unroll_and_vectorize(stage, [i], column)
    tile = s[sums]
    tile.compute_at(stage, tile_rows)
    b, h, i, column = tile.op.axis
    tile.reorder(b, h, tile.op.reduce_axis[0], i, column)
    unroll_and_vectorize(tile, [i], column)
