"""Scaled dot-product attention in one kernel: scores, softmax and the weighted sum of values of a few rows at a time.

For every matrix of the batch, keys are packed as blocks of columns and values are laid out in rows. Then, for each tile
of query rows::

    scores = query @ key.T * scale + mask      # register tiles, as in a dense layer; the rows stay in the first cache
    powers = 2 ** ((scores - max(scores)) * log2(e))
    out    = (powers @ values) / sum(powers)

so that the scores of a whole matrix are never in memory. A few rows (decoding) take keys and values as they lie.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from tilewright import autotvm, te, tir
from tilewright.autotvm.space import ConfigSpace
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.features import CpuFeatures
from tilewright.tir.expr import IterVar
from tilewright.topi.cpu.common import (
    PARALLEL_PRODUCTS,
    TUNING_CANDIDATES,
    constant_extent,
    create_schedule,
    find_anchor,
    inline_injective,
    machine,
    output_tensors,
    reduce_in_lanes,
    split_vector,
    vector_lanes,
)
from tilewright.topi.cpu.conv2d import unroll_and_vectorize
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.tiling import RegisterTile, fits, tile_cost
from tilewright.topi.utils import InvalidShapeError, get_const_tuple

_FEW_ROWS = 4  # below, packing the keys takes longer than it saves
_MIN_TASKS = 8  # parallel iterations that occupy the cores
_LOG2_E = 1.4426950408889634


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

    def time(tile_rows: int, vectors: int, columns: int, inner: int) -> float:
        padded = -(-columns // (vectors * lanes)) * vectors * lanes
        return padded * inner * tile_cost(rows, RegisterTile(tile_rows, vectors))

    choices = [
        (time(tile_rows, first, keys, depth) + time(tile_rows, second, width, keys), tile_rows, first, second)
        for tile_rows, first, second in itertools.product(range(1, min(rows, 16) + 1), (1, 2, 3, 4), (1, 2, 3, 4))
        if all(n == 1 or fits(cpu, RegisterTile(tile_rows, n)) for n in (first, second))
    ]
    return [AttentionTiles(tile_rows, first * lanes, second * lanes) for _, tile_rows, first, second in sorted(choices)]


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
    if rows < _FEW_ROWS:
        return _attend(query, key, value, mask, scale, None)
    candidates = attention_tiles(machine(), rows, keys, depth, width, max(8, dt.bits(query.dtype)))[:TUNING_CANDIDATES]
    cfg.define_knob("tiles", [(t.rows, t.score_block, t.value_block) for t in candidates])
    tiles = candidates[0] if cfg.is_fallback else AttentionTiles(*cfg["tiles"].val)
    block, padded = tiles.score_block, _rounded(width, tiles.value_block)

    def pack(b: PrimExpr, h: PrimExpr, c: PrimExpr, k: PrimExpr, j: PrimExpr) -> PrimExpr:
        row = c * block + j
        return _within(row, keys, block, key(b, h, row, k), 0.0)

    scaled = te.compute(
        query.shape, lambda *i: query(*i) * ops.const(scale, query.dtype), name="attention_query", tag="attention_query"
    )
    packed = te.compute(
        (batch, heads, -(-keys // block), depth, block), pack, name="attention_keys", tag="attention_keys"
    )
    values = te.compute(
        (batch, heads, keys, padded),
        lambda b, h, t, j: _within(j, width, tiles.value_block, value(b, h, t, j), 0.0),
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
    columns, dtype = _rounded(keys, block), query.dtype
    k = te.reduce_axis((0, depth), name="k")

    def product(b: PrimExpr, h: PrimExpr, i: PrimExpr, t: PrimExpr) -> Any:
        other = key(b, h, tir.indexdiv(t, block), k.var, tir.indexmod(t, block)) if packing else key(b, h, t, k.var)
        return te.sum(query(b, h, i, k.var) * other, axis=k)

    products = te.compute((batch, heads, rows, columns), product, name="attention_products", tag="attention_products")
    addend = _padded_mask(mask, keys, columns, block)

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
        (batch, heads, rows), lambda *i: te.max(scores(*i, t.var), axis=t), name="attention_maximum", tag="attention"
    )
    # Powers of 2 take fewer steps than exp. The product's rounding error shows in small powers only: nothing in a sum.
    log2_e = ops.const(_LOG2_E, dtype)
    powers = te.compute(
        scores.shape,
        lambda *i: tir.exp2((scores(*i) - maximum(*i[:-1])) * log2_e),
        name="attention_powers",
        tag="attention",
    )
    u, v = te.reduce_axis((0, columns), name="u"), te.reduce_axis((0, keys), name="v")
    total = te.compute(
        (batch, heads, rows), lambda *i: te.sum(powers(*i, u.var), axis=u), name="attention_total", tag="attention"
    )
    context = te.compute(
        (batch, heads, rows, get_const_tuple(value.shape)[3]),
        lambda b, h, i, j: te.sum(powers(b, h, i, v.var) * value(b, h, v.var, j), axis=v),
        name="attention_context",
        tag="attention",
    )
    steps = {
        "packed": (key, value) if packing else (),
        "query": query if packing else None,
        "addend": addend if addend is not mask else None,
        "tiles": packing[0] if packing else None,
        "steps": (products, scores, maximum, powers, total, context),
    }
    return te.compute(
        (batch, rows, heads, width),
        lambda b, i, h, j: context(b, h, i, j) / total(b, h, i),
        name="attention",
        tag="attention_output",
        attrs=steps,
    )


def _padded_mask(mask: te.Tensor | None, keys: int, columns: int, block: int) -> te.Tensor | None:
    """The mask with minus infinity for the columns that are no keys."""
    if mask is None or columns == keys:
        return mask
    one = ops.is_const_int(mask.shape[-1], 1)

    def body(*i: PrimExpr) -> PrimExpr:
        return _within(i[-1], keys, block, mask(*i[:-1], 0 if one else i[-1]), float("-inf"))

    return te.compute((*mask.shape[:-1], columns), body, name="attention_mask", tag="attention_mask")


@autotvm.register_topi_schedule("attention.x86")
def schedule_attention(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule ``attention``: the matrices of the batch in parallel, or their tiles of rows where there are few."""
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = find_anchor(tensors, lambda op: op.tag == "attention_output")
    assert anchor is not None
    inline_injective(s, tensors)
    if any(constant_extent(a) == 0 for a in anchor.axis):
        return s
    out, tiles = s[anchor], anchor.attrs["tiles"]
    b, i, h, j = anchor.axis
    products, *_ = anchor.attrs["steps"]
    work = 2 * (constant_extent(j) or 1) * _count(products)
    rows, inner = out.split(i, factor=tiles.rows if tiles else 1)
    if tiles and (constant_extent(i) or 0) % tiles.rows:
        out.pragma(rows, "loop_partition_hint", 1)
    matrices = (constant_extent(b) or 1) * (constant_extent(h) or 1)
    few = matrices < _MIN_TASKS and tiles is not None
    out.reorder(*([rows, b, h] if few else [b, h, rows]), inner, j)
    split_vector(out, j, constant_extent(j), vector_lanes(anchor.output(0).dtype))
    matrix = h if few else out.fuse(b, h)
    row = h if few else rows
    if work > PARALLEL_PRODUCTS:
        out.parallel(rows if few else matrix)
    _schedule_rows(s, anchor, out, row)
    for tensor in anchor.attrs["packed"]:
        _schedule_packed(s, tensor, None if few else (out, matrix))
    if tensors[0].op is not anchor:
        schedule_injective_from_existing(s, tensors[0])
    return s


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
    if len(axes) == 5:  # keys, the last block of which may be partial; TransposeLoads turns them in registers
        stage.pragma(axes[2], "loop_partition_hint", 1)
        if lanes is not None and lanes is not vectors:
            stage.reorder(*axes[:3], vectors, axes[3], lanes)
    if at is not None:
        stage.compute_at(*at)
    elif _count(tensor) > PARALLEL_PRODUCTS // 4:
        stage.parallel(axes[2])


