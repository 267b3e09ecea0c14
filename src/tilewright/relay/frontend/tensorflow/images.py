"""Images: other sizes, crops, blocks of pixels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.tensorflow.context import NodeContext
from tilewright.relay.frontend.tensorflow.conv import is_channels_first, over_images
from tilewright.relay.frontend.tensorflow.registry import converter


def _coordinates(ctx: NodeContext) -> str:
    corners, half = bool(ctx.attr("align_corners", False)), bool(ctx.attr("half_pixel_centers", False))
    if corners and half:
        ctx.fail("align_corners and half_pixel_centers exclude one another")
    return "align_corners" if corners else "half_pixel" if half else "asymmetric"


def _sizes(ctx: NodeContext, data: RelayExpr) -> RelayExpr:
    """Return the dimensions of the result, with channels first, in int64."""
    outer = ctx.part("Shape", [data], end=2)
    return ctx.part("Concat", [outer, ctx.cast(ctx.input(1), "int64")], axis=0)


@converter("ResizeBilinear")
def convert_resize_bilinear(ctx: NodeContext) -> RelayExpr:
    """Another size, linear between pixels, in float32."""
    return _resized(ctx, ctx.cast(ctx.input(0), "float32"), "linear", "round_prefer_floor")


@converter("ResizeBicubic")
def convert_resize_bicubic(ctx: NodeContext) -> RelayExpr:
    """Another size, cubic between pixels, in float32."""
    data, size = ctx.cast(ctx.input(0), "float32"), ctx.constant_or_none(ctx.input(1))
    if size is not None and not ctx.tensor_type(data).is_dynamic:
        return _cubic(ctx, data, [int(s) for s in size])
    half = _coordinates(ctx) == "half_pixel"
    attributes = {"cubic_coeff_a": -0.5 if half else -0.75, "exclude_outside": int(half)}
    return _resized(ctx, data, "cubic", "round_prefer_floor", **attributes)


def _cubic(ctx: NodeContext, data: RelayExpr, size: list[int]) -> RelayExpr:
    """Return the sums of four neighbours along each axis, by TensorFlow's weights, which it rounds to a table."""

    def build(image: RelayExpr) -> RelayExpr:
        for axis, count in enumerate(size, 2):
            places, weights = _taps(ctx.shape(image)[axis], count, _coordinates(ctx))
            parts = [
                typed(
                    relay_op.multiply(
                        relay_op.take(image, const(place.astype("int32")), axis=axis),
                        const(weight.reshape([-1 if a == axis else 1 for a in range(4)])),
                    )
                )
                for place, weight in zip(places, weights, strict=True)
            ]
            image = typed(relay_op.add(relay_op.add(parts[0], parts[1]), relay_op.add(parts[2], parts[3])))
        return image

    return over_images(ctx, data, False, build)


_TABLE = 1024  # places between two pixels for which TensorFlow keeps weights


