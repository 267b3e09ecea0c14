"""Schedules of reductions."""

from __future__ import annotations

import math
from typing import Any

from tilewright import te
from tilewright.autotvm.task.choices import choose
from tilewright.te.operation import producer_loads
from tilewright.tir.expr import IterVar, Reduce
from tilewright.tir.visitor import free_vars
from tilewright.topi import tag
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    machine,
    operations,
    output_tensors,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.injective import fusable_suffix, schedule_injective_from_existing
from tilewright.topi.cpu.loops import fuse_all, reduce_in_lanes, split_vector, sum_registers
from tilewright.topi.cpu.model.tiling import divisors_up_to


def is_reduction(op: Any) -> bool:
    """Return whether the operation reduces."""
    return isinstance(op, te.ComputeOp) and bool(op.reduce_axis)


def innermost_is_reduced(op: Any) -> bool:
    """Return whether, in every reduced tensor, neighbours in memory are reduced together."""
    body = op.body[0]
    assert isinstance(body, Reduce)
    reduced = {iv.var for iv in op.reduce_axis}
    last = [load.indices[-1] for load in producer_loads(body.source) if load.indices]
    return bool(last) and all(any(v in reduced for v in free_vars(index)) for index in last)


def schedule_row_reduction(
    s: te.Schedule, tensor: te.Tensor, from_memory: bool = True, unknown: bool = False
) -> te.Stage | None:
    """Reduce contiguous rows into vectors of partial results; return their stage, or None.

    The loop over a row ``from_memory`` is not unrolled: LLVM would reorder the loads, and memory deliver them late.
    50257 dot products of 768 elements read at 72 instead of 93 % of the bandwidth, sums of 256 at 69 instead of 94 %.
    Short rows in a cache take 10 % less time unrolled. ``unknown``: rows of unknown lengths too.
    """
    partial = reduce_in_lanes(s, tensor, sum_registers(), unknown)
    if partial is not None and from_memory:
        partial.pragma(partial.op.reduce_axis[-1], "no_unroll")
    return partial


def _column_tile(extent: int, lanes: int, tasks: int) -> int:
    """Return how many columns to reduce side by side: vectors in half of the registers, but at least
    ``tasks`` tiles.
    """
    vectors = -(-extent // lanes)
    most = max(1, min(machine().vector_registers // 2, vectors // tasks))
    most = choose("columns_at_once", [1, 2, 4, 8, 16], most)
    if vectors <= most:
        return extent
    return lanes * (max(divisors_up_to(vectors, most)) if extent % lanes == 0 else most)


def schedule_column_reduction(stage: te.Stage, axes: list[IterVar], dtype: str, parallel: bool) -> IterVar | None:
    """Reduce a tile of columns, in registers, inside the reduction; return the loop to run in parallel.

    Columns are the output's last axes, as far as these are contiguous in the inputs. A step reads many bytes in a row,
    and vectors of sums do not wait for one another.
    """
    if not axes:
        return None
    known = [extent for a in axes if (extent := constant_extent(a)) is not None]
    if len(known) < len(axes):
        return fuse_all(stage, axes[:-1] if len(axes) > 2 else axes)
    lead = len(axes) - fusable_suffix(stage.op)
    outer, columns = axes[:lead], fuse_all(stage, axes[lead:])
    assert columns is not None
    extent, lanes, rows = math.prod(known[lead:]), vector_lanes(dtype), math.prod(known[:lead])
    tile = _column_tile(extent, lanes, -(-machine().cores // rows) if parallel else 1)
    block = None
    if tile < extent:
        block, columns = stage.split(columns, factor=tile)
    blocks, vector = split_vector(stage, columns, tile, lanes)
    inner = [blocks] if vector in (None, blocks) else [blocks, vector]
    stage.reorder(*outer, *([block] if block is not None else []), *stage.op.reduce_axis, *inner)
    if blocks is not vector:
        stage.unroll(blocks)
    if block is not None and extent % tile:
        stage.pragma(block, "loop_partition_hint", 1)  # it stays a loop of its own: else every tile would test its end
        return fuse_all(stage, outer) if rows >= machine().cores else block
    outer += [block] if block is not None else []
    return fuse_all(stage, outer[:-1] if len(outer) > 2 else outer)


def _schedule_root_reduction(s: te.Schedule, op: Any) -> None:
    """Schedule a reduction that is an output, or that cannot be computed inside its consumer."""
    tensor = op.output(0)
    stage = s[op]
    axes = list(op.axis)
    if any(constant_extent(a) == 0 for a in (*axes, *op.reduce_axis)):
        return
    if innermost_is_reduced(op):
        schedule_row_reduction(s, tensor)
        stage = s[tensor]
        outer = stage.op.axis[0] if stage.op.axis else None
    else:
        outer = schedule_column_reduction(stage, axes, tensor.dtype, worth_threads(op))
    if outer is not None and worth_threads(op) and outer in stage.leaf_iter_vars:
        stage.parallel(outer)


def schedule_reduce(outs: Any) -> te.Schedule:
    """Schedule reductions with injective computes around them.

    Producers are inlined. Element-wise consumers, such as a mean's division, are inlined into one another, and the
    last has loops of its own. Serves normalisations too, whose last step reads the reduced values.
    """
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    ops = list(operations(tensors))
    for op in ops:
        if isinstance(op, te.ComputeOp) and tag.is_injective(op.tag) and op not in s.outputs:
            s[op].compute_inline()
    for op in ops:
        if is_reduction(op):
            _schedule_root_reduction(s, op)
        elif isinstance(op, te.ComputeOp) and op in s.outputs:
            schedule_injective_from_existing(s, op.output(0))
    return s
