"""Regions of interest, grids of affine maps, and convolutions whose taps move."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.dynamic import counted, integer
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.conv import add_bias, padding, spatial
from tilewright.relay.frontend.onnx.indices import checked_numbers, checked_range
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.op.attributes import call
from tilewright.relay.op.vision.roi import ROIAlignAttrs
from tilewright.topi.shape_checks import MOST_ELEMENTS


@converter("RoiAlign", since=10)
def convert_roi_align(ctx: NodeContext) -> RelayExpr:
    """Interpolated samples of regions, averaged; up to opset 15 pixels have their centres at whole numbers."""
    data, regions = ctx.input(0), ctx.input(1)
    batch = checked_numbers(ctx, 2, data, 0, "index")
    older = "output_half_pixel" if ctx.opset < 16 else "half_pixel"
    half = ctx.attr("coordinate_transformation_mode", older) == "half_pixel"
    if ctx.attr("mode", "avg") == "max":
        return _largest_of_regions(ctx, batch, half)
    rows = relay_op.concatenate([relay_op.expand_dims(relay_op.cast(batch, ctx.dtype(regions)), 1), regions], axis=1)
    size = (ctx.attr("output_height", 1), ctx.attr("output_width", 1))
    scale, ratio = ctx.attr("spatial_scale", 1.0), ctx.attr("sampling_ratio", 0)
    return call("vision.roi_align", [data, rows], ROIAlignAttrs(size, scale, ratio or -1, aligned=half))


def _largest_of_regions(ctx: NodeContext, batch: RelayExpr, half: bool) -> RelayExpr:
    """RoiAlign of mode max: in each bin the largest weighted pixel that its samples read, as ONNX defines it."""
    data, regions = ctx.input(0), ctx.input(1)
    ratio, dtype = ctx.attr("sampling_ratio", 0), ctx.dtype(ctx.input(1))
    if ratio <= 0:
        ctx.unsupported("RoiAlign of mode max without sampling_ratio, where the number of samples depends on the data")
    _, channels, height, width = ctx.shape(data)
    count, _ = ctx.shape(regions)
    scaled = relay_op.multiply(regions, const(ctx.attr("spatial_scale", 1.0), dtype))
    corners = relay_op.split(relay_op.subtract(scaled, const(0.5 if half else 0.0, dtype)), 4, axis=1)
    axes = []
    for start, end, bins, extent in (
        (corners[1], corners[3], ctx.attr("output_height", 1), height),
        (corners[0], corners[2], ctx.attr("output_width", 1), width),
    ):
        length = relay_op.subtract(end, start)
        length = length if half else relay_op.maximum(length, const(1.0, dtype))
        steps = (np.arange(bins * ratio) + 0.5) / (bins * ratio)
        at = relay_op.add(start, relay_op.multiply(length, const(steps[None].astype(dtype))))
        axes.append(_samples(typed(at), extent, dtype))
    planes = relay_op.reshape(relay_op.take(data, batch, axis=0, mode="fast"), (count, channels, height * width))
    rows, columns = axes
    sizes = (count, 1, len_of(ctx, rows[0][0]), len_of(ctx, columns[0][0]))
    inside = relay_op.logical_and(relay_op.expand_dims(rows[2], 2), relay_op.expand_dims(columns[2], 1))
    found: RelayExpr | None = None
    for row, row_share in rows[:2]:
        for column, column_share in columns[:2]:
            place = relay_op.add(
                relay_op.multiply(relay_op.expand_dims(row, 2), const(width, "int32")), relay_op.expand_dims(column, 1)
            )
            flat = relay_op.reshape(place, (count, sizes[2] * sizes[3]))
            pixels = relay_op.reshape(relay_op.take(planes, flat, axis=2, batch_dims=1), (count, channels, *sizes[2:]))
            share = relay_op.multiply(relay_op.expand_dims(row_share, 2), relay_op.expand_dims(column_share, 1))
            share = relay_op.where(inside, share, const(0.0, dtype))
            value = relay_op.multiply(pixels, relay_op.cast(relay_op.expand_dims(share, 1), ctx.dtype(data)))
            found = value if found is None else relay_op.maximum(found, value)
    assert found is not None
    bins = (sizes[2] // ratio, sizes[3] // ratio)
    blocks = relay_op.reshape(found, (count, channels, bins[0], ratio, bins[1], ratio))
    return relay_op.max(blocks, axis=(3, 5))


def len_of(ctx: NodeContext, expr: RelayExpr) -> int:
    """Return the second extent of a tensor."""
    return ctx.shape(expr)[1]


def _samples(at: RelayExpr, extent: int, dtype: str) -> tuple[Any, Any, RelayExpr]:
    """Return the two pixels around a coordinate, with their weights; and whether it is near the data at all."""
    zero, last = const(0.0, dtype), const(float(extent - 1), dtype)
    near = relay_op.logical_and(
        relay_op.greater_equal(at, const(-1.0, dtype)), relay_op.less_equal(at, const(float(extent), dtype))
    )
    within = relay_op.minimum(relay_op.maximum(at, zero), last)
    low = relay_op.floor(within)
    share = relay_op.subtract(within, low)
    high = relay_op.minimum(relay_op.add(low, const(1.0, dtype)), last)
    pixel = lambda x: typed(relay_op.cast(x, "int32"))  # noqa: E731
    return (pixel(low), relay_op.subtract(const(1.0, dtype), share)), (pixel(high), share), typed(near)


@converter("MaxRoiPool")
def convert_roi_pool(ctx: NodeContext) -> RelayExpr:
    """Maxima of the bins of regions (batch, left, top, right, bottom)."""
    size, scale = ctx.required("pooled_shape"), ctx.attr("spatial_scale", 1.0)
    data, (first, corners) = ctx.input(0), relay_op.split(ctx.input(1), (1,), axis=1)
    batch = checked_numbers(ctx, 1, data, 0, "batch index", values=typed(first))
    regions = typed(relay_op.concatenate([batch, corners], axis=1))
    return relay_op.vision.roi_pool(data, regions, tuple(size), scale)


@converter("AffineGrid", since=20, in_float32=True)
def convert_affine_grid(ctx: NodeContext) -> RelayExpr:
    """Places in an image for GridSample: the centres of a result's pixels, from -1 to 1, moved by a matrix each."""
    theta, rank = ctx.input(0), ctx.shape_elements(1)
    rows = ctx.dims(theta)[1]
    if rank is None or not is_number(rows) or len(rank) != rows + 2:
        ctx.fail(f"a size of N, C and 2 or 3 extents, as many as theta has rows, is needed; found {rank}, theta {rows}")
    sizes, count = checked_range(ctx, 1, MOST_ELEMENTS + 1, "size"), ctx.dims(theta)[0]
    if is_number(rank[0]) and is_number(count) and rank[0] != count:
        ctx.fail(f"the size (input 1) is for {rank[0]} images: expected {count}, as many as theta has matrices")
    spread = [relay_op.expand_dims(part, axis=1, num_newaxis=rows) for part in _columns(theta, rows + 1)]
    grid = spread[rows]
    for place in range(rows):
        at = _centres(ctx, relay_op.take(sizes, integer(place + 2, "int32")), rank[place + 2], ctx.dtype(theta))
        at = relay_op.expand_dims(at, axis=1, num_newaxis=rows - place)
        grid = relay_op.add(grid, relay_op.multiply(spread[rows - 1 - place], at))
    return grid


