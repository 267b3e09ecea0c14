"""Results whose size depends on values: selected elements are counted, moved to the front, and the rest is cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import ConverterContext
from tilewright.relay.frontend.dynamic import FAR, first, integer, vector
from tilewright.relay.op.transform.data_dependent import coordinates, places_of
from tilewright.relay.type_infer import infer_expr

if TYPE_CHECKING:
    from tilewright.relay.frontend.onnx.context import NodeContext


def non_zero(ctx: ConverterContext, data: RelayExpr) -> RelayExpr:
    """Return coordinates of the elements that are not 0: (rank, n) int64."""
    type_ = infer_expr(data).checked_type
    assert isinstance(type_, TensorType)
    if type_.shape:
        return relay_op.stack(coordinates(data, type_), axis=0)
    chosen = relay_op.not_equal(data, const(np.zeros((), type_.dtype), type_.dtype))
    places = places_of(relay_op.reshape(chosen, newshape=(-1,)))
    return first(relay_op.expand_dims(places, axis=0), vector([0]))


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
