"""Resize over dimensions, or by scales and to sizes, that are known at run time.

Each axis is processed separately: the sources of its elements are computed as vectors (``resampling.py`` does the same
for numbers), and the result is gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import element, is_number, same_element
from tilewright.relay.frontend.dynamic import (
    counted,
    integer,
    joined,
    known_dims,
    runtime_extent,
    runtime_shape,
    vector,
)
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.indices import checked_range, checked_shape
from tilewright.relay.frontend.onnx.resampling import NARROW, NEAR_HALF, Axis, scaled_size
from tilewright.relay.op.relations import dim_floordiv, dim_mul
from tilewright.topi.image.resize import nearest_elements
from tilewright.topi.shape_checks import MOST_ELEMENTS

_WIDE = "float64"  # as the numbers of resampling.py
_SAMPLE, _MOST_REPEATED = 8, 64  # an extent for which the copied elements are looked at; the greatest factor of these


def _number(value: float, dtype: str = _WIDE) -> RelayExpr:
    return const(np.array(value, dtype), dtype)


@dataclass(frozen=True)
class RunTimeAxis:
    """An axis to resize: its extent and size as elements and as scalars (int64), the scale as a scalar (float64).

    ``known`` is the axis in numbers, where these are known, and ``factor`` the scale.
    """

    index: int
    dims: tuple[Any, Any]
    extent: RelayExpr
    size: RelayExpr
    scale: RelayExpr
    region: tuple[float, float] = (0.0, 1.0)
    known: Axis | None = None
    factor: float | None = None

    def coordinates(self, mode: str) -> RelayExpr:
        """Return the input coordinate of every element of the output, as a vector of float64."""
        if mode in ("half_pixel", "pytorch_half_pixel", "asymmetric"):
            return relay_op.cast(self._in_float32(mode), _WIDE)
        x = relay_op.cast(counted(self.size), _WIDE)
        extent, size = relay_op.cast(self.extent, _WIDE), relay_op.cast(self.size, _WIDE)
        one, half, zero = _number(1.0), _number(0.5), _number(0.0)
        last = relay_op.subtract(extent, one)
        match mode:
            case "half_pixel_symmetric":
                centred = relay_op.subtract(relay_op.divide(relay_op.add(x, half), self.scale), half)
                share = relay_op.divide(size, relay_op.multiply(self.scale, extent))
                moved = relay_op.multiply(relay_op.multiply(extent, half), relay_op.subtract(one, share))
                return relay_op.add(moved, centred)
            case "align_corners":
                length = relay_op.multiply(self.scale, extent)
                step = relay_op.divide(last, relay_op.subtract(length, one))
                return relay_op.where(relay_op.greater(length, one), relay_op.multiply(x, step), zero)
            case _:
                start, end = self.region
                step = relay_op.divide(relay_op.multiply(_number(end - start), last), relay_op.subtract(size, one))
                spread = relay_op.add(relay_op.multiply(_number(start), last), relay_op.multiply(x, step))
                middle = relay_op.multiply(_number(0.5 * (start + end)), last)
                return relay_op.where(relay_op.greater(size, one), spread, middle)

    def _in_float32(self, mode: str) -> RelayExpr:
        """Return the coordinates that ``resampling.py`` computes in float32."""
        x, scale = relay_op.cast(counted(self.size), NARROW), relay_op.cast(self.scale, NARROW)
        if mode == "asymmetric":
            return relay_op.divide(x, scale)
        half = _number(0.5, NARROW)
        centred = relay_op.subtract(relay_op.divide(relay_op.add(x, half), scale), half)
        if mode == "half_pixel":
            return centred
        return relay_op.where(relay_op.greater(self.size, integer(1)), centred, _number(0.0, NARROW))


def axes_by_scales(
    ctx: NodeContext, place: int, axes: Sequence[int], regions: Sequence[tuple[float, float]]
) -> list[RunTimeAxis]:
    """Return the axes whose scales are input ``place``, without those of scale 1."""
    data = ctx.input(0)
    known = ctx.constant_or_none(ctx.input(place))
    found = []
    for k, (axis, (start, end)) in enumerate(zip(axes, regions, strict=True)):
        number = None if known is None else float(known.reshape(-1)[k])
        if number == 1.0 and (start, end) == (0.0, 1.0):
            continue
        given = _number(number) if number is not None else _scale(ctx, place, k)
        scale, extent = relay_op.cast(given, _WIDE), runtime_extent(data, axis)
        share = relay_op.multiply(relay_op.cast(extent, NARROW), relay_op.cast(given, NARROW))
        size: RelayExpr = relay_op.cast(relay_op.floor(relay_op.multiply(share, _number(end - start, NARROW))), "int64")
        if number is None:
            size = checked_range(ctx, place, MOST_ELEMENTS + 1, f"the size of axis {axis}", values=typed(size))
        own = ctx.dims(data)[axis]
        wide = None if number is None else _scaled(own, number, end - start)
        axis_known = _known_by_scale(own, number)
        found.append(RunTimeAxis(axis, (own, wide), extent, size, scale, (start, end), axis_known, number))
    return found


def _scale(ctx: NodeContext, place: int, k: int) -> RelayExpr:
    """Return scale ``k`` of input ``place``: a number that is neither negative nor infinite."""
    given = typed(relay_op.take(ctx.input(place), integer(k, "int32")))
    return checked_range(ctx, place, MOST_ELEMENTS + 1, "scale", values=given)


def _known_by_scale(extent: Any, scale: float | None) -> Axis | None:
    """Return the axis in numbers."""
    if scale is None or not is_number(extent) or not extent:
        return None
    return Axis(extent, scaled_size(extent, scale), scale)


def _scaled(extent: Any, scale: float, share: float) -> Any:
    """Return ``floor(extent * scale * share)`` as an element; None where that is no expression."""
    if extent is None:
        return None
    if is_number(extent):
        return scaled_size(extent, scale, share)
    factor = scale * share
    if factor >= 1 and factor.is_integer():
        return element(dim_mul(extent, int(factor)))
    return element(dim_floordiv(extent, int(1 / factor))) if factor and (1 / factor).is_integer() else None


def axes_by_sizes(
    ctx: NodeContext, axes: Sequence[int], policy: str, regions: Sequence[tuple[float, float]]
) -> list[RunTimeAxis]:
    """Return the axes whose sizes are input 3, without those that keep their extents."""
    data, wanted = ctx.input(0), ctx.shape_elements(3)
    expected = wanted if wanted is not None and policy == "stretch" else [None] * len(axes)
    extents = [runtime_extent(data, axis) for axis in axes]
    given: RelayExpr = relay_op.cast(ctx.input(3), "int64")
    if wanted is None or None in wanted:
        own = relay_op.take(runtime_shape(data), vector(axes), axis=0)
        given = checked_shape(ctx, 3, "resize", "the sizes", "are negative, too large, or of nothing, for extents", own)
    sizes = [relay_op.take(given, integer(k, "int32")) for k in range(len(axes))]
    ratios: list[RelayExpr] = [
        relay_op.divide(relay_op.cast(size, _WIDE), relay_op.cast(extent, _WIDE))
        for size, extent in zip(sizes, extents, strict=True)
    ]
    if policy != "stretch":
        ratio = reduce(relay_op.minimum if policy == "not_larger" else relay_op.maximum, ratios)
        ratios = [ratio] * len(axes)
        sizes = [
            relay_op.cast(relay_op.floor(relay_op.multiply(relay_op.cast(e, _WIDE), ratio) + _number(0.5)), "int64")
            for e in extents
        ]
    dims = ctx.dims(data)
    return [
        RunTimeAxis(
            axis,
            (dims[axis], expected[k]),
            extents[k],
            sizes[k],
            ratios[k],
            regions[k],
            _known(dims[axis], expected[k]),
        )
        for k, axis in enumerate(axes)
        if not same_element(dims[axis], expected[k]) or regions[k] != (0.0, 1.0)
    ]


def _known(extent: Any, size: Any) -> Axis | None:
    """Return the axis in numbers."""
    return Axis(extent, size, size / extent) if is_number(extent) and is_number(size) and extent else None


def repeated(ctx: NodeContext, axes: Sequence[RunTimeAxis], settings: Any) -> RelayExpr | None:
    """Return the image with each element copied a whole number of times along height and width; None for others."""
    factors = {2: 1, 3: 1}
    for axis in axes:
        if axis.index not in factors or axis.factor is None or not axis.factor.is_integer():
            return None
        factors[axis.index] = int(axis.factor)
    if settings.mode != "nearest" or ctx.rank(ctx.input(0)) != 4:
        return None
    for k in factors.values():
        copied = nearest_elements(_SAMPLE, _SAMPLE * k, settings.rounding, settings.coordinates)
        if not 1 <= k <= _MOST_REPEATED or copied != [x // k for x in range(_SAMPLE * k)]:
            return None
    return relay_op.nn.upsampling(ctx.input(0), factors[2], factors[3])


def resized(ctx: NodeContext, axes: Sequence[RunTimeAxis], settings: Any) -> RelayExpr:
    """Resize ``axes`` of the data by ``settings`` (of ``resize.py``)."""
    data = ctx.input(0)
    dtype, dims = ctx.dtype(data), ctx.dims(data)
    whole = settings.mode == "nearest" or dt.is_float(dtype)
    out = data if whole else relay_op.cast(data, "float32")
    for axis in axes:
        dims[axis.index] = axis.dims[1]
        out = typed(known_dims(_resized_axis(ctx, out, axis, settings, len(dims)), dims))
    return out if whole else relay_op.cast(out, dtype)


def _resized_axis(ctx: NodeContext, data: RelayExpr, axis: RunTimeAxis, settings: Any, rank: int) -> RelayExpr:
    dtype = typed(data).checked_type.dtype  # type: ignore[attr-defined]
    places = axis.coordinates(settings.coordinates)
    last = relay_op.subtract(relay_op.cast(axis.extent, _WIDE), _number(1.0))

    def along(vector: RelayExpr) -> RelayExpr:
        """Reshape a vector to run along the axis."""
        after = rank - 1 - axis.index
        return relay_op.expand_dims(vector, axis=1, num_newaxis=after) if after else vector

    def gathered(taps: RelayExpr) -> RelayExpr:
        inside = relay_op.minimum(relay_op.maximum(taps, _number(0.0)), last)
        return relay_op.take(data, relay_op.cast(inside, "int64"), axis=axis.index)

    if settings.mode == "nearest":
        out = gathered(_rounded(places, settings.rounding))
    elif settings.antialias:
        taps, shares = _wide_taps(places, axis, last, settings)
        out = _weighted(ctx, gathered(taps), relay_op.cast(shares, dtype), axis.index, rank)
    else:
        out = reduce(
            relay_op.add,
            [
                relay_op.multiply(gathered(taps), along(relay_op.cast(share, dtype)))
                for taps, share in _taps(places, last, settings)
            ],
        )
    if settings.coordinates != "tf_crop_and_resize":
        return out
    outside = relay_op.logical_or(relay_op.less(places, _number(0.0)), relay_op.greater(places, last))
    return relay_op.where(along(outside), const(settings.extrapolation, dtype), out)


def _rounded(places: RelayExpr, rounding: str) -> RelayExpr:
    half = _number(0.5 + NEAR_HALF)
    match rounding:
        case "round_prefer_floor":
            return relay_op.ceil(relay_op.subtract(places, half))
        case "round_prefer_ceil":
            return relay_op.floor(relay_op.add(places, half))
        case "floor":
            return relay_op.floor(places)
        case _:
            return relay_op.ceil(places)


def _taps(places: RelayExpr, last: RelayExpr, settings: Any) -> list[tuple[RelayExpr, RelayExpr]]:
    """Return the input elements of each output element, and their weights."""
    first = relay_op.floor(places)
    steps = (0, 1) if settings.mode == "linear" else (-1, 0, 1, 2)
    taps = [relay_op.add(first, _number(float(step))) for step in steps]
    shares = [_kernel(relay_op.abs(relay_op.subtract(tap, places)), settings.mode, settings.cubic_a) for tap in taps]
    if settings.exclude_outside:
        zero = _number(0.0)
        shares = [
            relay_op.where(relay_op.logical_or(relay_op.less(tap, zero), relay_op.greater(tap, last)), zero, share)
            for tap, share in zip(taps, shares, strict=True)
        ]
        total = reduce(relay_op.add, shares)
        total = relay_op.where(relay_op.equal(total, zero), _number(1.0), total)
        shares = [relay_op.divide(share, total) for share in shares]
    return list(zip(taps, shares, strict=True))


def _wide_taps(places: RelayExpr, axis: RunTimeAxis, last: RelayExpr, settings: Any) -> tuple[RelayExpr, RelayExpr]:
    """Return a vector of elements, with the edges repeated, and the matrix of their weights in each output element.

    The kernel widens when the axis shrinks, by a factor known at run time, so every element has a weight.
    """
    zero, one = _number(0.0), _number(1.0)
    stretch = relay_op.minimum(axis.scale, one)
    # The kernel's reach, and what rounding a size may move a place beyond the edge.
    reach = relay_op.ceil(relay_op.divide(_number(2.0 if settings.mode == "linear" else 3.0), stretch))
    margin = relay_op.add(relay_op.cast(reach, "int64"), integer(2))
    count = relay_op.add(axis.extent, relay_op.multiply(margin, integer(2)))
    taps = relay_op.cast(relay_op.subtract(counted(count), margin), _WIDE)
    apart = relay_op.subtract(relay_op.expand_dims(taps, axis=0), relay_op.expand_dims(places, axis=1))
    shares = _kernel(relay_op.abs(relay_op.multiply(apart, stretch)), settings.mode, settings.cubic_a)
    if settings.exclude_outside:
        shares = relay_op.where(
            relay_op.logical_or(relay_op.less(taps, zero), relay_op.greater(taps, last)), zero, shares
        )
    total = relay_op.sum(shares, axis=[1], keepdims=True)
    return taps, relay_op.divide(shares, relay_op.where(relay_op.equal(total, zero), one, total))


def _weighted(ctx: NodeContext, data: RelayExpr, shares: RelayExpr, axis: int, rank: int) -> RelayExpr:
    """Return sums along an axis by the rows of the matrix ``shares``."""
    order = [*(i for i in range(rank) if i != axis), axis]
    moved = typed(relay_op.transpose(data, axes=order))
    rows = relay_op.nn.dense(joined(moved, [rank - 1, 1]), shares, units=None)
    shaped = ctx.reshaped(typed(rows), moved, 1, 0, rank - 1) if rank != 2 else rows
    return relay_op.transpose(shaped, axes=[order.index(i) for i in range(rank)])


def _kernel(x: RelayExpr, mode: str, a: float) -> RelayExpr:
    """Return the weight of an element at the distance ``x``: linear, or cubic with the parameter ``a`` (Keys 1981)."""
    zero, one = _number(0.0), _number(1.0)
    if mode == "linear":
        return relay_op.maximum(relay_op.subtract(one, x), zero)

    def polynomial(*factors: float) -> RelayExpr:
        return reduce(
            lambda sum_, f: relay_op.add(relay_op.multiply(sum_, x), _number(f)), factors[1:], _number(factors[0])
        )

    near, far = polynomial(a + 2, -(a + 3), 0.0, 1.0), polynomial(a, -5 * a, 8 * a, -4 * a)
    beyond = relay_op.where(relay_op.less(x, _number(2.0)), far, zero)
    return relay_op.where(relay_op.less_equal(x, one), near, beyond)
