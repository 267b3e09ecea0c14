"""Pad: by widths that are known, or computed when the model runs, over extents that may have names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import element, is_number
from tilewright.relay.frontend.dynamic import counted, integer, known_dims, runtime_extent, runtime_shape, vector
from tilewright.relay.frontend.onnx.context import NodeContext, int_const, typed
from tilewright.relay.frontend.onnx.indices import checked_shape
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.op.relations import dim_add

_MODES = ("constant", "reflect", "edge", "wrap")


@converter("Pad")
def convert_pad_attributes(ctx: NodeContext) -> RelayExpr:
    """Pad with attributes (before opset 11)."""
    pads = ctx.attr("paddings")  # in opset 1
    widths = ctx.required("pads") if pads is None else pads
    return _pad(ctx, widths, const(ctx.attr("value", 0.0), ctx.dtype(ctx.input(0))))


@converter("Pad", since=11)
def convert_pad(ctx: NodeContext) -> RelayExpr:
    """Pad: pads, value, axes."""
    dtype = ctx.dtype(ctx.input(0))
    places = _places(ctx, ctx.ints_or_none(3, "the axes"))
    if ctx.constant_if_known(1, "the pads") is not None:
        pads = ctx.ints(1, "the pads")
        return _pad(ctx, [0 if p < 0 else pads[p] for p in places], const(ctx.scalar(2, "the value", 0.0), dtype))
    fill = relay_op.reshape(ctx.input(2), newshape=()) if ctx.has_input(2) else const(np.zeros((), dtype), dtype)
    given = ctx.shape_elements(1)
    widths = [0 if p < 0 else None if given is None else given[p] for p in places]
    numbers = relay_op.cast(ctx.input(1), "int64")
    if -1 in places:
        chosen = [p if p >= 0 else len(places) - places.count(-1) for p in places]  # the 0 stands behind them
        numbers = relay_op.take(relay_op.concatenate([numbers, vector([0])], axis=0), vector(chosen), axis=0)
    elif ctx.has_input(3):
        numbers = relay_op.take(numbers, vector(places), axis=0)
    return _pad_by_values(ctx, numbers, widths, fill)


def _places(ctx: NodeContext, axes: Sequence[int] | None) -> list[int]:
    """Return where the widths of all axes stand among the given ones: those before, then those behind; of none -1."""
    rank = ctx.rank(ctx.input(0))
    chosen = list(range(rank)) if axes is None else [ctx.normalize_axis(a, rank) for a in axes]
    found = [-1] * (2 * rank)
    for place, axis in enumerate(chosen):
        found[axis], found[axis + rank] = place, place + len(chosen)
    return found


def _mode(ctx: NodeContext) -> str:
    mode: str = ctx.attr("mode", "constant")
    if mode not in _MODES:
        ctx.unsupported(f"Pad in mode {mode!r}; supported are {', '.join(_MODES)}")
    return mode


def _pad(ctx: NodeContext, widths: Sequence[int], fill: RelayExpr) -> RelayExpr:
    """Pad with widths that are known: those before all axes, then those behind; negative ones crop."""
    data, mode = ctx.input(0), _mode(ctx)
    rank = ctx.rank(data)
    if not rank:
        return data
    pairs = list(zip(widths[:rank], widths[rank:], strict=True))
    at_run_time = [min(pair) < 0 or (mode == "wrap" and max(pair) > 0) for pair in pairs]
    if any(at and not is_number(dim) for at, dim in zip(at_run_time, ctx.dims(data), strict=True)):
        return _pad_by_values(ctx, vector(widths), widths, fill)
    data = _cropped(ctx, data, pairs)
    pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    if mode == "wrap":
        return _wrap_pad(ctx, data, pairs)
    return relay_op.nn.pad(data, pairs, fill, pad_mode=mode)


def _cropped(ctx: NodeContext, data: RelayExpr, pairs: Sequence[tuple[int, int]]) -> RelayExpr:
    """Return what negative widths leave, along axes of known extents."""
    axes = [axis for axis, pair in enumerate(pairs) if min(pair) < 0]
    if not axes:
        return data
    dims = ctx.dims(data)
    begin = [max(-pairs[axis][0], 0) for axis in axes]
    end = [dims[axis] + min(pairs[axis][1], 0) for axis in axes]
    if any(first > last for first, last in zip(begin, end, strict=True)):
        widths = [*(a for a, _ in pairs), *(b for _, b in pairs)]
        ctx.fail(f"the pads {widths} cut more than data of shape {tuple(dims)} have")
    return relay_op.strided_slice(data, begin, end, [1] * len(axes), axes=axes)


def _wrap_pad(ctx: NodeContext, data: RelayExpr, width: Sequence[tuple[int, int]]) -> RelayExpr:
    """Continue each axis from its other end, by constant indices."""
    for axis, (before, after) in enumerate(width):
        if before or after:
            extent = ctx.extent(data, axis)
            ctx.check_constant((max(before + extent + after, 0),), "int64")
            data = relay_op.take(data, int_const([i % extent for i in range(-before, extent + after)]), axis=axis)
    return data


def _pad_by_values(ctx: NodeContext, numbers: RelayExpr, widths: Sequence[Any], fill: RelayExpr) -> RelayExpr:
    """Pad with widths that are computed, or by extents that have names.

    ``numbers`` is the int64 vector of the widths before all axes, then behind; ``widths`` is what is known of it.
    """
    data, mode = ctx.input(0), _mode(ctx)
    rank = ctx.rank(data)
    numbers = checked_shape(
        ctx, int(ctx.has_input(1)), "pad" if mode == "constant" else "pad_repeating", "the pads",
        "cut more than there is, repeat what is empty, or are too large, for data of shape", runtime_shape(data),
        numbers,
    )  # fmt: skip
    dims = [
        None if None in (dim, *pair) else element(dim_add(dim, *pair))
        for dim, *pair in zip(ctx.dims(data), widths[:rank], widths[rank:], strict=True)
    ]
    if mode == "constant":
        pairs = relay_op.transpose(relay_op.reshape(numbers, newshape=(2, rank)))
        return known_dims(relay_op.nn.pad(data, pairs, fill), dims)
    for axis in range(rank):
        if not all(is_number(w) and w == 0 for w in (widths[axis], widths[axis + rank])):
            before, behind = (relay_op.take(numbers, integer(i, "int32")) for i in (axis, axis + rank))
            sources = _sources(mode, runtime_extent(data, axis), before, behind, dims[axis])
            data = typed(relay_op.take(data, sources, axis=axis, mode="fast"))
    return data


def _sources(mode: str, extent: RelayExpr, before: RelayExpr, behind: RelayExpr, dim: Any) -> RelayExpr:
    """Return which element of an axis each element of the result is, as a vector of int64.

    ``extent`` and the widths are int64 scalars; what negative widths cut off is not repeated. ``dim`` is the result's
    extent, as an element.
    """
    zero, one = integer(0), integer(1)
    first = relay_op.maximum(relay_op.negative(before), zero)
    left = relay_op.subtract(relay_op.add(extent, relay_op.minimum(behind, zero)), first)
    places = counted(relay_op.add(relay_op.add(extent, before), behind), [dim])
    places = relay_op.subtract(places, relay_op.add(before, first))
    last = relay_op.subtract(left, one)
    if mode == "edge":
        inside = relay_op.maximum(relay_op.minimum(places, last), zero)
    elif mode == "wrap":
        inside = relay_op.floor_mod(places, relay_op.maximum(left, one))
    else:  # forth and back, without the ends twice
        period = relay_op.maximum(relay_op.add(last, last), one)
        inside = relay_op.floor_mod(places, period)
        inside = relay_op.minimum(inside, relay_op.subtract(period, inside))
    return relay_op.add(inside, first)
