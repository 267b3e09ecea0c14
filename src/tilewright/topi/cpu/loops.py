"""Loops that several schedules share: vectors, register blocks, windows, and sums in lanes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.autotvm.task.choices import choose
from tilewright.te.operation import producer_loads
from tilewright.tir.expr import IterVar, ProducerLoad
from tilewright.tir.visitor import free_vars
from tilewright.topi.cpu.common import (
    constant_extent,
    machine,
    measured,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.model.tiling import even_tile
from tilewright.topi.utils import get_const_tuple


def split_vector(
    stage: te.Stage, axis: IterVar, extent: int | None, lanes: int, unknown: bool = False
) -> tuple[IterVar, IterVar | None]:
    """Split ``axis`` by the vector width and vectorize the inner loop; return (outer, inner or None when scalar).

    An extent that is no multiple of the width gets a remainder loop: the outer loop is marked for partitioning. So does
    an unknown extent if ``unknown`` is set.
    """
    if extent is None and unknown:
        outer, inner = stage.split(axis, factor=lanes)
        stage.vectorize(inner)
        stage.pragma(outer, "loop_partition_hint", 1)
        return outer, inner
    if extent is None or extent < 2:
        return axis, None
    lanes = choose("vector_lanes", [max(1, lanes // 2), lanes, 2 * lanes], lanes)
    if extent < lanes:
        width = 1 << (extent.bit_length() - 1)
        if width != extent:  # 3, 5, 6, 7: too short for a loop of vectors
            return axis, None
        stage.vectorize(axis)
        return axis, axis
    outer, inner = stage.split(axis, factor=lanes)
    stage.vectorize(inner)
    if extent % lanes:
        stage.pragma(outer, "loop_partition_hint", 1)
    return outer, inner


def fuse_all(stage: te.Stage, axes: Sequence[IterVar]) -> IterVar | None:
    """Fuse the axes into one; return None when there are none."""
    if not axes:
        return None
    return axes[0] if len(axes) == 1 else stage.fuse(*axes)


def _fuse_rows(stage: te.Stage) -> tuple[IterVar, int | None]:
    """Fuse the innermost reduction axes that run through contiguous memory; return the loop and its extent."""
    loads = producer_loads(stage.op.body[0].source)
    axes, extents = list(stage.op.reduce_axis), [constant_extent(a) for a in stage.op.reduce_axis]

    def in_order(load: ProducerLoad, count: int) -> bool:
        reduced = [axis.var for axis in axes[-count:]]
        if not any(v in reduced for index in load.indices for v in free_vars(index)):
            return True
        shape = get_const_tuple(load.producer.shape)[1 - count :]
        indices = list(load.indices[-count:])
        together = len(indices) == count and all(i is v for i, v in zip(indices, reduced, strict=True))
        return together and list(shape) == extents[1 - count :]

    count = 1
    while count < len(axes) and None not in extents and all(in_order(load, count + 1) for load in loads):
        count += 1
    fused = fuse_all(stage, axes[-count:])
    assert fused is not None
    return fused, extents[-1] if count == 1 else math.prod(e or 0 for e in extents[-count:])


def sum_registers() -> int:
    """Return how many vectors of partial results a long sum takes: enough to overlap, leaving registers for loads."""
    return choose("sum_registers", [1, 2, 4, 8], 4 if machine().vector_registers >= 16 else 2)


def reduce_in_lanes(s: te.Schedule, tensor: te.Tensor, registers: int = 1, unknown: bool = False) -> te.Stage | None:
    """Reduce the innermost reduction axes of ``tensor`` into vectors of partial results, combined at the end.

    Before and after, for a sum of a row of 40 elements with 8 lanes::

        for k in 0..40: B += A[k]
        ->
        for k.outer in 0..5: P[0:8] += A[k.outer*8 : k.outer*8 + 8]
        Q[0:4] = P[0:4] + P[4:8];  R[0:2] = Q[0:2] + Q[2:4];  B = R[0] + R[1]

    A tail shorter than a vector gets a loop of its own. ``registers`` vectors are used where the extent allows them.
    Returns the stage of P; None for rows shorter than a vector, or not known to be longer unless ``unknown``, and for
    reductions of several values, which stay as they are.
    """
    stage = s[tensor]
    lanes = vector_lanes(tensor.dtype)
    if len(stage.op.body) > 1:
        return None
    single = len(stage.op.reduce_axis) == 1
    axis, extent = _fuse_rows(stage)
    open_ended = extent is None and unknown and single
    if open_ended:
        registers = 1
    elif extent is None or extent < lanes:
        return None
    while registers > 1 and extent is not None and (extent % (lanes * registers) and extent < 16 * lanes * registers):
        registers //= 2
    width = lanes * registers
    outer_axes = len(stage.op.axis)
    _, part = stage.split(axis, factor=width)
    partial = s.rfactor(tensor, part, factor_axis=outer_axes)
    partial_stage = s[partial]
    partial_stage.set_scope("local")
    lane_axis = partial_stage.op.axis[-1]
    order = [a for a in partial_stage.leaf_iter_vars if a is not lane_axis]
    partial_stage.reorder(*order, lane_axis)
    if extent is None or extent % width:
        partial_stage.pragma(order[-1], "loop_partition_hint", 1)
    if registers > 1:
        register, lane_axis = partial_stage.split(lane_axis, factor=lanes)
        partial_stage.unroll(register)
    partial_stage.vectorize(lane_axis)
    stages = [partial_stage, *_combine_by_halves(s, tensor, width)]
    if outer_axes:
        for each in stages:
            each.compute_at(s[tensor], s[tensor].op.axis[-1])
    return partial_stage


def _combine_by_halves(s: te.Schedule, tensor: te.Tensor, width: int) -> list[te.Stage]:
    """Combine ``width`` partial results as a tree of ever shorter vectors; return the stages of the tree."""
    stages = []
    while width > 2 and width % 2 == 0:
        width //= 2
        _, inner = s[tensor].split(s[tensor].op.reduce_axis[0], factor=width)
        half = s[s.rfactor(tensor, inner, factor_axis=len(s[tensor].op.axis))]
        half.set_scope("local")
        lane_axis = half.op.axis[-1]
        order = [a for a in half.leaf_iter_vars if a is not lane_axis]
        half.reorder(*order, lane_axis)
        half.unroll(order[-1])
        half.vectorize(lane_axis)
        stages.append(half)
    s[tensor].unroll(s[tensor].op.reduce_axis[0])
    return stages


def schedule_padding(s: te.Schedule, op: Any) -> None:
    """Schedule padding as a stage of its own: parallel over all but the last two dimensions, vectorised
    over the last.
    """
    stage = s[op]
    axes = list(op.axis)
    extent = constant_extent(axes[-1])
    lanes = vector_lanes(op.output(0).dtype)
    if extent is not None and extent > 1 and (extent % lanes == 0 or extent in (2, 4, 8)):
        stage.vectorize(axes[-1] if extent <= lanes else stage.split(axes[-1], factor=lanes)[1])
    outer = fuse_all(stage, axes[:-2])
    if outer is not None and worth_threads(op):
        stage.parallel(outer)


def unroll_and_vectorize(stage: te.Stage, unrolled: list[IterVar], vector: IterVar) -> None:
    """Unroll the loops ``unrolled`` and run ``vector`` as one vector: register blocking, as by unroll-and-jam."""
    for axis in unrolled:
        stage.unroll(axis)
    stage.vectorize(vector)


def schedule_register_tiles(s: te.Schedule, anchor: Any, parallel: bool) -> None:
    """Accumulate a reduction in register tiles: vectors along its last dimension, a few positions of the one before."""
    result = anchor.output(0)
    extent, columns = (constant_extent(a) for a in anchor.axis[-2:])
    most = machine().vector_registers // 2
    tile = choose("tile_before", [n for n in (1, 2, 3, 4, 6, 8, 12, 16) if n <= most], even_tile(extent or 1, most))
    sums = s[s.cache_write(result, "local")]
    stage = s[result]
    *outer, before, last = stage.op.axis
    blocks, vector = split_vector(stage, last, columns, vector_lanes(result.dtype))
    tiles, within = stage.split(before, factor=tile)
    if extent is None or extent % tile:
        stage.pragma(tiles, "loop_partition_hint", 1)
    loops = [*outer, tiles, *([] if blocks is vector else [blocks])]
    stage.reorder(*loops, within, *([] if vector is None else [vector]))
    if vector is None:
        stage.reorder(*outer, tiles, blocks, within)
    stage.unroll(within)
    sums.compute_at(stage, loops[-1])
    *inner, tile_axis, row = sums.op.axis
    sums.reorder(*inner, *sums.op.reduce_axis, tile_axis, row)
    sums.unroll(tile_axis)
    if vector is not None:
        sums.vectorize(row)
    fused = fuse_all(stage, outer or [tiles])
    if fused is not None and parallel:
        stage.parallel(fused)


def schedule_windows(out: te.Stage, accumulators: te.Stage, tile: tuple[int, int], parallel: bool) -> None:
    """Schedule the windows of packed data (n, c, oh, ow, block): a tile of columns accumulates in registers.

    ``accumulators`` reduces over the window's rows and columns, ``out`` stores a tile. Threads take bands of rows.
    ``tile`` is a band's rows and a tile's columns. Tiles whose windows reach into the padding get loops of their own.
    """
    accumulate_windows(accumulators, out, tile_windows(out, tile, parallel)[1])


def accumulate_windows(stage: te.Stage, at: te.Stage, loop: IterVar, unroll_window: bool = True) -> None:
    """Reduce a tile of packed windows (n, c, oh, ow, block) in registers, inside ``loop`` of ``at``.

    The tile's columns are unrolled; with ``unroll_window`` the window's columns too, and its rows, while that makes no
    more elements than the record's ``most_taps``.
    """
    convolution = measured().convolution
    stage.set_scope("local")
    stage.compute_at(at, loop)
    n, c, oh, ow, block = stage.op.axis
    stage.reorder(n, c, oh, *stage.op.reduce_axis, ow, block)
    unrolled, taps = [ow], 1
    for axis in reversed(stage.op.reduce_axis):
        taps *= constant_extent(axis) or convolution.most_taps
        if not unroll_window or taps > convolution.most_taps:
            break
        unrolled.insert(0, axis)
    unroll_and_vectorize(stage, unrolled, block)


def tile_windows(out: te.Stage, tile: tuple[int, int], parallel: bool) -> tuple[IterVar, IterVar, IterVar]:
    """Cut a result (n, c, oh, ow, block) into bands of rows for threads and tiles of columns.

    Returns the loops over a band's rows, a row's tiles and a tile's columns.
    """
    n, c, oh, ow, block = out.op.axis
    tiles, column = out.split(ow, factor=tile[1])
    out.pragma(tiles, "loop_partition_hint", 1)
    band, row = out.split(oh, factor=tile[0])
    # Threads take bands of rows, as in the convolutions before and after: what they read, they wrote themselves.
    out.reorder(n, band, c, row, tiles, column, block)
    fused = out.fuse(n, band, c)
    if parallel:
        out.parallel(fused)
    unroll_and_vectorize(out, [column], block)
    return row, tiles, column
