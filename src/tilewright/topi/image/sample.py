"""Values of images between their pixels: grids, crops, morphological dilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi import tag
from tilewright.topi.utils import InvalidShapeError, pixel_of

Pixel = Callable[[PrimExpr, PrimExpr], PrimExpr]


def bilinear_or_zero(pixel: Pixel, height: Any, width: Any, y: PrimExpr, x: PrimExpr, dtype: str) -> PrimExpr:
    """Interpolate at (y, x) between four pixels; pixels outside of the image are 0."""
    floor_y, floor_x = tir.floor(y), tir.floor(x)
    top, left = pixel_of(floor_y), pixel_of(floor_x)
    down, right = ops.cast(dtype, y - floor_y), ops.cast(dtype, x - floor_x)
    one, zero = ops.const(1, dtype), ops.const(0, dtype)

    def at(row: PrimExpr, column: PrimExpr) -> PrimExpr:
        inside = tir.all(row >= 0, row < height, column >= 0, column < width)
        return tir.if_then_else(inside, pixel(row, column), zero)

    upper = at(top, left) * (one - right) + at(top, left + 1) * right
    lower = at(top + 1, left) * (one - right) + at(top + 1, left + 1) * right
    return upper * (one - down) + lower * down


def affine_grid(data: te.Tensor, target_shape: Sequence[int]) -> te.Tensor:
    """Apply affine maps to the points of a grid over [-1, 1] x [-1, 1], whose border lies on the corners.

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


GRID_METHODS = ("nearest", "bilinear", "bicubic")
GRID_PADDING = ("zeros", "border", "reflection")


