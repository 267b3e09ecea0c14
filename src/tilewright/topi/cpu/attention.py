"""Schedule of attention: groups of rows in register blocks, keys and values packed."""

from __future__ import annotations

import math
from typing import Any

from tilewright import autotvm, te
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.tir.expr import IterVar
from tilewright.topi.cpu.accesses import runs_along
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    inline_injective,
    machine,
    measured,
    output_tensors,
    shares_evenly,
    typical_extent,
    vector_lanes,
)
from tilewright.topi.cpu.compute.attention import AttentionParts
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.loops import reduce_in_lanes, split_vector, sum_registers, unroll_and_vectorize
from tilewright.topi.cpu.model.attention import AttentionTiles
from tilewright.topi.kinds import ATTENTION_OUTPUT, ATTENTION_VALUES


@autotvm.register_topi_schedule("attention.x86")
def schedule_attention(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule ``attention``: the matrices of the batch in parallel, or their tiles of rows where there are few."""
    threads = measured().threads
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = ATTENTION_OUTPUT.among(tensors)
    inline_injective(s, tensors)
    if any(constant_extent(a) == 0 for a in anchor.axis):
        return s
    parts = anchor.parts
    assert isinstance(parts, AttentionParts)
    out, tiles = s[anchor], parts.tiles
    b, i, h, j = anchor.axis
    work = 2 * (constant_extent(j) or 1) * _count(parts.products)
    height = constant_extent(i)
    matrices = (constant_extent(b) or 1) * (constant_extent(h) or 1)
    few = (matrices < threads.least_tasks or not shares_evenly(matrices)) and tiles is not None
    group = _group(typical_extent(i.dom.extent), tiles.rows, few) if tiles else 1
    rows, inner = out.split(i, factor=group)
    cut = height is None or height % group != 0
    if cut:
        _partition(out, rows, inner)
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
    """Return how many rows use a block of keys or values together, in tiles of ``tile``; ``few``: groups run in
    parallel.
    """
    attention = measured().attention
    threads = measured().threads
    tiles, most = max(1, rows // tile), max(threads.least_tasks, machine().cores)
    return tile * min(attention.group_tiles, max(1, tiles // most) if few else tiles)


def _partition(stage: te.Stage, *loops: IterVar) -> None:
    """Mark the loops for partitioning, so that the last rows or columns get code of their own."""
    for loop in loops:
        stage.pragma(loop, "loop_partition_hint", 1)


def _count(tensor: te.Tensor) -> int:
    return math.prod(typical_extent(extent) for extent in tensor.shape)


def _schedule_packed(s: te.Schedule, tensor: te.Tensor, at: tuple[te.Stage, IterVar] | None) -> None:
    """Pack keys or values: each matrix before its use, or all of them first, in parallel."""
    stage = s[tensor]
    axes = list(stage.op.axis)
    vectors, lanes = split_vector(stage, axes[-1], constant_extent(axes[-1]), vector_lanes(tensor.dtype))
    if ATTENTION_VALUES(stage.op) and not runs_along(stage.op, axes[3].var):
        stage.reorder(*axes[:2], axes[3], axes[2])  # rows are read whole
    else:  # columns, of which the last block may be partial, lie apart: TransposeLoads turns them in registers
        stage.pragma(axes[2], "loop_partition_hint", 1)
        if lanes is not None and lanes is not vectors:
            stage.reorder(*axes[:3], vectors, axes[3], lanes)
            stage.pragma(vectors, "loop_partition_hint", 1)
    if at is not None:
        stage.compute_at(*at)
    elif _count(tensor) > measured().threads.least_products // 4:
        stage.parallel(stage.leaf_iter_vars[2])


def _schedule_rows(s: te.Schedule, parts: AttentionParts, out: te.Stage, row: IterVar, group: int, cut: bool) -> None:
    """Schedule the steps for one group of rows; ``cut``: the last group has fewer rows."""
    products, scores, total, tiles = parts.products, parts.scores, parts.total, parts.tiles
    lanes = vector_lanes(scores.dtype)
    if parts.query is None:
        s[products].compute_at(out, row)
        _schedule_plain_products(s, products)
    else:
        query = s[parts.query]
        query.compute_at(out, row)
        if cut:
            _partition(query, query.op.axis[2])
        columns, lane = split_vector(query, query.op.axis[-1], constant_extent(query.op.axis[-1]), lanes)
        if lane is not None and lane is not columns and runs_along(query.op, query.op.axis[2].var):
            query.reorder(*query.op.axis[:2], columns, query.op.axis[2], lane)  # for registers to turn
    s[parts.context].compute_at(out, row)
    _schedule_context(s, parts.context, tiles, lanes, cut)
    s[parts.inverse].compute_at(out, row)
    split_vector(s[parts.inverse], s[parts.inverse].op.axis[-1], group, lanes)
    for step in (total, parts.powers, parts.maximum, scores):
        s[step].compute_at(out, row)
        if cut and step is not scores:
            _partition(s[step], s[step].op.axis[2])
        column = s[step].op.axis[-1]
        if step is total or step is parts.maximum:
            reduce_in_lanes(s, step, 2, unknown=True)
        elif step is scores and tiles is not None:
            _schedule_scores(s, scores, products, tiles, cut)
        else:
            split_vector(s[step], column, constant_extent(column), lanes, unknown=True)
    if parts.addend is not None:
        addend = s[parts.addend]
        addend.compute_at(out, row)
        column = addend.op.axis[-1]
        blocks, vector = split_vector(addend, column, constant_extent(column), lanes, unknown=True)
        if vector is not None and blocks is not vector:
            addend.pragma(blocks, "loop_partition_hint", 1)


def _schedule_plain_products(s: te.Schedule, products: te.Tensor) -> None:
    """Schedule products of a few rows with unpacked keys: dot products, or vectors of keys that are neighbours."""
    stage = s[products]
    b, h, i, t = stage.op.axis
    (k,) = stage.op.reduce_axis
    if not runs_along(stage.op, t.var):
        reduce_in_lanes(s, products, sum_registers())
        return
    vectors, lane = split_vector(stage, t, constant_extent(t), vector_lanes(products.dtype), unknown=True)
    if lane is not None:
        stage.reorder(b, h, i, *([] if vectors is lane else [vectors]), k, lane)


def _schedule_scores(s: te.Schedule, scores: te.Tensor, products: te.Tensor, tiles: AttentionTiles, cut: bool) -> None:
    stage, lanes = s[scores], vector_lanes(scores.dtype)
    b, h, i, t = stage.op.axis
    blocks, column = stage.split(t, factor=tiles.score_block)
    tile_rows, i = stage.split(i, factor=tiles.rows)
    vector, column = stage.split(column, factor=lanes)
    stage.reorder(b, h, blocks, tile_rows, i, vector, column)
    if (constant_extent(t) or 0) % tiles.score_block:  # the last block has fewer vectors
        _partition(stage, blocks)
    _cut_tiles(stage, tile_rows, cut)
    unroll_and_vectorize(stage, [i, vector], column)
    tile = s[products]
    tile.set_scope("local")
    tile.compute_at(stage, tile_rows)
    b, h, i, column = tile.op.axis
    vector, column = tile.split(column, factor=lanes)
    tile.reorder(b, h, tile.op.reduce_axis[0], i, vector, column)
    unroll_and_vectorize(tile, [i, vector], column)


def _cut_tiles(stage: te.Stage, tiles: IterVar, cut: bool) -> None:
    """Unroll or partition the loop over tiles when the last group has fewer rows (``cut``).

    Each tile of that group is then known to be whole, partial or empty.
    """
    if not cut:
        return
    if constant_extent(stage.op.axis[2]) is None:
        _partition(stage, tiles)
    else:
        stage.unroll(tiles)


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
    _cut_tiles(stage, tile_rows, cut)
    unroll_and_vectorize(stage, [i], column)
    tile = s[sums]
    tile.compute_at(stage, tile_rows)
    b, h, i, column = tile.op.axis
    tile.reorder(b, h, tile.op.reduce_axis[0], i, column)
    unroll_and_vectorize(tile, [i], column)
