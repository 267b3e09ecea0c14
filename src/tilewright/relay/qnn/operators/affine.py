"""qnn.quantize and qnn.dequantize: between numbers and the integers that stand for them.

An integer q stands for ``(q - zero_point) * scale``. Scales are float32, zero points integers, both scalars, one
element, or a vector along ``axis``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay import op as relay_op
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.qnn.operators.parameters import RESULT, QnnDef, along, check_types, extent_along, rank_of, spread
from tilewright.relay.qnn.operators.rounding import float_range, saturate, saturated


class QuantizeAttrs(Attrs):
    """The type of the integers, and the dimension that vectors of scales and zero points run along."""

    axis: int = -1
    out_dtype: str = "int8"


class DequantizeAttrs(Attrs):
    """The dimension that vectors of scales and zero points run along."""

    axis: int = -1


def _check(
    operator: type[QnnDef[QuantizeAttrs]] | type[QnnDef[DequantizeAttrs]], types: Sequence[Type], axis: int
) -> TensorType:
    """The type of the data, once all types are known; raises where scale or zero point do not fit it."""
    names = operator.inputs or ()
    data = relations.tensors(types, names)[0]
    vectors = any(t.shape and relations.known(t.shape[0]) not in (None, 1) for t in types[1:])  # type: ignore[attr-defined]
    check_types(names, types, extent_along(data.shape, axis, names) if vectors else None)
    return data


class Quantize(QnnDef[QuantizeAttrs]):
    """``saturate(round(data / scale) + zero_point)``, halves to even; what ONNX's QuantizeLinear says."""

    name = "qnn.quantize"
    inputs = ("data", "output_scale", "output_zero_point")
    owners = (("output", RESULT),)
    any_zero = True
    support_level = 11

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: QuantizeAttrs, solver: TypeSolver) -> Type | None:
        """The shape of the data, and ``out_dtype``."""
        data = _check(Quantize, types, attrs.axis)
        relations.require(data.dtype == "float32", f"what is quantized is float32, found {data.dtype}")
        if not dt.is_int(attrs.out_dtype) or dt.bits(attrs.out_dtype) > 32:
            raise TypeInferenceError(f"numbers are quantized to integers of up to 32 bits, found {attrs.out_dtype}")
        return TensorType(data.shape, attrs.out_dtype)

    @staticmethod
    def evaluate(attrs: QuantizeAttrs, inputs: Sequence[Array]) -> list[Array]:
        """In float32; the zero point is added to more than 16 bits as an integer."""
        data, scale, zero = inputs
        dtype, rank = attrs.out_dtype, data.ndim
        with np.errstate(all="ignore"):
            rounded = np.rint(data / along(scale, rank, attrs.axis))
            if dt.bits(dtype) > 16:
                return [saturated(np.clip(rounded, *float_range(dtype)), along(zero, rank, attrs.axis), dtype)]
            shifted = rounded + along(zero, rank, attrs.axis).astype(np.float32)
        return [np.clip(shifted, *dt.int_range(dtype)).astype(dtype)]

    @staticmethod
    def canonicalize_qnn(attrs: QuantizeAttrs, args: Sequence[RelayExpr], types: Sequence[Type]) -> RelayExpr:
        """In floating point."""
        scale, zero = (spread(args[i], types[i], rank_of(types[0]), attrs.axis) for i in (1, 2))
        return saturate(relay_op.nearbyint(relay_op.divide(args[0], scale)), "float32", zero, attrs.out_dtype)


class Dequantize(QnnDef[DequantizeAttrs]):
    """``(data - zero_point) * scale``; what ONNX's DequantizeLinear says."""

    name = "qnn.dequantize"
    inputs = ("data", "input_scale", "input_zero_point")
    owners = (("input", "data"),)
    any_zero = True
    support_level = 11

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: DequantizeAttrs, solver: TypeSolver) -> Type | None:
        """The shape of the data, in float32."""
        data = _check(Dequantize, types, attrs.axis)
        relations.require(dt.is_int(data.dtype), f"integers are dequantized, found {data.dtype}")
        return TensorType(data.shape, "float32")

    @staticmethod
    def evaluate(attrs: DequantizeAttrs, inputs: Sequence[Array]) -> list[Array]:
        """The difference in integers, the product in float32."""
        data, scale, zero = inputs
        whole = data.astype(np.int32) - along(zero, data.ndim, attrs.axis).astype(np.int32)
        return [whole.astype(np.float32) * along(scale, data.ndim, attrs.axis)]

    @staticmethod
    def canonicalize_qnn(attrs: DequantizeAttrs, args: Sequence[RelayExpr], types: Sequence[Type]) -> RelayExpr:
        """A difference of integers, a product of floats."""
        scale, zero = (spread(args[i], types[i], rank_of(types[0]), attrs.axis) for i in (1, 2))
        whole = relay_op.subtract(relay_op.cast(args[0], "int32"), relay_op.cast(zero, "int32"))
        return relay_op.multiply(relay_op.cast(whole, "float32"), scale)


quantize = builder(Quantize)
dequantize = builder(Dequantize)
