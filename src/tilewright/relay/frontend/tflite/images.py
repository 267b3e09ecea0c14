"""Pooling, resizing and blocks of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.tflite.context import OperatorContext
from tilewright.relay.frontend.tflite.conv import padding, positive
from tilewright.relay.frontend.tflite.integers import limits
from tilewright.relay.frontend.tflite.registry import IMAGES, converter

_ONES = (1, 1)


def _window(ctx: OperatorContext) -> dict[str, Any]:
    kernel, strides = positive(ctx, "filter_h", "filter_w"), positive(ctx, "stride_h", "stride_w")
    pads = padding(ctx, ctx.shape(ctx.raw(0))[2:], kernel, strides, _ONES)
    return {"pool_size": kernel, "strides": strides, "padding": pads}


@converter("AVERAGE_POOL_2D", form=IMAGES)
def convert_average_pool_2d(ctx: OperatorContext) -> RelayExpr:
    """Means of windows, without what is padded; of integers rounded, halves away from 0."""
    if not ctx.tensor(0).is_quantized:
        return ctx.finished(relay_op.nn.avg_pool2d(ctx.raw(0), **_window(ctx)))
    window = _window(ctx)
    # A mean of n integers is a multiple of 1 / n: what is added keeps halves that float32 rounds down.
    mean = relay_op.nn.avg_pool2d(relay_op.cast(ctx.raw(0), "float32"), **window)
    half = const(np.float32(0.5 + 0.25 / np.prod(window["pool_size"])))
    whole = relay_op.multiply(relay_op.sign(mean), relay_op.floor(relay_op.add(relay_op.abs(mean), half)))
    low, high = limits(ctx)
    return relay_op.cast(relay_op.clip(whole, float(low), float(high)), ctx.out().dtype)


@converter("MAX_POOL_2D", form=IMAGES)
def convert_max_pool_2d(ctx: OperatorContext) -> RelayExpr:
    """Maxima of windows; integers are compared as they are."""
    pooled = relay_op.nn.max_pool2d(ctx.raw(0), **_window(ctx))
    if not ctx.out().is_quantized:
        return ctx.finished(pooled)
    low, high = limits(ctx)
    if (low, high) == dt.int_range(ctx.out().dtype):
        return pooled
    return relay_op.cast(relay_op.clip(relay_op.cast(pooled, "int32"), float(low), float(high)), ctx.out().dtype)


@converter("L2_POOL_2D", form=IMAGES)
def convert_l2_pool_2d(ctx: OperatorContext) -> RelayExpr:
    """Root of the mean square of windows."""
    data = ctx.real(0)
    mean = relay_op.nn.avg_pool2d(relay_op.multiply(data, data), **_window(ctx))
    return ctx.finished(relay_op.sqrt(mean))


def _size(ctx: OperatorContext) -> tuple[int, int]:
    size = ctx.ints(1, "its size")
    if len(size) != 2 or min(size) < 1:
        ctx.fail(f"its size is {size}; expected two numbers of 1 or more")
    ctx.check_size((*ctx.shape(ctx.raw(0))[:2], *size), "float32")
    return size[0], size[1]


def _places(ctx: OperatorContext, extent: int, size: int) -> np.ndarray[Any, Any]:
    """Return the coordinates along an axis from which elements of the result come, in float32."""
    corners = bool(ctx.option("align_corners", False)) and size > 1
    step = np.float32((extent - 1) / (size - 1) if corners else np.float32(extent) / np.float32(size))
    half = np.float32(0.5 if ctx.option("half_pixel_centers", False) else 0)
    return (np.arange(size, dtype=np.float32) + half) * step


@converter("RESIZE_NEAREST_NEIGHBOR", form=IMAGES)
def convert_resize_nearest_neighbor(ctx: OperatorContext) -> RelayExpr:
    """Another size, of the nearest elements."""
    data = ctx.raw(0)
    for axis, size in enumerate(_size(ctx), 2):
        extent = ctx.shape(data)[axis]
        places = _places(ctx, extent, size)
        whole = np.floor(places + np.float32(0.5)) if ctx.option("align_corners", False) else np.floor(places)
        indices = np.clip(whole, 0, extent - 1).astype("int32")
        data = relay_op.take(data, const(indices), axis=axis, mode="fast")
    return data


@converter("RESIZE_BILINEAR", form=IMAGES)
def convert_resize_bilinear(ctx: OperatorContext) -> RelayExpr:
    """Another size, linear between elements."""
    data, size = ctx.real(0), _size(ctx)
    half, corners = bool(ctx.option("half_pixel_centers", False)), bool(ctx.option("align_corners", False))
    if corners and (half or 1 in size):  # forms that Relay's operator does not have
        return ctx.result(_bilinear(ctx, data, size))
    mode = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    return ctx.result(relay_op.image.resize2d(data, size, method="linear", coordinate_transformation_mode=mode))


def _bilinear(ctx: OperatorContext, data: RelayExpr, size: tuple[int, int]) -> RelayExpr:
    half = np.float32(0.5 if ctx.option("half_pixel_centers", False) else 0)
    for axis, count in enumerate(size, 2):
        extent = ctx.shape(data)[axis]
        places = _places(ctx, extent, count) - half
        below = np.clip(np.floor(places), 0, extent - 1)
        above = np.minimum(below + 1, extent - 1)
        share = np.maximum(places - below, 0).astype("float32").reshape([-1 if a == axis else 1 for a in range(4)])
        low, high = (relay_op.take(data, const(i.astype("int32")), axis=axis, mode="fast") for i in (below, above))
        data = relay_op.add(low, relay_op.multiply(relay_op.subtract(high, low), const(share)))
    return data


@converter("DEPTH_TO_SPACE", form=IMAGES)
def convert_depth_to_space(ctx: OperatorContext) -> RelayExpr:
    """Blocks of channels as blocks of pixels."""
    return relay_op.nn.depth_to_space(ctx.raw(0), positive(ctx, "block_size")[0])


@converter("SPACE_TO_DEPTH", form=IMAGES)
def convert_space_to_depth(ctx: OperatorContext) -> RelayExpr:
    """Blocks of pixels as blocks of channels."""
    return relay_op.nn.space_to_depth(ctx.raw(0), positive(ctx, "block_size")[0])


@converter("LOCAL_RESPONSE_NORMALIZATION", form=IMAGES)
def convert_local_response_normalization(ctx: OperatorContext) -> RelayExpr:
    """Each number over a power of the sum of squares of its neighbours in other channels."""
    size = 2 * int(ctx.option("radius")) + 1
    alpha = float(ctx.option("alpha")) * size  # Relay's is divided by the size
    return relay_op.nn.lrn(ctx.real(0), size, 1, float(ctx.option("bias")), alpha, float(ctx.option("beta")))
