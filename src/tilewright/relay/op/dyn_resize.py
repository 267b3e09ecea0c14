"""Resizing to sizes and by factors that the program computes; see ``relay.op.dyn``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import te, tir, topi
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.type import TensorType
from tilewright.relay.op.dyn import Array, Dims, Values, declare_dyn, ints_of
from tilewright.relay.op.image.resize import Resize2DAttrs
from tilewright.relay.op.nn.resample import UpSampling3DAttrs, UpSamplingAttrs
from tilewright.tir.layout import layout as parse_layout
from tilewright.topi.nn.upsampling import scaled_extent


def _axes(layout: str, spatial: str) -> list[int]:
    return [parse_layout(layout).index_of(axis) for axis in spatial]


def _resized(layout: str, type_: TensorType, spatial: str, dtype: str = "") -> TensorType:
    dims: list[Any] = list(type_.shape)
    for axis in _axes(layout, spatial):
        dims[axis] = AnyDim()
    return TensorType(dims, dtype or type_.dtype)


def _with_sizes(layout: str, spatial: str, dims: Sequence[PrimExpr], sizes: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Return the result's dimensions; -1, whose allocation fails, where an empty image would be enlarged."""
    shape = list(dims)
    for axis, size in zip(_axes(layout, spatial), sizes, strict=True):
        nothing = ops.logical_and(ops.equal(dims[axis], 0), size > 0)
        shape[axis] = tir.Select(nothing, ops.const(-1, "int64"), size)
    return shape


def _sizes_of(layout: str, spatial: str, out_type: TensorType) -> list[PrimExpr]:
    return [out_type.shape[axis] for axis in _axes(layout, spatial)]


def _enlarged(spatial: str) -> Callable[[Any, Dims, Values], list[PrimExpr]]:
    """Multiply extents by factors and round as ``nn.upsampling`` does."""

    def shape(attrs: Any, dims: Dims, values: Values) -> list[PrimExpr]:
        sizes = []
        for place, axis in enumerate(_axes(attrs.layout, spatial), 1):
            sizes.append(ops.cast("int64", scaled_extent(dims[0][axis], values(place)[0])))
        return _with_sizes(attrs.layout, spatial, dims[0], sizes)

    return shape


def _factors(*names: str) -> Callable[[Any, Sequence[Array]], dict[str, Any]]:
    return lambda attrs, values: {n: float(np.asarray(v).reshape(())) for n, v in zip(names, values, strict=True)}


def _upsampling(attrs: UpSamplingAttrs, inputs: Sequence[te.Tensor], out_type: TensorType) -> list[te.Tensor]:
    size = _sizes_of(attrs.layout, "HW", out_type)
    how = attrs.method, bool(attrs.align_corners)
    return [topi.nn.upsampling(inputs[0], 0, 0, attrs.layout, *how, output_shape=size)]


def _upsampling3d(attrs: UpSampling3DAttrs, inputs: Sequence[te.Tensor], out_type: TensorType) -> list[te.Tensor]:
    size = _sizes_of(attrs.layout, "DHW", out_type)
    how = attrs.method, attrs.coordinate_transformation_mode
    return [topi.nn.upsampling3d(inputs[0], 0, 0, 0, attrs.layout, *how, output_shape=size)]


def _resize2d(attrs: Resize2DAttrs, inputs: Sequence[te.Tensor], out_type: TensorType) -> list[te.Tensor]:
    how = attrs.method, attrs.coordinate_transformation_mode, attrs.rounding_method
    cubic = attrs.cubic_alpha, attrs.cubic_exclude
    size = _sizes_of(attrs.layout, "HW", out_type)
    return [topi.image.resize2d(inputs[0], size, attrs.layout, *how, *cubic, attrs.out_dtype or None)]


declare_dyn(
    "dyn.nn.upsampling", "nn.upsampling", ("data", "scale_h", "scale_w"), (1, 2), UpSamplingAttrs,
    fields=_factors("scale_h", "scale_w"), infer=lambda types, attrs: _resized(attrs.layout, types[0], "HW"),
    shape=_enlarged("HW"), compute=_upsampling,
)  # fmt: skip
declare_dyn(
    "dyn.nn.upsampling3d", "nn.upsampling3d", ("data", "scale_d", "scale_h", "scale_w"), (1, 2, 3), UpSampling3DAttrs,
    fields=_factors("scale_d", "scale_h", "scale_w"),
    infer=lambda types, attrs: _resized(attrs.layout, types[0], "DHW"),
    shape=_enlarged("DHW"), compute=_upsampling3d,
)  # fmt: skip
declare_dyn(
    "dyn.image.resize2d", "image.resize2d", ("data", "size"), (1,), Resize2DAttrs,
    fields=lambda attrs, values: {"size": ints_of(values[0])},
    infer=lambda types, attrs: _resized(attrs.layout, types[0], "HW", attrs.out_dtype),
    shape=lambda attrs, dims, values: _with_sizes(attrs.layout, "HW", dims[0], values(1)), compute=_resize2d,
)  # fmt: skip