def _taps(extent: int, count: int, how: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the four pixels that each place of a result is a sum of, and their weights, (4, count) each."""
    corners = how == "align_corners" and count > 1
    scale = np.float32((extent - 1) / (count - 1) if corners else np.float32(extent) / np.float32(count))
    at = np.arange(count, dtype=np.float32)
    at = (at + np.float32(0.5)) * scale - np.float32(0.5) if how == "half_pixel" else at * scale
    below = np.floor(at)
    share = np.rint((at - below) * _TABLE) / _TABLE
    distance = np.abs(np.stack([share + 1, share, 1 - share, 2 - share]))
    a = -0.5 if how == "half_pixel" else -0.75
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    weights = np.where(distance <= 1, near, far)
    places = below + np.arange(-1, 3)[:, None]
    if how == "half_pixel":
        weights = np.where((places >= 0) & (places < extent), weights, 0)
        weights /= weights.sum(axis=0)
    return np.clip(places, 0, extent - 1), weights.astype(np.float32)


@converter("ResizeNearestNeighbor")
def convert_resize_nearest_neighbor(ctx: NodeContext) -> RelayExpr:
    """Another size, of the nearest pixels."""
    data, how = ctx.input(0), _coordinates(ctx)
    if (
        how == "half_pixel"
        and (size := ctx.constant_or_none(ctx.input(1))) is not None
        and not ctx.tensor_type(data).is_dynamic
    ):
        return _nearest(ctx, data, [int(s) for s in size])
    return _resized(ctx, data, "nearest", "round_prefer_ceil" if how == "align_corners" else "floor")


def _nearest(ctx: NodeContext, data: RelayExpr, size: list[int]) -> RelayExpr:
    """Return the pixels whose centres are at or before those of the result, as TensorFlow rounds them."""

    def build(image: RelayExpr) -> RelayExpr:
        for axis, count in enumerate(size, 2):
            extent = ctx.shape(image)[axis]
            step = np.float32(extent) / np.float32(count)
            at = np.floor((np.arange(count, dtype=np.float32) + np.float32(0.5)) * step)
            image = typed(relay_op.take(image, const(np.clip(at, 0, extent - 1).astype("int32")), axis=axis))
        return image

    return over_images(ctx, data, False, build)


def _resized(ctx: NodeContext, data: RelayExpr, mode: str, rounding: str, **attributes: Any) -> RelayExpr:
    if ctx.rank(data) != 4:
        ctx.fail(f"its images have the rank {ctx.rank(data)}; expected 4")
    return over_images(
        ctx, data, False,
        lambda image: ctx.part(
            "Resize", [image, None, None, _sizes(ctx, image)], mode=mode, nearest_mode=rounding,
            coordinate_transformation_mode=_coordinates(ctx), **attributes,
        ),
    )  # fmt: skip


@converter("CropAndResize")
def convert_crop_and_resize(ctx: NodeContext) -> RelayExpr:
    """Boxes cut out of images, each brought to one size."""
    data, boxes, places = (ctx.input(i) for i in range(3))
    return typed(
        relay_op.image.crop_and_resize(
            ctx.cast(data, "float32"), boxes, places, ctx.ints(3, "the size"), "NHWC",
            "bilinear" if ctx.text("method", "bilinear") == "bilinear" else "nearest_neighbor",
            float(ctx.attr("extrapolation_value", 0.0)),
        )
    )  # fmt: skip


@converter("DepthToSpace")
def convert_depth_to_space(ctx: NodeContext) -> RelayExpr:
    """Blocks of channels as blocks of pixels."""
    size = int(ctx.required("block_size"))
    return over_images(
        ctx, ctx.input(0), is_channels_first(ctx), lambda data: ctx.part("DepthToSpace", [data], blocksize=size)
    )


@converter("SpaceToDepth")
def convert_space_to_depth(ctx: NodeContext) -> RelayExpr:
    """Blocks of pixels as blocks of channels."""
    size = int(ctx.required("block_size"))
    return over_images(
        ctx, ctx.input(0), is_channels_first(ctx), lambda data: ctx.part("SpaceToDepth", [data], blocksize=size)
    )


@converter("SpaceToBatchND")
def convert_space_to_batch_nd(ctx: NodeContext) -> RelayExpr:
    """Pixels of blocks as images of their own."""
    pads = ctx.constant(2, "the padding").tolist()
    return typed(relay_op.nn.space_to_batch_nd(ctx.input(0), ctx.ints(1, "the block"), pads))


@converter("BatchToSpaceND")
def convert_batch_to_space_nd(ctx: NodeContext) -> RelayExpr:
    """Images as pixels of blocks."""
    crops = ctx.constant(2, "the crops").tolist()
    return typed(relay_op.nn.batch_to_space_nd(ctx.input(0), ctx.ints(1, "the block"), crops))


@converter("LRN")
def convert_lrn(ctx: NodeContext) -> RelayExpr:
    """Each number over a power of the sum of squares of its neighbours in other channels."""
    size = 2 * int(ctx.attr("depth_radius", 5)) + 1
    alpha = float(ctx.attr("alpha", 1.0)) * size  # Relay's is divided by the size
    bias, beta = float(ctx.attr("bias", 1.0)), float(ctx.attr("beta", 0.5))
    return over_images(ctx, ctx.input(0), False, lambda data: relay_op.nn.lrn(data, size, 1, bias, alpha, beta))


@converter("AdjustContrastv2")
def convert_adjust_contrast(ctx: NodeContext) -> RelayExpr:
    """Pixels that differ from the mean of their channel by a factor more."""
    data, factor = ctx.input(0), ctx.input(1)
    mean = typed(relay_op.mean(data, axis=(-3, -2), keepdims=True))
    return typed(relay_op.add(relay_op.multiply(relay_op.subtract(data, mean), factor), mean))


@converter("RGBToHSV")
def convert_rgb_to_hsv(ctx: NodeContext) -> RelayExpr:
    """Colours by hue, saturation and value."""
    red, green, blue = (
        typed(relay_op.take(ctx.input(0), const(i, "int32"), axis=ctx.rank(ctx.input(0)) - 1)) for i in range(3)
    )
    high = typed(relay_op.maximum(relay_op.maximum(red, green), blue))
    span = typed(relay_op.subtract(high, relay_op.minimum(relay_op.minimum(red, green), blue)))
    zero, none = ctx.like(0, high), typed(relay_op.equal(span, ctx.like(0, span)))
    by = relay_op.multiply(ctx.like(6, span), relay_op.where(none, relay_op.ones_like(span), span))

    def hue(a: RelayExpr, b: RelayExpr, start: float) -> RelayExpr:
        return typed(relay_op.add(relay_op.divide(relay_op.subtract(a, b), by), ctx.like(start, high)))

    found = relay_op.where(
        relay_op.equal(red, high), hue(green, blue, 0.0),
        relay_op.where(relay_op.equal(green, high), hue(blue, red, 1 / 3), hue(red, green, 2 / 3)),
    )  # fmt: skip
    found = relay_op.where(relay_op.less(typed(found), zero), relay_op.add(found, ctx.like(1, high)), found)
    share = relay_op.where(relay_op.greater(high, zero), relay_op.divide(span, high), relay_op.zeros_like(high))
    return typed(relay_op.stack([relay_op.where(none, relay_op.zeros_like(high), found), share, high], axis=-1))