def grid_sample(
    data: te.Tensor,
    grid: te.Tensor,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> te.Tensor:
    """Sample ``data`` at the points of ``grid``.

    Parameters
    ----------
    data : (batch, channels, height, width), or with a depth before them (NCDHW)
    grid : (batch, 2, out_height, out_width), x before y; of volumes (batch, 3, ...), x before y before z
    method : nearest (halves to even), bilinear (trilinear), or bicubic (Keys, 1981, with a = -0.75)
    padding_mode : what is outside: zeros, the nearest pixel (border), or the image mirrored (reflection)
    align_corners : -1 and 1 are the centres of the first and last pixel, else their outer edges

    Returns (batch, channels, ...) with the grid's last dimensions.
    """
    rank = len(layout) - 2
    if layout not in ("NCHW", "NCDHW") or method not in GRID_METHODS or padding_mode not in GRID_PADDING:
        raise InvalidShapeError(
            f"grid_sample takes NCHW or NCDHW, {', '.join(GRID_METHODS)} and {', '.join(GRID_PADDING)}, "
            f"found {layout}, {method} and {padding_mode}"
        )
    axes = [_GridAxis(extent, grid.dtype, padding_mode, align_corners) for extent in data.shape[2:]]

    def body(n: PrimExpr, c: PrimExpr, *at: PrimExpr) -> PrimExpr:
        places = [axis.place(grid(n, rank - 1 - i, *at), method) for i, axis in enumerate(axes)]
        taps = [axis.taps(place, method, data.dtype) for axis, place in zip(axes, places, strict=True)]

        def summed(depth: int, indices: list[PrimExpr], inside: list[PrimExpr]) -> PrimExpr:
            if depth == rank:
                value = data(n, c, *indices)
                return tir.if_then_else(tir.all(*inside), value, ops.const(0, data.dtype)) if inside else value
            parts = []
            for index, weight in taps[depth]:
                held, found = axes[depth].pixel(index)
                value = summed(depth + 1, [*indices, held], [*inside, *found])
                parts.append(value if weight is None else value * weight)
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            return total

        return summed(0, [], [])

    return te.compute((*data.shape[:2], *grid.shape[2:]), body, name="grid_sample", tag=tag.INJECTIVE)


class _GridAxis:
    """One spatial axis of ``grid_sample``: maps coordinates to pixels."""

    def __init__(self, extent: Any, dtype: str, padding_mode: str, align_corners: bool) -> None:
        self.extent, self.dtype, self.padding_mode, self.align_corners = extent, dtype, padding_mode, align_corners
        self.size = ops.cast(dtype, extent)

    def _const(self, value: float) -> PrimExpr:
        return ops.const(value, self.dtype)

    def place(self, coordinate: PrimExpr, method: str) -> PrimExpr:
        """Return a coordinate from -1 to 1 in pixels, moved inside as the padding mode says."""
        if self.align_corners:
            at = (coordinate + self._const(1)) * ((self.size - self._const(1)) * self._const(0.5))
        else:
            at = ((coordinate + self._const(1)) * self.size - self._const(1)) * self._const(0.5)
        if method == "nearest":
            at = tir.nearbyint(at)
        if self.padding_mode == "border":
            edge = self._const(0 if self.align_corners else 0.5)  # up to which a pixel reaches
            outside = tir.any(at < -edge, at > self.size - self._const(1) + edge)
            return tir.Select(outside, ops.maximum(ops.minimum(at, self.size - self._const(1)), self._const(0)), at)
        if self.padding_mode == "reflection":
            return self._reflected(at)
        return ops.maximum(
            ops.minimum(at, self.size + self._const(3)), self._const(-4)
        )  # as far outside as anything is

    def _reflected(self, at: PrimExpr) -> PrimExpr:
        """Mirror a coordinate at both ends until it is inside: a zigzag."""
        low = self._const(0 if self.align_corners else -0.5)
        span = ops.maximum(self.size - self._const(1 if self.align_corners else 0), self._const(1))
        away = tir.abs(at - low)
        turn = away - tir.floor(away / (span * self._const(2))) * (span * self._const(2))
        zigzag = low + ops.minimum(turn, span * self._const(2) - turn)
        return ops.maximum(ops.minimum(zigzag, self.size - self._const(0.5)), self._const(-0.5))

    def taps(self, at: PrimExpr, method: str, dtype: str) -> list[tuple[PrimExpr, PrimExpr | None]]:
        """Return the pixels of an interpolated value by index (which may be outside), and their weights."""
        if method == "nearest":
            return [(pixel_of(at), None)]
        floor = tir.floor(at)
        first, t = pixel_of(floor), ops.cast(dtype, at - floor)
        one = ops.const(1, dtype)
        if method == "bilinear":
            return [(first, one - t), (first + 1, t)]
        return [(first + (i - 1), w) for i, w in enumerate(_cubic_weights(t, dtype))]

    def pixel(self, index: PrimExpr) -> tuple[PrimExpr, list[PrimExpr]]:
        """Return the index that is read for ``index``, and the conditions under which it is read."""
        if self.padding_mode == "zeros":
            return index, [index >= 0, index < self.extent]
        if self.padding_mode == "reflection":
            index = pixel_of(tir.nearbyint(self._reflected(ops.cast(self.dtype, index))))
        return ops.maximum(ops.minimum(index, self.extent - 1), ops.const(0, "int32")), []


def _cubic_weights(t: PrimExpr, dtype: str) -> list[PrimExpr]:
    """Return weights of the pixels at -1, 0, 1 and 2 for a point at ``t``, by Keys' kernel with a = -0.75."""
    a = -0.75

    def near(x: PrimExpr) -> PrimExpr:  # |x| <= 1
        return ((ops.const(a + 2, dtype) * x - ops.const(a + 3, dtype)) * x) * x + ops.const(1, dtype)

    def far(x: PrimExpr) -> PrimExpr:  # 1 < |x| < 2
        inner = (ops.const(a, dtype) * x - ops.const(5 * a, dtype)) * x + ops.const(8 * a, dtype)
        return inner * x - ops.const(4 * a, dtype)

    one = ops.const(1, dtype)
    return [far(t + one), near(t), near(one - t), far(ops.const(2, dtype) - t)]


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
    """Crop images, and resize each crop to ``crop_size``.

    Parameters
    ----------
    boxes : (count, 4) of rows (y1, x1, y2, x2); 0 is the centre of the first pixel, 1 that of the last
    box_indices : (count,), the image that each box is of
    method : bilinear or nearest_neighbor (ties go to the pixel behind, as in TensorFlow)
    extrapolation_value : value outside of the image

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
            return (first + last) * ops.const(0.5, boxes.dtype) * span
        step = (last - first) * span / ops.const(target[axis] - 1, boxes.dtype)
        return first * span + step * ops.cast(boxes.dtype, index)

    def value(box: PrimExpr, channel: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        image = ops.cast("int32", box_indices(box))
        y, x = position(box, 0, i, rows), position(box, 1, j, columns)
        zero = ops.const(0, boxes.dtype)
        inside = tir.all(y >= zero, y <= ops.cast(y.dtype, rows - 1), x >= zero, x <= ops.cast(x.dtype, columns - 1))

        def pixel(r: PrimExpr, k: PrimExpr) -> PrimExpr:
            at = (image, channel, r, k) if layout == "NCHW" else (image, r, k, channel)
            return ops.cast(dtype, data(*at))

        if method == "bilinear":
            found = bilinear_or_zero(pixel, rows, columns, y, x, dtype)
        else:
            half = ops.const(0.5, boxes.dtype)
            row, column = pixel_of(tir.floor(y + half)), pixel_of(tir.floor(x + half))
            found = pixel(ops.minimum(row, rows - 1), ops.minimum(column, columns - 1))
        return tir.if_then_else(inside, found, ops.const(extrapolation_value, dtype))

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
    input: te.Tensor, filter: te.Tensor, stride: Any, padding: Any, dilations: Any, out_dtype: str = ""
) -> te.Tensor:
    """Return the maximum of input + filter over each window; positions outside of the input do not count.

    Parameters
    ----------
    input : (batch, channels, height, width)
    filter : (channels, kernel_height, kernel_width)
    stride, dilations : of the two dimensions
    padding : top, left, bottom, right
    """
    return _dilation(input, filter, stride, padding, dilations, "NCHW", out_dtype)


def dilation2d_nhwc(
    input: te.Tensor, filter: te.Tensor, stride: Any, padding: Any, dilations: Any, out_dtype: str = ""
) -> te.Tensor:
    """Compute ``dilation2d_nchw`` of input (batch, height, width, channels) and filter (height, width, channels)."""
    return _dilation(input, filter, stride, padding, dilations, "NHWC", out_dtype)