def _columns(matrices: RelayExpr, count: int) -> list[RelayExpr]:
    """Return the columns of matrices, each (N, rows)."""
    return [relay_op.take(matrices, integer(k, "int32"), axis=2) for k in range(count)]


def _centres(ctx: NodeContext, count: RelayExpr, dim: Any, dtype: str) -> RelayExpr:
    """Return the centres of ``count`` pixels between -1 and 1, the outer ones there with ``align_corners``."""
    steps = const(np.arange(dim, dtype=dtype)) if is_number(dim) else relay_op.cast(counted(count, [dim]), dtype)
    whole = relay_op.cast(count, dtype)
    one, two = const(1.0, dtype), const(2.0, dtype)
    if ctx.attr("align_corners", 0):
        pace = relay_op.divide(two, relay_op.maximum(relay_op.subtract(whole, one), one))
        return relay_op.subtract(relay_op.multiply(steps, pace), one)
    odd = relay_op.add(relay_op.multiply(steps, two), one)
    return relay_op.subtract(relay_op.divide(odd, whole), one)


@converter("DeformConv", since=19, in_float32=True)
def convert_deform_conv(ctx: NodeContext) -> RelayExpr:
    """A convolution with offsets for its taps; beyond the data's edge values fall to 0 within a pixel."""
    if ctx.has_input(4):
        return _masked(ctx)
    data, weight, offset = ctx.input(0), ctx.input(1), ctx.input(2)
    if ctx.rank(data) != 4:
        ctx.unsupported(f"DeformConv of {ctx.rank(data) - 2} dimensions; there is one of 2")
    kernel = ctx.attr("kernel_shape") or ctx.shape(weight)[2:]
    strides, dilations = spatial(ctx, "strides", 2), spatial(ctx, "dilations", 2)
    top, left, bottom, right = padding(ctx, data, kernel, strides, dilations)
    # The operator has nothing beyond the first row and column: a border of zeros, by which the padding is less.
    data = relay_op.nn.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = relay_op.nn.deformable_conv2d(
        data, offset, weight, strides, (top - 1, left - 1, bottom - 1, right - 1), dilations,
        ctx.attr("offset_group", 1), ctx.attr("group", 1), ctx.shape(weight)[0], tuple(kernel),
    )  # fmt: skip
    return add_bias(ctx, out, 3)


