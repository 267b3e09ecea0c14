"""vision.roi_align and vision.roi_pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import layout_rules, relations
from tilewright.relay.op.attributes import call, pair
from tilewright.relay.op.builder import exported
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.layout_rules import InferCorrectLayoutOutput
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.op.transform.checks import checked_first
from tilewright.tir.layout import Layout
from tilewright.tir.layout import layout as parse_layout


class ROIAlignAttrs(Attrs):
    """Size of the result, scale of the coordinates, samples in a bin, layout and mode (avg or max).

    ``aligned`` selects ONNX's half-pixel coordinates, which allow regions smaller than one pixel.
    """

    pooled_size: tuple[int, ...]
    spatial_scale: float
    sample_ratio: int = -1
    layout: str = "NCHW"
    mode: str = "avg"
    aligned: bool = False

    internal = ("aligned",)


class ROIPoolAttrs(Attrs):
    """Size of the result, scale of the coordinates and layout."""

    pooled_size: tuple[int, ...]
    spatial_scale: float
    layout: str = "NCHW"


def _roi_type(types: Sequence[Type], attrs: ROIAlignAttrs | ROIPoolAttrs, solver: TypeSolver) -> Type | None:
    data, rois = relations.tensors(types, ("data", "rois"))
    relations.require_rank(data, 4, "data")
    relations.require_rank(rois, 2, "rois")
    solver.assert_equal(5, rois.shape[1], "values of a region")
    if attrs.layout == "NHWC":
        return TensorType((rois.shape[0], *attrs.pooled_size, data.shape[3]), data.dtype)
    relations.require(attrs.layout == "NCHW", f"layout should be NCHW or NHWC, found {attrs.layout!r}")
    return TensorType((rois.shape[0], data.shape[1], *attrs.pooled_size), data.dtype)


def _roi_layouts(
    attrs: ROIAlignAttrs | ROIPoolAttrs,
    new_in_layouts: Sequence[Layout],
    old_in_layouts: Sequence[Layout],
    old_in_types: Sequence[Type],
) -> InferCorrectLayoutOutput:
    """Keep the layout of the attributes for data and result; regions have no layout."""
    data = parse_layout(attrs.layout)
    return InferCorrectLayoutOutput([data, layout_rules.UNDEFINED], [data], attrs)


def _planes(data: Array, layout: str) -> Array:
    """Return the data with its channels before height and width."""
    return np.moveaxis(data, 3, 1) if layout == "NHWC" else data


def _in_layout(result: Array, layout: str) -> Array:
    return np.moveaxis(result, 1, 3) if layout == "NHWC" else result


def _sample(plane: Array, y: float, x: float) -> Array:
    """Return the interpolated values of all channels (c, h, w) at (y, x)."""
    height, width = plane.shape[1:]
    if y < -1 or y > height or x < -1 or x > width:
        return np.zeros(plane.shape[0])
    y, x = min(max(y, 0.0), height - 1), min(max(x, 0.0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper = plane[:, top, left] * (1 - (x - left)) + plane[:, top, right] * (x - left)
    lower = plane[:, bottom, left] * (1 - (x - left)) + plane[:, bottom, right] * (x - left)
    return np.asarray(upper * (1 - (y - top)) + lower * (y - top))


class ROIAlign(OpDef[ROIAlignAttrs]):
    """Interpolated samples of each bin of each region, averaged."""

    name = "vision.roi_align"
    inputs = ("data", "rois")
    pattern = OpPattern.OPAQUE
    in_float32 = True

    infer_type = staticmethod(_roi_type)
    strategy = strategies.roi_align_strategy
    infer_correct_layout = staticmethod(_roi_layouts)
    convert_op_layout = staticmethod(layout_rules.convert_layout_attr("vision.roi_align"))

    @staticmethod
    def check_indices(attrs: ROIAlignAttrs, args: Sequence[RelayExpr]) -> list[RelayExpr]:
        """The first number of a region is its index in the batch."""
        return [args[0], checked_first("vision.roi_align", args[1], args[0])]

    @staticmethod
    def evaluate(attrs: ROIAlignAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, rois = _planes(inputs[0].astype(np.float64), attrs.layout), inputs[1].astype(np.float64)
        rows, columns = attrs.pooled_size
        result = np.zeros((len(rois), data.shape[1], rows, columns))
        for r, (batch, *corners) in enumerate(rois):
            left, top, right, bottom = (c * attrs.spatial_scale - 0.5 * attrs.aligned for c in corners)
            tall, wide = (v if attrs.aligned else max(v, 1.0) for v in (bottom - top, right - left))
            bin_h, bin_w = tall / rows, wide / columns
            ny, nx = (attrs.sample_ratio if attrs.sample_ratio > 0 else math.ceil(b) for b in (bin_h, bin_w))
            for i, j in np.ndindex(rows, columns):
                samples = [
                    _sample(data[int(batch)], top + bin_h * (i + (y + 0.5) / ny), left + bin_w * (j + (x + 0.5) / nx))
                    for y, x in np.ndindex(ny, nx)
                ]
                if samples:
                    result[r, :, i, j] = np.mean(samples, 0) if attrs.mode == "avg" else np.max(samples, 0)
        return [_in_layout(result, attrs.layout).astype(inputs[0].dtype)]


class ROIPool(OpDef[ROIPoolAttrs]):
    """The maximum of each bin of each region."""

    name = "vision.roi_pool"
    inputs = ("data", "rois")
    pattern = OpPattern.OPAQUE

    infer_type = staticmethod(_roi_type)
    schedule = strategies.schedule_roi_pool
    infer_correct_layout = staticmethod(_roi_layouts)
    convert_op_layout = staticmethod(layout_rules.convert_layout_attr("vision.roi_pool"))

    @staticmethod
    def check_indices(attrs: ROIPoolAttrs, args: Sequence[RelayExpr]) -> list[RelayExpr]:
        """The first number of a region is its index in the batch."""
        return [args[0], checked_first("vision.roi_pool", args[1], args[0])]

    @staticmethod
    def compute(attrs: ROIPoolAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        kernel = topi.vision.roi_pool_nhwc if attrs.layout == "NHWC" else topi.vision.roi_pool_nchw
        return [kernel(inputs[0], inputs[1], attrs.pooled_size, attrs.spatial_scale)]

    @staticmethod
    def evaluate(attrs: ROIPoolAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, rois = _planes(inputs[0], attrs.layout), inputs[1]
        rows, columns = attrs.pooled_size
        height, width = data.shape[2:]
        result = np.zeros((len(rois), data.shape[1], rows, columns), data.dtype)
        for r, (batch, *corners) in enumerate(rois):
            left, top, right, bottom = (int(np.floor(c * attrs.spatial_scale + 0.5)) for c in corners)
            bin_h, bin_w = max(bottom - top + 1, 1) / rows, max(right - left + 1, 1) / columns
            for i, j in np.ndindex(rows, columns):
                y0, y1 = (min(max(int(v) + top, 0), height) for v in (np.floor(i * bin_h), np.ceil((i + 1) * bin_h)))
                x0, x1 = (min(max(int(v) + left, 0), width) for v in (np.floor(j * bin_w), np.ceil((j + 1) * bin_w)))
                window = data[int(batch), :, y0:y1, x0:x1]
                result[r, :, i, j] = window.max((1, 2)) if window.size else 0
        return [_in_layout(result, attrs.layout)]


def _check_layout(layout: str) -> None:
    if layout not in ("NCHW", "NHWC"):
        raise UnsupportedError(
            f"regions are pooled of data in layout NCHW or NHWC, found {layout!r}; use layout_transform first"
        )


@exported
def roi_align(
    data: RelayExpr,
    rois: RelayExpr,
    pooled_size: Any,
    spatial_scale: float,
    sample_ratio: int = -1,
    layout: str = "NCHW",
    mode: str = "avg",
) -> Call:
    """Average interpolated samples of ``rois`` (count, 5: batch, left, top, right, bottom): (count, c, *pooled_size).

    With ``layout`` NHWC, of data (n, h, w, c): (count, *pooled_size, c).
    """
    _check_layout(layout)
    attrs = ROIAlignAttrs(pair(pooled_size), float(spatial_scale), int(sample_ratio), layout, mode)
    return call("vision.roi_align", [data, rois], attrs)


@exported
def roi_pool(data: RelayExpr, rois: RelayExpr, pooled_size: Any, spatial_scale: float, layout: str = "NCHW") -> Call:
    """Return the maxima of the bins of ``rois``: (count, c, *pooled_size), or (count, *pooled_size, c) in layout
    NHWC.
    """
    _check_layout(layout)
    return call("vision.roi_pool", [data, rois], ROIPoolAttrs(pair(pooled_size), float(spatial_scale), layout))
