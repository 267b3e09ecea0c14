"""Schedules of element-wise, broadcasting and data-moving computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.autotvm.task.choices import choose
from tilewright.ir import dtype as dt
from tilewright.ir.prim_expr import Var
from tilewright.te.schedule.stage import AttachType, Fuse
from tilewright.tir.expr import IterVar
from tilewright.tir.transform.transpose_loads import TILE_BYTES
from tilewright.topi.cpu.accesses import Reads, fusable_suffix, in_order, repeats, turned_loop, turns, worth_storing
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    element_count,
    evaluates_functions,
    inline_injective,
    machine,
    measured,
    operations,
    output_tensors,
    vector_lanes,
)
from tilewright.topi.cpu.loops import fuse_all, split_vector
from tilewright.topi.cpu.strides import Nest
from tilewright.topi.utils import largest_divisor

_MOST_PARTS = 4  # of a row of packed channels that are written out


def _joined_loops(stage: te.Stage, nest: Nest) -> list[tuple[IterVar, int]]:
    """Fuse the axes of ``stage`` to the loops of ``nest``; return them with their extents."""
    parts: list[IterVar] = []
    for axis, extents in zip(stage.op.axis, nest.cuts, strict=True):
        inner: list[IterVar] = []
        for extent in reversed(extents[1:]):
            axis, part = stage.split(axis, factor=extent)
            inner.append(part)
        parts += [axis, *reversed(inner)]
    loops = []
    for loop in nest.loops:
        joined = fuse_all(stage, parts[: loop.parts])
        assert joined is not None
        loops.append((joined, loop.extent))
        parts = parts[loop.parts :]
    return loops


def _schedule_rows(stage: te.Stage, nest: Nest, dtype: str, parallel: bool) -> None:
    """Vectorise the innermost loop; rows shorter than a vector are unrolled to fill one."""
    *outer, (row, extent) = _joined_loops(stage, nest)
    lanes = vector_lanes(dtype)
    blocks, _ = split_vector(stage, row, extent, lanes)
    if extent > lanes:
        outer.append((blocks, -(-extent // lanes)))
    elif outer and extent * outer[-1][1] <= 2 * lanes:
        stage.unroll(outer.pop()[0])
    elif (regular := _regular_around_computed(nest)) is not None:
        loop, times = outer[regular]
        uses = largest_divisor(times, measured().movement.index_uses)
        loop, inner = stage.split(loop, factor=uses)
        outer[regular] = (loop, times // uses)
        stage.reorder(*(each for each, _ in outer[regular:]), inner, blocks)
        stage.unroll(inner)
    if parallel:
        _share_out(stage, outer)


def _regular_around_computed(nest: Nest) -> int | None:
    """Return the number of a loop of fixed strides just outside an innermost loop whose indices are computed."""
    *outer, _ = nest.loops
    if not outer or None not in outer[-1].strides:
        return None
    return max((k for k, loop in enumerate(outer) if loop.extent > 1 and None not in loop.strides), default=None)


def _share_out(stage: te.Stage, loops: Sequence[tuple[IterVar, int]]) -> None:
    """Run the outermost of ``loops`` in parallel, fused until there are enough iterations.

    The innermost one stays apart if it can: fused, it would recompute the others' indices in every iteration.
    """
    movement = measured().movement
    many = choose("iterations_to_share", [2, 8, 32, 128], movement.many_rows)
    count, iterations = 0, 1
    while count < len(loops) and iterations < (many if count < len(loops) - 1 else movement.least_rows):
        iterations *= loops[count][1]
        count += 1
    fused = fuse_all(stage, [loop for loop, _ in loops[:count]])
    if fused is not None:
        stage.parallel(fused)


def _schedule_turned(stage: te.Stage, nest: Nest, dtype: str, parallel: bool) -> None:
    """Tile the loop that reads memory in order and the innermost one, which writes it in order.

    Long loops take square tiles, which use whole cache lines. A short one, such as the packed channels of a layout, is
    split by the rows that registers transpose at once, so that rows of the result are written in order.
    """
    movement = measured().movement
    turned = turned_loop(nest)
    assert turned is not None
    *others, (row, width) = _joined_loops(stage, nest)
    rows, height = others.pop(turned)
    lanes = min(vector_lanes(dtype), 1 << (width.bit_length() - 1))
    blocks, vector = split_vector(stage, row, width, lanes)
    within = [] if vector is None else [vector]
    columns = [] if vector is blocks else [blocks]
    square = choose("square", [4, 8, 16, 32, 64], movement.square)
    if height > movement.short:
        outer, rows = stage.split(rows, factor=square)
        if height % square:
            stage.pragma(outer, "loop_partition_hint", 1)
        others.append((outer, -(-height // square)))
    else:
        read_bytes = max(height, movement.square) * lanes * dt.nbytes(dtype)  # by a vector of columns
        if columns and width % lanes == 0:
            chunk = largest_divisor(width // lanes, max(1, machine().l1_bytes // 2 // read_bytes))
            outer, blocks = stage.split(blocks, factor=chunk)
            # Inside of the other loops: threads that share all rows of a result fetch the ends of each other's pieces.
            others.append((outer, width // lanes // chunk))
            columns = [blocks]
        tile = max(movement.turned, TILE_BYTES // dt.nbytes(dtype))
        if height % tile == 0:
            outer, rows = stage.split(rows, factor=tile)
            others.append((outer, height // tile))
    stage.reorder(*(loop for loop, _ in others), *columns, rows, *within)
    if parallel:
        _share_out(stage, others)


def _schedule_strided(stage: te.Stage, reads: Reads, dtype: str, parallel: bool) -> bool:
    """Schedule an operation that reads memory in strides that its axes do not show; return False if there is none."""
    nest = reads.nest()
    if nest is None:
        return False
    if turns(nest):
        _schedule_turned(stage, nest, dtype, parallel)
        return True
    known = _product([constant_extent(a) for a in stage.op.axis[-fusable_suffix(stage.op) :]])
    better = known != nest.loops[-1].extent or _regular_around_computed(nest) is not None
    if in_order(nest) and nest.exact and not reads.bordered and better and not repeats(nest, stage.op):
        _schedule_rows(stage, nest, dtype, parallel)
        return True
    return False


def schedule_injective_from_existing(sch: te.Schedule, out: te.Tensor, parallel: bool = True) -> te.Schedule:
    """Fuse, parallelise and vectorise the loops of ``out`` in the schedule ``sch``.

    Trailing axes that all inputs share in full become one contiguous loop, which is vectorised; the axes before
    them become one loop, which runs in parallel when there is enough work. Transpositions work in squares.
    """
    movement = measured().movement
    threads = measured().threads
    axes = list(sch[out].op.axis)
    extents = [constant_extent(a) for a in axes]
    if not axes or any(e == 0 for e in extents):
        return sch
    stage = sch[out]
    work = _product(extents)
    reads = Reads.of(stage.op, {each.op for each in sch.stages if each.attach_type is not AttachType.INLINE})
    if (
        work is not None
        and work >= movement.square_work
        and _schedule_strided(stage, reads, out.dtype, parallel and work >= threads.least_work)
    ):
        return sch
    if work is None and _schedule_unpacked(stage, reads, out.dtype, parallel):
        return sch
    count = fusable_suffix(stage.op)
    period = reads.period() if count == 1 else None
    if period is not None and period * (2 if work is None else 1) >= vector_lanes(out.dtype):
        axes[-1:] = stage.split(axes[-1], factor=period)
        extents[-1:] = [(extents[-1] or 0) // period, period]
        if work is None and (extents[-2] or 0) <= _MOST_PARTS:
            stage.unroll(axes[-2])  # which tensor a part is of is known then
    lead = len(axes) - count
    inner = fuse_all(stage, axes[lead:])
    inner_extent = _product(extents[lead:])
    for _ in range(1 if len(axes) == len(stage.op.axis) else 2):
        rows = _product(extents[: lead - 1])
        if lead > 1 and (rows is None or rows >= movement.many_rows):
            lead -= 1  # a loop of its own: the indices of what is broadcast along it are computed once
    outer = fuse_all(stage, axes[:lead])
    outer_extent = _product(extents[:lead])
    assert inner is not None
    if inner.var in reads.bordered and not evaluates_functions(operations([out])):
        blocks, vector = inner, None  # rows without their border are for LLVM: it copies them, at any alignment
    else:
        blocks, vector = split_vector(stage, inner, inner_extent, vector_lanes(out.dtype), unknown=True)
    if not reads.bordered or choose("cut_border", [True, False], True):
        _partition_border(stage, reads.bordered, inner, outer, blocks)
    if not parallel or not choose("threads", [True, False], work is None or work >= threads.least_work):
        return sch
    if outer is not None and inner_extent is None:  # fused, the two would divide each index by what is not known
        shared: IterVar | None = blocks if outer_extent == 1 else outer
    else:
        shared = _parallel_axis(stage, outer, outer_extent, blocks, vector)
    if shared is not None:
        stage.parallel(shared)
    return sch


def _schedule_unpacked(stage: te.Stage, reads: Reads, dtype: str, parallel: bool) -> bool:
    """Schedule one image of unknown extents that is read from packed channels, so that each is read once; return
    False for any other operation.

    Channels of a block go inside of the vectors of a row: all of a block's read the same cache lines.
    """
    axes = list(stage.op.axis)
    packed = {axis: block for axis in axes[:-1] if (block := reads.block_of(axis)) is not None}
    if len(packed) != 1:
        return False
    (channel, block), *_ = packed.items()
    place = axes.index(channel)
    if (
        place + 2 >= len(axes)
        or constant_extent(axes[-1]) is not None
        or any(constant_extent(axis) != 1 for axis in axes[:place])
    ):
        return False
    outer, within = stage.split(channel, factor=block)
    blocks, vector = split_vector(stage, axes[-1], None, vector_lanes(dtype), unknown=True)
    assert vector is not None
    rows = axes[place + 1 : -1]
    stage.reorder(*axes[:place], *rows, outer, blocks, within, vector)
    if parallel:
        stage.parallel(rows[0])
    return True


def _partition_border(
    stage: te.Stage, bordered: set[Var], inner: IterVar, outer: IterVar | None, blocks: IterVar
) -> None:
    """Partition the border off the loops, except ``outer``, which may be parallel and must stay one loop."""
    for iv in stage.leaf_iter_vars:
        if iv is not outer and (iv.var in bordered or (iv is blocks and inner.var in bordered)):
            stage.pragma(iv, "loop_partition_hint", 1)


def _parallel_axis(
    stage: te.Stage, outer: IterVar | None, outer_extent: int | None, blocks: IterVar, vector: IterVar | None
) -> IterVar | None:
    if outer is not None and (outer_extent is None or outer_extent >= measured().movement.least_rows):
        return outer
    if blocks is vector:  # the whole inner loop is one vector
        return outer
    if outer is None:
        return blocks
    return stage.fuse(outer, blocks)


def _product(extents: list[int | None]) -> int | None:
    known = [e for e in extents if e is not None]
    return math.prod(known) if len(known) == len(extents) else None


def schedule_injective(outs: Any) -> te.Schedule:
    """Schedule injective outputs: producers inlined, loops fused, run in parallel and vectorised."""
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    computes = [op for op in dict.fromkeys(t.op for t in tensors) if isinstance(op, te.ComputeOp)]
    kept = worth_storing(computes[0]) if len(computes) == 1 else []
    inline_injective(s, tensors, kept)
    for op in computes:
        schedule_injective_from_existing(s, op.output(0))
    for op in kept:
        inside = _store_inside(s, op, computes[0], kept)
        schedule_injective_from_existing(s, op.output(0), parallel=not inside)
    return s


def _store_inside(s: te.Schedule, op: Any, reader: Any, kept: Sequence[Any]) -> bool:
    """Compute a stored input of ``reader`` inside its outermost loop, piece by piece; return whether that was done.

    It is done when every iteration reads a piece of its own that fits the second-level cache, as in resizing, where
    each plane is first interpolated along its rows.
    """
    nest = Reads.of(op, set(kept)).nest()
    if nest is not None and turns(nest):  # squares reach over pieces
        return False
    loop = s[reader].leaf_iter_vars[0]
    lead = _leading_axes(s[reader], loop)
    own = [tuple(indices[: len(lead)]) for tensor, indices in Reads.of(reader, set(kept)).reads if tensor.op is op]
    rounds = math.prod(constant_extent(axis) or 0 for axis in lead)
    tensor = op.output(0)
    size = (element_count(tensor) or 0) * dt.nbytes(tensor.dtype)
    if not lead or not own or any(each != tuple(axis.var for axis in lead) for each in own):
        return False
    fits = measured().movement.least_rows <= rounds and size <= rounds * machine().l2_bytes // 2
    if not choose("store_inside", [True, False], fits):
        return False
    s[op].compute_at(s[reader], loop)
    return True


def _leading_axes(stage: te.Stage, loop: IterVar) -> list[IterVar]:
    """Return the leading axes of a stage that ``loop`` fuses and nothing else; none if ``loop`` covers others too."""
    joined = {each.fused: (each.outer, each.inner) for each in stage.relations if isinstance(each, Fuse)}
    pending, found = [loop], list[IterVar]()
    while pending:
        each = pending.pop()
        if each in joined:
            pending += reversed(joined[each])
        else:
            found.append(each)
    return found if found == list(stage.op.axis[: len(found)]) else []


schedule_elemwise = schedule_injective
schedule_broadcast = schedule_injective
schedule_concatenate = schedule_injective
