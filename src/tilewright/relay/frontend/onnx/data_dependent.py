"""Results whose size depends on values: selected elements are counted, moved to the front, and the rest is cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.dynamic import FAR, counted, first, integer, runtime_extent, vector
from tilewright.relay.type_infer import infer_expr

if TYPE_CHECKING:
    from tilewright.relay.frontend.onnx.context import NodeContext


def places_of(chosen: RelayExpr) -> RelayExpr:
    """Return the indices of the true elements of a vector, rising: (n,) int64, n unknown."""
    chosen = infer_expr(relay_op.cast(chosen, "int64"))
    size = runtime_extent(chosen, 0)
    ends = relay_op.cumsum(chosen, axis=0, dtype="int64")
    count = relay_op.sum(chosen, axis=[0], keepdims=True)
    # each chosen place goes to the number of those before it, the others behind all
    target = relay_op.where(relay_op.greater(chosen, integer(0)), relay_op.subtract(ends, integer(1)), size)
    slots = relay_op.zeros(relay_op.reshape(relay_op.add(size, integer(1)), newshape=(1,)), "int64")
    moved = relay_op.scatter(slots, target, counted(size), axis=0)
    return first(moved, count)


def non_zero(ctx: Any, data: RelayExpr) -> RelayExpr:
    """Return coordinates of the elements that are not 0: (rank, n) int64."""
    rank, dtype = ctx.rank(data), ctx.dtype(data)
    zero = const(np.zeros((), dtype), dtype)
    flat = relay_op.reshape(relay_op.not_equal(data, zero), newshape=(-1,))
    rest = places_of(flat)
    if not rank:
        return first(relay_op.expand_dims(rest, axis=0), vector([0]))
    rows = []
    for axis in reversed(range(rank)):
        extent = runtime_extent(data, axis)
        rows.append(relay_op.floor_mod(rest, extent) if axis else rest)
        rest = relay_op.floor_divide(rest, extent)
    return relay_op.stack(rows[::-1], axis=0)


def suppressed(ctx: NodeContext, boxes: RelayExpr, scores: RelayExpr) -> RelayExpr:
    """Return the result of NonMaxSuppression: rows (batch, class, box) of the kept boxes, (n, 3) int64, n unknown."""
    dtype = ctx.dtype(scores)
    limit = ctx.input(2) if ctx.has_input(2) else integer(0)
    # More than there can be is as good; a negative limit is none at all, where Relay takes it for no limit.
    limit = relay_op.cast(relay_op.clip(relay_op.cast(limit, "int64"), 0, float(FAR)), "int32")
    share = relay_op.cast(ctx.input(3), ctx.dtype(boxes)) if ctx.has_input(3) else const(0.0, ctx.dtype(boxes))
    least = relay_op.cast(ctx.input(4), dtype) if ctx.has_input(4) else const(-np.inf, dtype)
    if ctx.attr("center_point_box", 0):
        centre, size = relay_op.split(boxes, 2, axis=2)
        half = relay_op.multiply(size, const(0.5, ctx.dtype(boxes)))
        boxes = relay_op.concatenate([relay_op.subtract(centre, half), relay_op.add(centre, half)], axis=2)
    one = [infer_expr(relay_op.reshape(v, newshape=(1,))) for v in (limit, share, least)]
    rows, count = relay_op.vision.all_class_non_max_suppression(boxes, scores, one[0], one[1], one[2])
    return first(rows, count)


def different(ctx: NodeContext, data: RelayExpr) -> list[RelayExpr]:
    """Return the result of Unique without an axis: distinct elements (n,), first indices, inverse indices, and
    counts.
    """
    flat = relay_op.reshape(data, newshape=(-1,))
    values, places, inverse, count, counts = relay_op.unique(flat, bool(ctx.attr("sorted", 1)), return_counts=True)
    number = relay_op.cast(count, "int64")
    kept = [first(x, number) for x in (values, places, counts)]
    whole: list[RelayExpr] = [relay_op.cast(x, "int64") for x in (kept[1], inverse, kept[2])]
    return [kept[0], *whole][: ctx.num_outputs]