def _schedule_rows(s: te.Schedule, anchor: Any, out: te.Stage, row: IterVar) -> None:
    """The steps for one tile of rows."""
    products, scores, maximum, powers, total, context = anchor.attrs["steps"]
    tiles = anchor.attrs["tiles"]
    lanes = vector_lanes(scores.dtype)
    if tiles is None:
        s[products].compute_at(out, row)
        reduce_in_lanes(s, products, 4 if machine().vector_registers >= 16 else 2)
    else:
        s[anchor.attrs["query"]].compute_at(out, row)
        last = s[anchor.attrs["query"]].op.axis[-1]
        split_vector(s[anchor.attrs["query"]], last, constant_extent(last), lanes)
    s[context].compute_at(out, row)
    _schedule_context(s, context, tiles, lanes)
    for step in (total, powers, maximum, scores):
        s[step].compute_at(out, row)
        column = s[step].op.axis[-1]
        if step is total or step is maximum:
            reduce_in_lanes(s, step, 2)
        elif step is scores and tiles is not None:
            _schedule_scores(s, scores, products, tiles)
        else:
            split_vector(s[step], column, constant_extent(column), lanes)
    addend = anchor.attrs["addend"]
    if addend is not None:
        s[addend].compute_at(out, row)
        column = s[addend].op.axis[-1]
        blocks, vector = split_vector(s[addend], column, constant_extent(column), lanes)
        if vector is not None and blocks is not vector:
            s[addend].pragma(blocks, "loop_partition_hint", 1)


def _schedule_scores(s: te.Schedule, scores: te.Tensor, products: te.Tensor, tiles: AttentionTiles) -> None:
    stage = s[scores]
    b, h, i, t = stage.op.axis
    blocks, column = stage.split(t, factor=tiles.score_block)
    stage.reorder(b, h, blocks, i, column)
    unroll_and_vectorize(stage, [i], column)
    tile = s[products]
    tile.set_scope("local")
    tile.compute_at(stage, blocks)
    b, h, i, column = tile.op.axis
    tile.reorder(b, h, tile.op.reduce_axis[0], i, column)
    unroll_and_vectorize(tile, [i], column)


def _schedule_context(s: te.Schedule, context: te.Tensor, tiles: AttentionTiles | None, lanes: int) -> None:
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
    stage.reorder(b, h, blocks, i, column)
    unroll_and_vectorize(stage, [i], column)
    tile = s[sums]
    tile.compute_at(stage, blocks)
    b, h, i, column = tile.op.axis
    tile.reorder(b, h, tile.op.reduce_axis[0], i, column)
    unroll_and_vectorize(tile, [i], column)
