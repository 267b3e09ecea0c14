"""Reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.dynamic import first, integer, runtime_extent
from tilewright.relay.frontend.onnx.context import NodeContext
from tilewright.relay.frontend.onnx.indices import checked_lengths
from tilewright.relay.frontend.onnx.registry import converter

Build = Callable[..., RelayExpr]


def _axes(ctx: NodeContext) -> Sequence[int] | None:
    """Return the axes from the attribute, or (newer opsets) from the second input; None means all."""
    given = ctx.attr("axes")
    if given is None:
        given = ctx.ints_or_none(1, "the axes")
    return None if not given else tuple(ctx.normalize_axis(a, ctx.rank(ctx.input(0))) for a in given)


def _reduce(ctx: NodeContext, build: Build, data: RelayExpr | None = None) -> RelayExpr:
    axes = _axes(ctx)
    data = ctx.input(0) if data is None else data
    if axes is None and ctx.attr("noop_with_empty_axes", 0):
        return data
    return build(data, axis=axes, keepdims=bool(ctx.attr("keepdims", 1)))


def _extremum(ctx: NodeContext, build: Build) -> RelayExpr:
    """Return a maximum or minimum; of booleans as of numbers."""
    data = ctx.input(0)
    dtype = ctx.dtype(data)
    if dt.is_bool(dtype):
        return relay_op.cast(_reduce(ctx, build, relay_op.cast(data, "uint8")), dtype)
    return _reduce(ctx, build)


@converter("ReduceMax")
def convert_reduce_max(ctx: NodeContext) -> RelayExpr:
    """Maximum."""
    return _extremum(ctx, relay_op.max)


@converter("ReduceMin")
def convert_reduce_min(ctx: NodeContext) -> RelayExpr:
    """Minimum."""
    return _extremum(ctx, relay_op.min)


def _register(op_type: str, build: Build) -> None:
    def convert(ctx: NodeContext) -> RelayExpr:
        return _reduce(ctx, build)

    converter(op_type, in_float32=True)(convert)


for _name, _build in (
    ("ReduceSum", relay_op.sum),
    ("ReduceMean", relay_op.mean),
    ("ReduceProd", relay_op.prod),
):
    _register(_name, _build)


@converter("ReduceL1")
def convert_l1(ctx: NodeContext) -> RelayExpr:
    """Sum of absolute values."""
    return _reduce(ctx, relay_op.sum, relay_op.abs(ctx.input(0)))


@converter("ReduceL2", in_float32=True)
def convert_l2(ctx: NodeContext) -> RelayExpr:
    """Square root of the sum of squares."""
    return ctx.through_float(ctx.input(0), lambda x: relay_op.sqrt(_reduce(ctx, relay_op.sum, relay_op.multiply(x, x))))


@converter("ReduceSumSquare", in_float32=True)
def convert_sum_square(ctx: NodeContext) -> RelayExpr:
    """Sum of squares."""
    return _reduce(ctx, relay_op.sum, relay_op.multiply(ctx.input(0), ctx.input(0)))


@converter("ReduceLogSum", in_float32=True)
def convert_log_sum(ctx: NodeContext) -> RelayExpr:
    """Logarithm of the sum."""
    return ctx.through_float(ctx.input(0), lambda x: relay_op.log(_reduce(ctx, relay_op.sum, x)))


@converter("ReduceLogSumExp", in_float32=True)
def convert_log_sum_exp(ctx: NodeContext) -> RelayExpr:
    """Logarithm of the sum of exponentials."""
    return ctx.through_float(ctx.input(0), lambda x: _reduce(ctx, relay_op.logsumexp, x))


def _arg(ctx: NodeContext, build: Any) -> RelayExpr:
    data = ctx.input(0)
    axis = ctx.normalize_axis(ctx.attr("axis", 0), ctx.rank(data))
    keepdims = bool(ctx.attr("keepdims", 1))
    dims = ctx.dims(data)
    if dims and is_number(dims[axis]) and dims[axis] == 0:
        others = [1 if i == axis else extent for i, extent in enumerate(ctx.shape(data)) if keepdims or i != axis]
        if 0 in others:
            return relay_op.zeros(others, "int64")
        ctx.fail(f"axis {axis} of {ctx.tensor_type(data)} has no elements, of which none is the extreme one")
    if dims and ctx.attr("select_last_index", 0):
        extent = integer(dims[axis]) if is_number(dims[axis]) else runtime_extent(data, axis)
        found = build(relay_op.reverse(data, axis=axis), axis=(axis,), keepdims=keepdims)
        return relay_op.subtract(relay_op.subtract(extent, integer(1)), relay_op.cast(found, "int64"))
    return relay_op.cast(build(data, axis=(axis,), keepdims=keepdims), "int64")


@converter("ArgMax")
def convert_argmax(ctx: NodeContext) -> RelayExpr:
    """Index of the maximum."""
    return _arg(ctx, relay_op.argmax)


@converter("ArgMin")
def convert_argmin(ctx: NodeContext) -> RelayExpr:
    """Index of the minimum."""
    return _arg(ctx, relay_op.argmin)


@converter("CumSum")
def convert_cumsum(ctx: NodeContext) -> RelayExpr:
    """Running sum along a constant axis."""
    return _cumulative(ctx, relay_op.cumsum)


@converter("CumProd", since=26)
def convert_cumprod(ctx: NodeContext) -> RelayExpr:
    """Running product along a constant axis."""
    return _cumulative(ctx, relay_op.cumprod)


def _cumulative(ctx: NodeContext, build: Callable[..., RelayExpr]) -> RelayExpr:
    data = ctx.input(0)
    axis = ctx.normalize_axis(int(ctx.scalar(1, "the axis")), ctx.rank(data))
    backwards = bool(ctx.attr("reverse", 0))
    if backwards:
        data = relay_op.reverse(data, axis=axis)
    out = build(data, axis=axis, exclusive=bool(ctx.attr("exclusive", 0)))
    return relay_op.reverse(out, axis=axis) if backwards else out


@converter("TopK", since=1)
def convert_topk(ctx: NodeContext) -> Any:
    """The k largest or smallest values and their indices."""
    data = ctx.input(0)
    axis = ctx.normalize_axis(ctx.attr("axis", -1), ctx.rank(data))
    smallest = not ctx.attr("largest", 1)
    if ctx.attr("k") is None and ctx.constant_if_known(1, "k") is None:
        return _topk_of_computed(ctx, data, axis, smallest)
    k = int(ctx.attr("k")) if ctx.attr("k") is not None else int(ctx.scalar(1, "k"))
    extent = ctx.dims(data)[axis]
    if k < 0 or (is_number(extent) and k > extent):
        ctx.fail(f"k is {k}, but axis {axis} has {extent} elements")
    if k == 0:  # of which Relay's topk takes all
        nothing = relay_op.strided_slice(data, [0], [0], axes=[axis])
        return [nothing, relay_op.cast(nothing, "int64")]
    return relay_op.topk(data, k=k, axis=axis, ret_type="both", is_ascend=smallest, dtype="int64")


def _topk_of_computed(ctx: NodeContext, data: RelayExpr, axis: int, smallest: bool) -> Any:
    """Sort all elements and slice the first k, where the model computes k."""
    given = checked_lengths(ctx, 1, data, axis, "k")
    count = relay_op.reshape(relay_op.cast(given, "int64"), newshape=(1,))
    whole = relay_op.topk(data, k=0, axis=axis, is_ascend=smallest, dtype="int64")
    return [first(whole[i], count, axis) for i in range(2)]