def _masked(ctx: NodeContext) -> RelayExpr:
    """DeformConv with a mask: samples of all taps, each times its mask, then a product with the weights."""
    data, weight, offset, mask = (ctx.input(i) for i in (0, 1, 2, 4))
    if ctx.rank(data) != 4:
        ctx.unsupported(f"DeformConv of {ctx.rank(data) - 2} dimensions; there is one of 2")
    dtype = ctx.dtype(data)
    batch, channels, height, width = ctx.shape(data)
    units, _, *taps = ctx.shape(weight)
    strides, dilations = spatial(ctx, "strides", 2), spatial(ctx, "dilations", 2)
    pads = padding(ctx, data, taps, strides, dilations)
    groups, moved, count = ctx.attr("group", 1), ctx.attr("offset_group", 1), taps[0] * taps[1]
    rows, columns = ctx.shape(offset)[2:]
    moves = relay_op.reshape(offset, (batch * moved, count, 2, rows, columns))
    tap, row, column = np.mgrid[:count, :rows, :columns]
    top = row * strides[0] - pads[0] + tap // taps[1] * dilations[0]
    left = column * strides[1] - pads[1] + tap % taps[1] * dilations[1]
    y, x = (
        relay_op.reshape(
            relay_op.add(relay_op.take(moves, const(i, "int32"), axis=2), const(start[None].astype(dtype))),
            (batch * moved, count * rows * columns),
        )
        for i, start in enumerate((top, left))
    )
    planes = relay_op.reshape(data, (batch * moved, channels // moved, height * width))
    sampled = _bilinear(typed(planes), typed(y), typed(x), (height, width), dtype)
    shares = relay_op.reshape(mask, (batch * moved, 1, count * rows * columns))
    patches = relay_op.reshape(
        relay_op.multiply(sampled, shares), (batch * groups, channels // groups * count, rows * columns)
    )
    kernel = relay_op.reshape(weight, (1, groups, units // groups, channels // groups * count))
    kernel = relay_op.reshape(relay_op.tile(kernel, (batch, 1, 1, 1)), (batch * groups, units // groups, -1))
    product = relay_op.nn.batch_matmul(kernel, relay_op.transpose(patches, (0, 2, 1)))
    return add_bias(ctx, relay_op.reshape(product, (batch, units, rows, columns)), 3)


def _bilinear(planes: RelayExpr, y: RelayExpr, x: RelayExpr, extents: tuple[int, int], dtype: str) -> RelayExpr:
    """Return samples of planes (batch, channels, height * width) at points (batch, points); zeros beyond the edge."""
    found: RelayExpr | None = None
    top, left = relay_op.floor(y), relay_op.floor(x)
    for down in (0.0, 1.0):
        for right in (0.0, 1.0):
            row, column = relay_op.add(top, const(down, dtype)), relay_op.add(left, const(right, dtype))
            share: RelayExpr = const(1.0, dtype)
            place: RelayExpr = const(0, "int32")
            for at, point, extent in ((row, y, extents[0]), (column, x, extents[1])):
                last = const(float(extent - 1), dtype)
                part = relay_op.subtract(const(1.0, dtype), relay_op.abs(relay_op.subtract(point, at)))
                inside = relay_op.logical_and(
                    relay_op.greater_equal(at, const(0.0, dtype)), relay_op.less_equal(at, last)
                )
                share = relay_op.multiply(share, relay_op.where(inside, part, const(0.0, dtype)))
                pixel = relay_op.cast(relay_op.minimum(relay_op.maximum(at, const(0.0, dtype)), last), "int32")
                place = relay_op.add(relay_op.multiply(place, const(extent, "int32")), pixel)
            pixels = relay_op.take(planes, place, axis=2, batch_dims=1)
            value = relay_op.multiply(pixels, relay_op.expand_dims(share, 1))
            found = value if found is None else relay_op.add(found, value)
    assert found is not None
    return typed(found)
