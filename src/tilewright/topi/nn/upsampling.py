"""Upsampling by a factor: resizing with the arguments of the upsampling operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.topi.image.resize import resize2d, resize3d
from tilewright.topi.utils import get_const_tuple, simplify

_METHODS = {
    "nearest_neighbor": "nearest_neighbor",
    "nearest": "nearest_neighbor",
    "bilinear": "linear",
    "trilinear": "linear",
    "linear": "linear",
    "bicubic": "cubic",
    "cubic": "cubic",
}


def scaled_extent(extent: Any, scale: Any) -> Any:
    """Return an extent times a factor, ties rounded up; for expressions an int32 expression."""
    if isinstance(extent, PrimExpr) and isinstance(scale, (int, float)) and scale == int(scale):
        return extent * int(scale)
    if isinstance(extent, PrimExpr) or isinstance(scale, PrimExpr):
        factor = scale if isinstance(scale, PrimExpr) else ops.const(scale, "float64")
        return ops.cast("int32", tir.round(ops.cast("float64", extent) * ops.cast("float64", factor)))
    return math.floor(extent * scale + 0.5)


def _size(
    data: te.Tensor, layout: str, axes: str, scales: Sequence[float], output_shape: Sequence[Any] | None
) -> list[Any]:
    if output_shape is not None:
        return [simplify(d) for d in output_shape]
    shape = get_const_tuple(data.shape)
    letters = [x for x in layout if x.isalpha()]
    return [scaled_extent(shape[letters.index(a)], s) for a, s in zip(axes, scales, strict=True)]


def upsampling(
    data: te.Tensor,
    scale_h: float,
    scale_w: float,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    output_shape: Sequence[Any] | None = None,
) -> te.Tensor:
    """Enlarge H and W; ``method`` is nearest_neighbor, bilinear or bicubic."""
    size = _size(data, layout, "HW", (scale_h, scale_w), output_shape)
    transform = "align_corners" if align_corners else "asymmetric"
    return resize2d(data, size, layout, _METHODS[method], transform)


def upsampling3d(
    data: te.Tensor,
    scale_d: float,
    scale_h: float,
    scale_w: float,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
    output_shape: Sequence[Any] | None = None,
) -> te.Tensor:
    """Enlarge D, H and W; ``method`` is nearest_neighbor or trilinear."""
    size = _size(data, layout, "DHW", (scale_d, scale_h, scale_w), output_shape)
    return resize3d(data, size, layout, _METHODS[method], coordinate_transformation_mode)
