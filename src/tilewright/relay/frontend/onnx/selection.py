"""Operators whose results have shapes that depend on the data: NonZero, Compress, Unique, NonMaxSuppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import DataNeededError, NodeContext, int_const, typed
from tilewright.relay.frontend.onnx.data_dependent import different, non_zero, suppressed
from tilewright.relay.frontend.onnx.host import run_on_host
from tilewright.relay.frontend.onnx.indices import checked_indices
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.op.transform.data_dependent import places_of


@converter("NonZero")
def convert_non_zero(ctx: NodeContext) -> Any:
    """Indices of the non-zero entries; of data that are not constant, on the virtual machine."""
    if ctx.importer.static or ctx.constant_or_none(ctx.input(0)) is not None:
        return convert_selection(ctx)
    return non_zero(ctx, ctx.input(0))


@converter("NonMaxSuppression", since=10)
def convert_non_max_suppression(ctx: NodeContext) -> Any:
    """The best of overlapping boxes; of boxes that are not constant, on the virtual machine."""
    given = [ctx.input(i) for i in range(2)]
    if ctx.importer.static or all(ctx.constant_or_none(x) is not None for x in given):
        return convert_selection(ctx)
    return suppressed(ctx, *given)


@converter("Unique", since=11)
def convert_unique(ctx: NodeContext) -> Any:
    """The distinct elements; of data that are not constant, along no axis, on the virtual machine."""
    data, axis = ctx.input(0), ctx.attr("axis")
    flat = axis is None or ctx.rank(data) == 1
    if ctx.importer.static or not flat or ctx.constant_or_none(data) is not None:
        return convert_selection(ctx)
    return different(ctx, data)


def convert_selection(ctx: NodeContext) -> Any:
    """The result for constant inputs; with others the operator runs on the host, between compiled parts."""
    values = [ctx.constant_or_none(ctx.input(i)) if ctx.has_input(i) else None for i in range(ctx.num_inputs)]
    if any(value is None and ctx.has_input(i) for i, value in enumerate(values)):
        raise DataNeededError(ctx.node)
    return [const(np.ascontiguousarray(v)) for v in run_on_host(ctx.node, values)][: ctx.num_outputs]


@converter("Compress", since=9)
def convert_compress(ctx: NodeContext) -> RelayExpr:
    """The entries along an axis, or of the flattened tensor, where the condition holds."""
    data, axis = ctx.input(0), ctx.attr("axis")
    keep = ctx.constant_or_none(ctx.input(1))
    if keep is None and ctx.importer.static:
        raise DataNeededError(ctx.node)
    if axis is None:
        data, axis = typed(relay_op.reshape(data, (-1,))), 0
    places = places_of(ctx.input(1)) if keep is None else int_const(np.flatnonzero(keep.reshape(-1)).tolist())
    axis = ctx.normalize_axis(axis, ctx.rank(data))
    return relay_op.take(data, checked_indices(ctx, 1, data, [axis], indices=places), axis=axis)
