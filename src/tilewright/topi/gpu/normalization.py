"""Schedules of normalizations: softmax, layer, L2 and instance normalization, in one kernel each.

    blockIdx.x, threadIdx.y: rows
      maximum, sum, mean, ...: all threads of the row together, the result in each one's registers
      threadIdx.x, then in steps: the elements of the row

A row is read once per statistic, from cache after the first time, and once to write the result; no intermediate goes to
memory. Rows that are not contiguous (a softmax over channels, say) have a thread each, so that neighbouring threads
read neighbouring elements.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.te.operation import producer_loads
from tilewright.tir.expr import IterVar
from tilewright.tir.visitor import free_vars
from tilewright.topi.gpu.common import at_root, block_axis, block_size, constant_extent, extent_of, is_reduction
from tilewright.topi.gpu.reduction import reduce_by_threads, row_thread_group, runs_along_rows
from tilewright.topi.kinds import L2_NORMALIZE, LAYER_NORM, SOFTMAXES, Kinds
from tilewright.topi.utils import as_list, operations

NORMALIZATIONS = Kinds(*SOFTMAXES, LAYER_NORM, L2_NORMALIZE)
_SHORT = 32  # elements of a row that one thread goes over


def bind_normalization(s: te.Schedule, anchor: Any, outs: Any) -> bool:
    """Schedule ``anchor``, the last step of a normalization, with all its steps; return False if it has
    another form.
    """
    rows = _row_axes(anchor)
    columns = [a for a in anchor.axis if a not in rows]
    steps = [op for op in operations(anchor) if isinstance(op, te.ComputeOp) and op is not anchor and at_root(s[op])]
    reductions = [op for op in steps if is_reduction(op) and _reads_as_rows(op, len(columns))]
    if not columns or not reductions or any(op in s.outputs for op in steps) or _is_empty(anchor):
        return False
    for op in steps:
        if not op.reduce_axis:
            s[op].compute_inline()
    last = _last(s, anchor, outs)
    if last is not anchor:
        places = [anchor.axis.index(a) for a in rows]
        s[anchor].compute_inline()
        rows = [last.axis[k] for k in places]
        columns = [a for a in last.axis if a not in rows]
    in_order = list(last.axis) == [*rows, *columns] and all(runs_along_rows(op) for op in reductions)
    size = extent_of(columns)
    if in_order and (size is None or size > _SHORT):
        _by_thread_groups(s, last, rows, columns, reductions)
    else:
        _by_threads(s, last, rows, columns, reductions)
    return True


def _by_thread_groups(
    s: te.Schedule, last: Any, rows: list[IterVar], columns: list[IterVar], reductions: list[Any]
) -> None:
    stage = s[last]
    thread_group = row_thread_group(extent_of(columns), extent_of(rows))
    thread = te.thread_axis((0, thread_group.lanes), "threadIdx.x")
    block, row = stage.split(stage.fuse(*rows), factor=thread_group.results)
    _, lane = stage.split(stage.fuse(*columns), factor=thread_group.lanes)
    stage.bind(block, block_axis())
    stage.bind(row, te.thread_axis((0, thread_group.results), "threadIdx.y"))
    stage.bind(lane, thread)
    for op in reductions:
        tensor = op.output(0)
        reduce_by_threads(s, tensor, thread, thread_group.lanes)
        s[tensor].set_scope("local")
        s[tensor].compute_at(stage, row)


def _by_threads(s: te.Schedule, last: Any, rows: list[IterVar], columns: list[IterVar], reductions: list[Any]) -> None:
    stage = s[last]
    stage.reorder(*rows, *columns)
    block, row = stage.split(stage.fuse(*rows), factor=block_size())
    stage.bind(block, block_axis())
    stage.bind(row, te.thread_axis("threadIdx.x"))
    for op in reductions:
        s[op].set_scope("local")
        s[op].compute_at(stage, row)


def _row_axes(anchor: Any) -> list[IterVar]:
    """Return the axes of ``anchor`` that index its rows: those by which it reads the reduced values."""
    used = set()
    for load in producer_loads(anchor.body):
        if _is_reduced(load.producer.op, len(anchor.axis)):
            used |= {v for index in load.indices for v in free_vars(index)}
    return [a for a in anchor.axis if a.var in used]


def _is_reduced(op: Any, rank: int) -> bool:
    """Return whether ``op`` has one value for each row: a reduction, or computed only from such values."""
    if not isinstance(op, te.ComputeOp) or len(op.axis) >= rank:
        return False
    return is_reduction(op) or (bool(op.input_tensors) and any(_is_reduced(t.op, rank) for t in op.input_tensors))


def _reads_as_rows(op: Any, rank: int) -> bool:
    return len(op.reduce_axis) == rank


def _last(s: te.Schedule, anchor: Any, outs: Any) -> Any:
    """Return the output that follows ``anchor`` element by element, or ``anchor``."""
    tensors = as_list(outs)
    if anchor in s.outputs or len(tensors) != 1:
        return anchor
    last = tensors[0].op
    extents = [[constant_extent(a) for a in op.axis] for op in (last, anchor)]
    return last if extents[0] == extents[1] and not last.reduce_axis and _reads_in_place(s, last, anchor) else anchor


def _reads_in_place(s: te.Schedule, last: Any, anchor: Any) -> bool:
    """Return whether each element of ``last`` reads only the element of ``anchor`` at its own index."""
    pending, seen = [last], {last}
    for op in pending:
        for load in producer_loads(op.body):
            source = load.producer.op
            if not isinstance(source, te.ComputeOp):
                continue
            reaches = source is anchor or any(o is anchor for o in operations(source))
            if reaches and [*load.indices] != [a.var for a in op.axis]:
                return False
            if reaches and source is not anchor and source not in seen:
                seen.add(source)
                pending.append(source)
    return True


def _is_empty(op: Any) -> bool:
    return any(constant_extent(axis) == 0 for axis in op.axis)
