"""qnn.simulated_quantize and qnn.simulated_dequantize: quantization that keeps floats, of a type chosen at run time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir import dtype as dt
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, const
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import Operand, call, operand
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.qnn.operators.parameters import check_types, extent_along
from tilewright.topi.nn.qnn import SQNN_CODE_TO_DTYPE, SQNN_DISABLE, SQNN_DTYPE_TO_CODE


class SimulatedAttrs(Attrs):
    """The dimension that vectors of scales and zero points run along."""

    axis: int = -1


class _Simulated(OpDef[SimulatedAttrs]):
    """Base of both operators: floats in and out; the type of the integers is an operand, by its code."""

    pattern = OpPattern.INJECTIVE
    support_level = 11

    @classmethod
    def infer_type(cls, types: Sequence[Type], attrs: SimulatedAttrs, solver: TypeSolver) -> Type | None:
        """That of the data."""
        names = cls.inputs or ()
        data, code = relations.tensors(types[:2], names)
        relations.require(dt.is_float(data.dtype), f"data is of floats, found {data.dtype}")
        relations.require(not code.shape, f"{names[1]} is one number, the code of a type, found rank {len(code.shape)}")
        return data if check_types(names, types, extent_along(data.shape, attrs.axis, names)) else None

    @staticmethod
    @abstractmethod
    def meaning(data: Array, code: int, scale: Array, zero: Array) -> Array:
        """Return the result for integers of a code's type; scale and zero broadcast, zero is of the data's type."""

    @classmethod
    def evaluate(cls, attrs: SimulatedAttrs, inputs: Sequence[Array]) -> list[Array]:
        """In the data's type."""
        data, code, scale, zero = inputs
        if int(code) == SQNN_DISABLE:
            return [data]
        scale, zero = (_along(p, data, attrs.axis) for p in (scale, zero))
        return [cls.meaning(data, int(code), scale, zero.astype(data.dtype))]


class SimulatedQuantize(_Simulated):
    """The integers that quantize gives, as floats."""

    name = "qnn.simulated_quantize"
    inputs = ("data", "out_dtype", "output_scale", "output_zero_point")

    @staticmethod
    def compute(attrs: SimulatedAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        data, code, scale, zero = inputs
        return [topi.nn.simulated_quantize(data, code, scale, zero, _axis(attrs, out_type))]

    @staticmethod
    def meaning(data: Array, code: int, scale: Array, zero: Array) -> Array:
        """Return the nearest integers of the type."""
        return np.clip(np.rint(data / scale) + zero, *map(data.dtype.type, dt.int_range(SQNN_CODE_TO_DTYPE[code])))


class SimulatedDequantize(_Simulated):
    """The numbers that integers, given as floats, stand for."""

    name = "qnn.simulated_dequantize"
    inputs = ("data", "in_dtype", "input_scale", "input_zero_point")

    @staticmethod
    def compute(attrs: SimulatedAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        data, code, scale, zero = inputs
        return [topi.nn.simulated_dequantize(data, code, scale, zero, _axis(attrs, out_type))]

    @staticmethod
    def meaning(data: Array, code: int, scale: Array, zero: Array) -> Array:
        """Return the numbers that the integers stand for."""
        return (data - zero) * scale


def _along(parameter: Array, data: Array, axis: int) -> Array:
    """A vector of one element or one for each along an axis, shaped to broadcast."""
    return parameter.reshape([-1 if i == axis % data.ndim else 1 for i in range(data.ndim)])


def _axis(attrs: SimulatedAttrs, type_: Type) -> int:
    assert isinstance(type_, TensorType)
    return int(attrs.axis) % len(type_.shape)


def _operands(data: Operand, dtype: Any, scale: Operand, zero: Operand) -> list[RelayExpr]:
    if isinstance(dtype, str):
        if dtype not in SQNN_DTYPE_TO_CODE:
            raise TilewrightError(f"a simulated type is one of {', '.join(SQNN_DTYPE_TO_CODE)}, found {dtype!r}")
        dtype = const(SQNN_DTYPE_TO_CODE[dtype], "int32")
    vectors = [relay_op.reshape(operand(parameter), newshape=(-1,)) for parameter in (scale, zero)]
    return [operand(data), operand(dtype), *vectors]


def simulated_quantize(
    data: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    axis: int = -1,
    out_dtype: str | RelayExpr = "int8",
) -> Call:
    """Build what ``quantize`` gives, as floats; ``out_dtype`` may be a scalar that the program computes."""
    args = _operands(data, out_dtype, output_scale, output_zero_point)
    return call(SimulatedQuantize.name, args, SimulatedAttrs(int(axis)))


def simulated_dequantize(
    data: Operand,
    input_scale: Operand,
    input_zero_point: Operand,
    axis: int = -1,
    in_dtype: str | RelayExpr = "int8",
) -> Call:
    """Build what ``dequantize`` gives of integers as floats; ``in_dtype`` may be a scalar that the program computes."""
    args = _operands(data, in_dtype, input_scale, input_zero_point)
    return call(SimulatedDequantize.name, args, SimulatedAttrs(int(axis)))
