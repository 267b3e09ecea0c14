"""Results whose size depends on values: what is chosen is counted, moved to the front, and cut off behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.dynamic import counted, integer, runtime_extent, vector
from tilewright.relay.type_infer import infer_expr

if TYPE_CHECKING:
    from tilewright.relay.frontend.onnx.context import NodeContext


def places_of(chosen: RelayExpr) -> RelayExpr:
    """The indices of the true elements of a vector, rising: (n,) int64, n unknown."""
    chosen = infer_expr(relay_op.cast(chosen, "int64"))
    size = runtime_extent(chosen, 0)
    ends = relay_op.cumsum(chosen, axis=0, dtype="int64")
    count = relay_op.sum(chosen, axis=[0], keepdims=True)
    # each chosen place goes to the number of those before it, the others behind all
    target = relay_op.where(relay_op.greater(chosen, integer(0)), relay_op.subtract(ends, integer(1)), size)
    room = relay_op.zeros(relay_op.reshape(relay_op.add(size, integer(1)), newshape=(1,)), "int64")
    moved = relay_op.scatter(room, target, counted(size), axis=0)
    return relay_op.strided_slice(moved, vector([0]), count, vector([1]))


def non_zero(ctx: NodeContext, data: RelayExpr) -> RelayExpr:
    """Coordinates of the elements that are not 0: (rank, n) int64."""
    rank, dtype = ctx.rank(data), ctx.dtype(data)
    zero = const(np.zeros((), dtype), dtype)
    flat = relay_op.reshape(relay_op.not_equal(data, zero), newshape=(-1,))
    rest = places_of(flat)
    if not rank:
        return relay_op.strided_slice(
            relay_op.expand_dims(rest, axis=0), vector([0]), vector([0]), vector([1]), axes=[0]
        )
    rows = []
    for axis in reversed(range(rank)):
        extent = runtime_extent(data, axis)
        rows.append(relay_op.floor_mod(rest, extent) if axis else rest)
        rest = relay_op.floor_divide(rest, extent)
    return relay_op.stack(rows[::-1], axis=0)
