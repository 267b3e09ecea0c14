"""Values of images between their pixels: grids, crops, morphological dilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag
from tilewright.topi.utils import InvalidShapeError

Pixel = Callable[[PrimExpr, PrimExpr], PrimExpr]


def _int(value: PrimExpr) -> PrimExpr:
    return ops.cast("int32", value)


def bilinear_or_zero(pixel: Pixel, height: Any, width: Any, y: PrimExpr, x: PrimExpr, dtype: str) -> PrimExpr:
    """The value at (y, x) between four pixels, of which those outside of the image are 0."""
    floor_y, floor_x = tir.floor(y), tir.floor(x)
    top, left = _int(floor_y), _int(floor_x)
    down, right = ops.cast(dtype, y - floor_y), ops.cast(dtype, x - floor_x)
    one, zero = ops.const(1, dtype), ops.const(0, dtype)

    def at(row: PrimExpr, column: PrimExpr) -> PrimExpr:
        inside = tir.all(row >= 0, row < height, column >= 0, column < width)
        return tir.if_then_else(inside, pixel(row, column), zero)

    upper = at(top, left) * (one - right) + at(top, left + 1) * right
    lower = at(top + 1, left) * (one - right) + at(top + 1, left + 1) * right
    return upper * (one - down) + lower * down


def affine_grid(data: te.Tensor, target_shape: Sequence[int]) -> te.Tensor:
    """Where an affine map takes each point of a grid over [-1, 1] x [-1, 1]; the grid's border lies on the corners.

    Parameters
    ----------
    data : (batch, 2, 3), the maps
    target_shape : height and width of the grid, each at least 2

    Returns (batch, 2, height, width): x, then y. Jaderberg et al., Spatial Transformer Networks, 2015.
    """
    height, width = (int(v) for v in target_shape)
    if min(height, width) < 2:
        raise InvalidShapeError(f"a grid has at least 2 rows and 2 columns, found {height} x {width}")
    dtype = data.dtype

    def position(index: PrimExpr, extent: int) -> PrimExpr:
        return ops.cast(dtype, index) * ops.const(2.0 / (extent - 1), dtype) - ops.const(1, dtype)

    def body(n: PrimExpr, row: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        x, y = position(j, width), position(i, height)
        return data(n, row, 0) * x + data(n, row, 1) * y + data(n, row, 2)

    return te.compute((data.shape[0], 2, height, width), body, name="affine_grid", tag=tag.INJECTIVE)


def grid_sample(data: te.Tensor, grid: te.Tensor, method: str = "bilinear", layout: str = "NCHW") -> te.Tensor:
    """Values of ``data`` at the points of ``grid``, where -1 and 1 are the centres of the first and last pixel.

    Parameters
    ----------
    data : (batch, channels, height, width)
    grid : (batch, 2, out_height, out_width), x before y; what is outside is 0

    Returns (batch, channels, out_height, out_width).
    """
    if (method, layout) != ("bilinear", "NCHW"):
        raise InvalidShapeError(f"grid_sample is bilinear on NCHW, found {method} on {layout}")
    batch, channels, height, width = data.shape
    half = ops.const(0.5, grid.dtype)

    def body(n: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        x, y = (
            (grid(n, axis, i, j) + ops.const(1, grid.dtype)) * ops.cast(grid.dtype, extent - 1) * half
            for axis, extent in ((0, width), (1, height))
        )
        return bilinear_or_zero(lambda r, k: data(n, c, r, k), height, width, y, x, data.dtype)

    return te.compute((batch, channels, *grid.shape[2:]), body, name="grid_sample", tag=tag.INJECTIVE)


def crop_and_resize(
    data: te.Tensor,
    boxes: te.Tensor,
    box_indices: te.Tensor,
    crop_size: Sequence[int],
    layout: str = "NCHW",
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> te.Tensor:
    """Crops of images, each resized to ``crop_size``.

    Parameters
    ----------
    boxes : (count, 4) of rows (y1, x1, y2, x2); 0 is the centre of the first pixel, 1 that of the last
    box_indices : (count,), the image that each box is of
    method : bilinear or nearest_neighbor (halves go to the even pixel)
    extrapolation_value : what is outside of the image

    Returns (count, ...) with the channels where ``layout`` has them.
    """
    if layout not in ("NCHW", "NHWC") or method not in ("bilinear", "nearest_neighbor"):
        raise InvalidShapeError(
            f"crop_and_resize is bilinear or nearest_neighbor on NCHW or NHWC, found {method} on {layout}"
        )
    target = tuple(int(v) for v in crop_size)
    rows, columns, depth = (data.shape[layout.index(letter)] for letter in "HWC")
    dtype = out_dtype or data.dtype

    def position(box: PrimExpr, axis: int, index: PrimExpr, extent: PrimExpr) -> PrimExpr:
        first, last = boxes(box, axis), boxes(box, axis + 2)
        span = ops.cast(boxes.dtype, extent - 1)
        if target[axis] == 1:
            return first * span
        step = (last - first) * span / ops.const(target[axis] - 1, boxes.dtype)
        return first * span + step * ops.cast(boxes.dtype, index)

    def value(box: PrimExpr, channel: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        image = _int(box_indices(box))
        y, x = position(box, 0, i, rows), position(box, 1, j, columns)
        zero = ops.const(0, boxes.dtype)
        outside = tir.any(y < zero, y > ops.cast(y.dtype, rows - 1), x < zero, x > ops.cast(x.dtype, columns - 1))

        def pixel(r: PrimExpr, k: PrimExpr) -> PrimExpr:
            at = (image, channel, r, k) if layout == "NCHW" else (image, r, k, channel)
            return ops.cast(dtype, data(*at))

        if method == "bilinear":
            found = bilinear_or_zero(pixel, rows, columns, y, x, dtype)
        else:
            found = pixel(_int(tir.nearbyint(y)), _int(tir.nearbyint(x)))
        return tir.if_then_else(outside, ops.const(extrapolation_value, dtype), found)

    count = boxes.shape[0]
    if layout == "NCHW":
        return te.compute((count, depth, *target), value, name="crop_and_resize", tag=tag.INJECTIVE)
    return te.compute(
        (count, *target, depth), lambda b, i, j, c: value(b, c, i, j), name="crop_and_resize", tag=tag.INJECTIVE
    )


def _dilation(
    data: te.Tensor,
    weight: te.Tensor,
    strides: Any,
    padding: Sequence[int],
    dilations: Any,
    layout: str,
    out_dtype: str,
) -> te.Tensor:
    dtype = out_dtype or data.dtype
    rows, columns = (data.shape[layout.index(letter)] for letter in "HW")
    kernel_layout = "IHW" if layout == "NCHW" else "HWI"
    kernel = [weight.shape[kernel_layout.index(letter)] for letter in "HW"]
    top, left, bottom, right = (int(p) for p in padding)
    pads = ((top, bottom), (left, right))
    out = [
        ops.floordiv(extent + before + after - (size - 1) * dilations[k] - 1, strides[k]) + 1
        for k, (extent, size, (before, after)) in enumerate(zip((rows, columns), kernel, pads, strict=True))
    ]
    dy, dx = te.reduce_axis((0, kernel[0]), name="dy"), te.reduce_axis((0, kernel[1]), name="dx")

    def body(n: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        y, x = i * strides[0] + dy * dilations[0] - top, j * strides[1] + dx * dilations[1] - left
        inside = tir.all(y >= 0, y < rows, x >= 0, x < columns)
        pixel = data(n, c, y, x) if layout == "NCHW" else data(n, y, x, c)
        tap = weight(c, dy, dx) if layout == "NCHW" else weight(dy, dx, c)
        raised = ops.cast(dtype, pixel) + ops.cast(dtype, tap)
        return te.max(tir.if_then_else(inside, raised, tir.min_value(dtype)), axis=[dy, dx])

    batch, channels = data.shape[0], data.shape[layout.index("C")]
    if layout == "NCHW":
        return te.compute((batch, channels, *out), body, name="dilation2d", tag="dilation2d_NCHW")
    return te.compute(
        (batch, *out, channels), lambda n, i, j, c: body(n, c, i, j), name="dilation2d", tag="dilation2d_NHWC"
    )


def dilation2d_nchw(
    data: te.Tensor, weight: te.Tensor, strides: Any, padding: Any, dilations: Any, out_dtype: str = ""
) -> te.Tensor:
    """The greatest of data + weight over each window; what is outside does not count.

    Parameters
    ----------
    data : (batch, channels, height, width)
    weight : (channels, kernel_height, kernel_width)
    strides, dilations : of the two dimensions
    padding : top, left, bottom, right
    """
    return _dilation(data, weight, strides, padding, dilations, "NCHW", out_dtype)


def dilation2d_nhwc(
    data: te.Tensor, weight: te.Tensor, strides: Any, padding: Any, dilations: Any, out_dtype: str = ""
) -> te.Tensor:
    """``dilation2d_nchw`` of data (batch, height, width, channels) and weight (height, width, channels)."""
    return _dilation(data, weight, strides, padding, dilations, "NHWC", out_dtype)
