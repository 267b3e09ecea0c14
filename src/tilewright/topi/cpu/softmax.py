"""Schedules of softmax, log_softmax and layer normalisation: one parallel loop over rows holds every pass."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.tir.expr import IterVar
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    find_anchor,
    inline_injective,
    measured,
    operations,
    output_tensors,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.loops import fuse_all, split_vector
from tilewright.topi.cpu.reduction import schedule_row_reduction
from tilewright.topi.kinds import SOFTMAXES


def _passes(anchor: Any) -> list[Any]:
    """Return the operations of the softmax below its last one, consumers first."""
    return [op for op in operations(anchor) if op is not anchor and op.name.startswith("T_softmax")]


def schedule_softmax(outs: Any) -> te.Schedule:
    """Schedule a softmax along any axis, with injective computes before and after it.

    All passes (maximum, exponentials, sum, division) of a row happen in one iteration of the parallel loop over rows,
    so the row stays in cache. A softmax along an inner axis vectorises over the elements after that axis.
    """
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = find_anchor(tensors, SOFTMAXES)
    if anchor is None:
        inline_injective(s, tensors)
        return s
    inline_injective(s, tensors)
    axis = int(anchor.attrs["axis"])
    last: Any = tensors[0].op
    same_shape = last is not anchor and [constant_extent(a) for a in last.axis] == [
        constant_extent(a) for a in anchor.axis
    ]
    stage_op = last if same_shape else anchor
    stage = s[stage_op]
    if any(constant_extent(a) == 0 for a in anchor.axis):
        return s
    row, row_axes = _split_rows(stage, list(stage_op.axis), axis)
    producers = [*([anchor] if same_shape else []), *_passes(anchor)]
    for op in producers:
        if row is not None:
            s[op].compute_at(stage, row)
        _vectorize_pass(s, op, axis)
    _vectorize_row(stage, row_axes)
    if row is not None and worth_threads(stage_op, measured().threads.least_work // 8):
        stage.parallel(row)
    if not same_shape and last is not anchor:
        schedule_injective_from_existing(s, tensors[0])
    return s


def _split_rows(stage: te.Stage, axes: list[IterVar], axis: int) -> tuple[IterVar | None, list[IterVar]]:
    """Fuse the axes before ``axis`` into the loop over rows; return it and the axes of a row."""
    return fuse_all(stage, axes[:axis]), axes[axis:]


def _vectorize_row(stage: te.Stage, axes: list[IterVar]) -> None:
    if axes:
        split_vector(stage, axes[-1], constant_extent(axes[-1]), vector_lanes(stage.op.output(0).dtype), unknown=True)


def _vectorize_pass(s: te.Schedule, op: Any, axis: int) -> None:
    """Vectorise one pass: an element-wise one along the row, a reduction by partial results or across the row."""
    stage = s[op]
    tensor = op.output(0)
    lanes = vector_lanes(tensor.dtype)
    inner = list(op.axis)[axis:]
    if not op.reduce_axis:
        if inner:
            split_vector(stage, inner[-1], constant_extent(inner[-1]), lanes, unknown=True)
        return
    if inner:  # the reduced axis is not the last: neighbouring columns reduce side by side
        _, vector = split_vector(stage, inner[-1], constant_extent(inner[-1]), lanes, unknown=True)
        if vector is not None:
            outer = [a for a in stage.leaf_iter_vars if a is not vector and a not in op.reduce_axis]
            stage.reorder(*outer, *op.reduce_axis, vector)
        return
    schedule_row_reduction(s, tensor, from_memory=False, unknown=True)
