"""qnn.quantize and qnn.dequantize: between numbers and the integers that stand for them.

An integer q stands for ``(q - zero_point) * scale``. Scales are float32, zero points integers, both scalars, one
element, or a vector along ``axis``. Both operators are gone after ``qnn.transform.CanonicalizeOps``, with which
``relay.build`` begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.definition import OpDef
from tilewright.relay.op.families import Array
from tilewright.relay.op.relations import known


class QuantizeAttrs(Attrs):
    """The type of the integers, and the dimension that vectors of scales and zero points run along."""

    axis: int = -1
    out_dtype: str = "int8"


class DequantizeAttrs(Attrs):
    """The dimension that vectors of scales and zero points run along."""

    axis: int = -1


def _check(types: Sequence[Type], attrs: Any) -> TensorType | None:
    """The type of the data, if it is known; raises where scale or zero point do not fit it."""
    found = relations.tensors(types, ("data", "scale", "zero_point"))
    if found is None:
        return None
    data, scale, zero_point = found
    relations.require(scale.dtype == "float32", f"scales are float32, found {scale.dtype}")
    relations.require(dt.is_int(zero_point.dtype), f"zero points are integers, found {zero_point.dtype}")
    for what, type_ in (("scale", scale), ("zero_point", zero_point)):
        if len(type_.shape) > 1:
            raise TypeInferenceError(f"{what} is a number or a vector, found rank {len(type_.shape)}")
        extent = known(type_.shape[0]) if type_.shape else 1
        if extent in (None, 1):
            continue
        along = known(data.shape[relations.normalize_axis(attrs.axis, len(data.shape))])
        if along not in (None, extent):
            raise TypeInferenceError(f"{what} has {extent} elements, axis {attrs.axis} of the data {along}")
    return data


def _along(array: Array, rank: int, axis: int) -> Array:
    """A scale or zero point, shaped to broadcast."""
    if array.size == 1:
        return array.reshape(())
    return array.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


class Quantize(OpDef):
    """``saturate(round(data / scale) + zero_point)``, halves to even; what ONNX's QuantizeLinear says."""

    name = "qnn.quantize"
    inputs = ("data", "output_scale", "output_zero_point")
    attrs_type = QuantizeAttrs
    non_computational = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
        """The shape of the data, and ``out_dtype``."""
        data = _check(types, attrs)
        if data is None:
            return None
        relations.require(data.dtype == "float32", f"what is quantized is float32, found {data.dtype}")
        if not dt.is_int(attrs.out_dtype) or dt.bits(attrs.out_dtype) > 32:
            raise TypeInferenceError(f"numbers are quantized to integers of up to 32 bits, found {attrs.out_dtype}")
        return TensorType(data.shape, attrs.out_dtype)

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """In float32."""
        data, scale, zero = inputs
        rank = data.ndim
        with np.errstate(all="ignore"):
            rounded = np.rint(data / _along(scale, rank, attrs.axis))
            shifted = rounded + _along(zero, rank, attrs.axis).astype(np.float32)
        return [np.clip(shifted, *dt.int_range(attrs.out_dtype)).astype(attrs.out_dtype)]


class Dequantize(OpDef):
    """``(data - zero_point) * scale``; what ONNX's DequantizeLinear says."""

    name = "qnn.dequantize"
    inputs = ("data", "input_scale", "input_zero_point")
    attrs_type = DequantizeAttrs
    non_computational = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: Any, solver: Any) -> Type | None:
        """The shape of the data, in float32."""
        data = _check(types, attrs)
        if data is None:
            return None
        relations.require(dt.is_int(data.dtype), f"integers are dequantized, found {data.dtype}")
        return TensorType(data.shape, "float32")

    @staticmethod
    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
        """The difference in integers, the product in float32."""
        data, scale, zero = inputs
        whole = data.astype(np.int32) - _along(zero, data.ndim, attrs.axis).astype(np.int32)
        return [whole.astype(np.float32) * _along(scale, data.ndim, attrs.axis)]


def quantize(
    data: RelayExpr,
    output_scale: RelayExpr,
    output_zero_point: RelayExpr,
    axis: int = -1,
    out_dtype: str = "int8",
) -> Call:
    """The integers that stand for ``data`` (float32): ``saturate(round(data / scale) + zero_point)``."""
    return call(Quantize.name, [data, output_scale, output_zero_point], QuantizeAttrs(int(axis), out_dtype))


def dequantize(data: RelayExpr, input_scale: RelayExpr, input_zero_point: RelayExpr, axis: int = -1) -> Call:
    """The numbers (float32) that the integers ``data`` stand for: ``(data - zero_point) * scale``."""
    return call(Dequantize.name, [data, input_scale, input_zero_point], DequantizeAttrs(int(axis)))
