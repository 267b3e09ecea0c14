"""Pooling of regions of interest: ``rois`` (count, 5) has rows (batch index, left, top, right, bottom)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm, PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi.loops import thread_group
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, pixel_of


def _pair(size: Any) -> tuple[int, int]:
    return (int(size[0]), int(size[1])) if isinstance(size, (list, tuple)) else (int(size), int(size))


def _int(value: PrimExpr) -> PrimExpr:
    return ops.cast("int32", value)


@dataclass(frozen=True)
class _Planes:
    """Memory layout of channel planes: ``step`` elements from one pixel to the next."""

    channels: int
    height: int
    width: int
    last: bool  # whether channels are the innermost dimension

    @staticmethod
    def of(data: te.Tensor, layout: str) -> _Planes:
        _, *dims = get_const_tuple(data.shape)
        channels, height, width = (dims[layout.index(axis) - 1] for axis in "CHW")
        return _Planes(channels, height, width, layout == "NHWC")

    def base(self, batch: PrimExpr, channel: PrimExpr, height: int, width: int) -> PrimExpr:
        """Return the offset of the first pixel of a plane of images of ``height`` and ``width``."""
        if self.last:
            return batch * (height * width * self.channels) + channel
        return (batch * self.channels + channel) * (height * width)

    @property
    def step(self) -> int:
        return self.channels if self.last else 1


def _bilinear(data: Any, base: PrimExpr, planes: _Planes, y: PrimExpr, x: PrimExpr) -> PrimExpr:
    """Interpolate one channel plane at (y, x); 0 more than one pixel outside."""
    height, width = planes.height, planes.width
    inside = tir.all(y >= -1.0, y <= ops.cast(y.dtype, height), x >= -1.0, x <= ops.cast(x.dtype, width))
    y = ops.minimum(ops.maximum(y, ops.const(0, y.dtype)), ops.cast(y.dtype, height - 1))
    x = ops.minimum(ops.maximum(x, ops.const(0, x.dtype)), ops.cast(x.dtype, width - 1))
    top, left = pixel_of(tir.floor(y)), pixel_of(tir.floor(x))
    bottom, right = ops.minimum(top + 1, height - 1), ops.minimum(left + 1, width - 1)
    dy, dx = y - ops.cast(y.dtype, top), x - ops.cast(x.dtype, left)

    def at(row: PrimExpr, column: PrimExpr) -> PrimExpr:
        return data[base + (row * width + column) * planes.step]

    upper = at(top, left) * (1.0 - dx) + at(top, right) * dx
    lower = at(bottom, left) * (1.0 - dx) + at(bottom, right) * dx
    return tir.if_then_else(inside, upper * (1.0 - dy) + lower * dy, ops.const(0, data.dtype))


def _samples(sample_ratio: int, side: PrimExpr) -> PrimExpr:
    """Return the number of samples along the side of a bin."""
    return ops.as_expr(sample_ratio) if sample_ratio > 0 else pixel_of(tir.ceil(side))


def _reached(
    ib: Any, samples: PrimExpr, start: PrimExpr, side: PrimExpr, extent: int | PrimExpr
) -> tuple[PrimExpr, PrimExpr]:
    """The first sample of a bin that may lie in the image, and the one behind the last; outside all values are 0.

    A region may be any size: one of 2^30 pixels has as many samples, of which few are in the image.
    """
    if isinstance(samples, IntImm):
        return ops.const(0, "int32"), samples
    step = ops.cast("float32", side) / ops.cast("float32", samples)
    spare = tir.shift_right(samples, ops.const(19, "int32")) + 2  # what places are rounded by
    before, behind = (
        pixel_of(tir.floor((ops.cast("float32", edge) - ops.cast("float32", start)) / step)) for edge in (-1, extent)
    )
    first = ib.let("first", ops.maximum(ops.minimum(before - spare, samples), 0))
    return first, ib.let("behind", ops.maximum(ops.minimum(behind + spare, samples), first))


def roi_align_nchw(
    data: te.Tensor,
    rois: te.Tensor,
    pooled_size: Any,
    spatial_scale: float,
    mode: Any = "avg",
    sample_ratio: int = -1,
    aligned: bool = False,
) -> te.Tensor:
    """Pool each region's bins from interpolated samples: their mean, or (``mode`` max) their maximum.

    Parameters
    ----------
    data : (n, c, h, w)
    sample_ratio : samples along each side of a bin; as many as the bin covers pixels when not positive
    aligned : whether pixels have their centres between whole numbers, and regions may be smaller than one

    Returns (count, c, *pooled_size). He et al., Mask R-CNN, 2017.
    """
    return _roi_align(data, rois, pooled_size, spatial_scale, mode, sample_ratio, "NCHW", aligned)


def roi_align_nhwc(
    data: te.Tensor,
    rois: te.Tensor,
    pooled_size: Any,
    spatial_scale: float,
    mode: Any = "avg",
    sample_ratio: int = -1,
    aligned: bool = False,
) -> te.Tensor:
    """Compute ``roi_align_nchw`` of data (n, h, w, c); returns (count, *pooled_size, c)."""
    return _roi_align(data, rois, pooled_size, spatial_scale, mode, sample_ratio, "NHWC", aligned)


def _roi_align(
    data: te.Tensor,
    rois: te.Tensor,
    pooled_size: Any,
    spatial_scale: float,
    mode: Any,
    sample_ratio: int,
    layout: str,
    aligned: bool,
) -> te.Tensor:
    mode = mode.decode() if isinstance(mode, bytes) else {"0": "avg", "1": "max"}.get(str(mode), str(mode))
    if mode not in ("avg", "max"):
        raise InvalidShapeError(f"roi_align mode is avg or max, found {mode!r}")
    planes = _Planes.of(data, layout)
    channels = planes.channels
    count = get_const_tuple(rois.shape)[0]
    rows, columns = _pair(pooled_size)
    dtype = data.dtype
    scale, one, shift = (ops.const(v, dtype) for v in (spatial_scale, 1, 0.5 if aligned else 0))

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source, boxes, target = ib.buffer_ptr(ins[0]), ib.buffer_ptr(ins[1]), ib.buffer_ptr(outs[0])
        with thread_group(ib, count * channels, rows * columns, "plane", "parallel") as threads:
            plane = threads.row
            roi, channel = tir.indexdiv(plane, channels), tir.indexmod(plane, channels)
            base = planes.base(_int(boxes[roi * 5]), channel, planes.height, planes.width)
            left, top, right, bottom = (boxes[roi * 5 + i] * scale - shift for i in (1, 2, 3, 4))
            bin_h = (bottom - top if aligned else ops.maximum(bottom - top, one)) / float(rows)
            bin_w = (right - left if aligned else ops.maximum(right - left, one)) / float(columns)
            samples_y, samples_x = (_samples(sample_ratio, side) for side in (bin_h, bin_w))
            total = ib.allocate(dtype, (1,), name="total", scope="local")
            with threads.each(rows * columns, "cell") as cell:
                row, column = ops.cast(dtype, tir.indexdiv(cell, columns)), ops.cast(dtype, tir.indexmod(cell, columns))
                total[0] = ops.const(0, dtype) if mode == "avg" else tir.min_value(dtype)
                reach_y = _reached(ib, samples_y, top + bin_h * row, bin_h, planes.height)
                reach_x = _reached(ib, samples_x, left + bin_w * column, bin_w, planes.width)
                with ib.for_range(*reach_y, name="sy") as sy, ib.for_range(*reach_x, name="sx") as sx:
                    y = top + bin_h * (row + (ops.cast(dtype, sy) + 0.5) / ops.cast(dtype, samples_y))
                    x = left + bin_w * (column + (ops.cast(dtype, sx) + 0.5) / ops.cast(dtype, samples_x))
                    value = _bilinear(source, base, planes, y, x)
                    total[0] = total[0] + value if mode == "avg" else ops.maximum(total[0], value)
                at = planes.base(roi, channel, rows, columns) + cell * planes.step
                if mode == "avg":
                    samples = ops.cast(dtype, samples_y) * ops.cast(dtype, samples_x)
                    target[at] = total[0] / ops.maximum(samples, one)
                else:
                    all_seen = tir.all(
                        *(ops.equal(b - a, n) for (a, b), n in ((reach_y, samples_y), (reach_x, samples_x)))
                    )
                    target[at] = tir.Select(all_seen, total[0], ops.maximum(total[0], ops.const(0, dtype)))
        return ib.get()

    shape = (count, rows, columns, channels) if planes.last else (count, channels, rows, columns)
    return te.extern([shape], [data, rois], loops, dtype=[dtype], name="roi_align", tag="roi_align")


def roi_pool_nchw(data: te.Tensor, rois: te.Tensor, pooled_size: Any, spatial_scale: float) -> te.Tensor:
    """Return the maximum of each bin of each region, whose corners are rounded to pixels; 0 for an empty bin.

    Returns (count, c, *pooled_size). Girshick, Fast R-CNN, 2015.
    """
    return _roi_pool(data, rois, pooled_size, spatial_scale, "NCHW")


def roi_pool_nhwc(data: te.Tensor, rois: te.Tensor, pooled_size: Any, spatial_scale: float) -> te.Tensor:
    """Compute ``roi_pool_nchw`` of data (n, h, w, c); returns (count, *pooled_size, c)."""
    return _roi_pool(data, rois, pooled_size, spatial_scale, "NHWC")


def _roi_pool(data: te.Tensor, rois: te.Tensor, pooled_size: Any, spatial_scale: float, layout: str) -> te.Tensor:
    planes = _Planes.of(data, layout)
    channels, height, width = planes.channels, planes.height, planes.width
    count = get_const_tuple(rois.shape)[0]
    rows, columns = _pair(pooled_size)
    dtype = data.dtype
    scale = ops.const(spatial_scale, dtype)

    def span(start: PrimExpr, length: PrimExpr, cell: PrimExpr, cells: int, extent: int) -> tuple[PrimExpr, PrimExpr]:
        size = ops.cast("float32", length) / float(cells)
        first = _int(tir.floor(ops.cast("float32", cell) * size)) + start
        last = _int(tir.ceil((ops.cast("float32", cell) + 1.0) * size)) + start
        return ops.minimum(ops.maximum(first, 0), extent), ops.minimum(ops.maximum(last, 0), extent)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source, boxes, target = ib.buffer_ptr(ins[0]), ib.buffer_ptr(ins[1]), ib.buffer_ptr(outs[0])
        with thread_group(ib, count * channels, rows * columns, "plane", "parallel") as threads:
            plane = threads.row
            roi, channel = tir.indexdiv(plane, channels), tir.indexmod(plane, channels)
            base = planes.base(_int(boxes[roi * 5]), channel, height, width)
            left, top, right, bottom = (pixel_of(tir.round(boxes[roi * 5 + i] * scale)) for i in (1, 2, 3, 4))
            best = ib.allocate(dtype, (1,), name="best", scope="local")
            with threads.each(rows * columns, "cell") as cell:
                tall, wide = ops.maximum(bottom - top + 1, 1), ops.maximum(right - left + 1, 1)
                y0, y1 = span(top, tall, tir.indexdiv(cell, columns), rows, height)
                x0, x1 = span(left, wide, tir.indexmod(cell, columns), columns, width)
                empty = tir.any(y1 <= y0, x1 <= x0)
                best[0] = tir.if_then_else(empty, ops.const(0, dtype), tir.min_value(dtype))
                with ib.for_range(y0, y1, name="y") as y, ib.for_range(x0, x1, name="x") as x:
                    best[0] = ops.maximum(best[0], source[base + (y * width + x) * planes.step])
                target[planes.base(roi, channel, rows, columns) + cell * planes.step] = best[0]
        return ib.get()

    shape = (count, rows, columns, channels) if planes.last else (count, channels, rows, columns)
    return te.extern([shape], [data, rois], loops, dtype=[dtype], name="roi_pool", tag="roi_pool")
