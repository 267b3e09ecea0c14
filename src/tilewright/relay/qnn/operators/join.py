"""qnn.concatenate: quantized tensors, each with its own scale and zero point, joined as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import IncompleteType, TupleType, Type
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Tuple, TupleGetItem
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import Operand, call, operand, tuple_operand, whole_int
from tilewright.relay.op.definition import TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.transform.join import Concatenate as FloatConcatenate
from tilewright.relay.op.transform.join import ConcatenateAttrs
from tilewright.relay.qnn.operators import layouts
from tilewright.relay.qnn.operators.parameters import RESULT, QnnDef, check_types, dtype_of, same_value
from tilewright.relay.qnn.operators.requantize import requantize_by_operators, requantized
from tilewright.relay.qnn.operators.rounding import UPWARD, check_mode
from tilewright.relay.type_infer.describe import describe


class QnnConcatenateAttrs(Attrs):
    """The dimension along which tensors are joined, and how halves round: UPWARD, TONEAREST or TOEVEN."""

    axis: int = 0
    rounding: str = UPWARD


class Concatenate(QnnDef[QnnConcatenateAttrs]):
    """The tensors of ``data``, each requantized to the result's scale and zero point, joined along ``axis``."""

    name = "qnn.concatenate"
    inputs = ("data", "input_scales", "input_zero_points", "output_scale", "output_zero_point")
    owners = (("input", "data"), ("output", RESULT))
    support_level = 11

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: QnnConcatenateAttrs, solver: TypeSolver) -> Type | None:
        """As concatenate, of integers."""
        check_mode(attrs.rounding)
        result = FloatConcatenate.infer_type(types[:1], ConcatenateAttrs(attrs.axis), solver)
        if result is None:
            return None
        relations.require(dt.is_int(dtype_of(result)), f"integers are joined, found {dtype_of(result)}")
        complete = check_types(Concatenate.inputs[3:], types[3:])
        for name, type_ in zip(Concatenate.inputs[1:3], types[1:3], strict=True):
            fields = _fields(name, type_, types[0])
            complete = complete and fields is not None and check_types([name[:-1]] * len(fields), fields)
        return result if complete else None

    @staticmethod
    def evaluate(attrs: QnnConcatenateAttrs, inputs: Sequence[Array]) -> list[Array]:
        """The definition."""
        *given, scale, zero = inputs
        count = len(given) // 3
        data, scales, zeros = given[:count], given[count : 2 * count], given[2 * count :]
        parts = [
            requantized(x, s.reshape(()), z.reshape(()), scale, zero, attrs.rounding, str(x.dtype))
            for x, s, z in zip(data, scales, zeros, strict=True)
        ]
        return FloatConcatenate.evaluate(ConcatenateAttrs(attrs.axis), parts)

    @staticmethod
    def canonicalize_qnn(attrs: QnnConcatenateAttrs, args: Sequence[RelayExpr], types: Sequence[Type]) -> RelayExpr:
        """concatenate of what requantize gives."""
        data, scales, zeros = (_parts(arg, type_) for arg, type_ in zip(args[:3], types[:3], strict=True))
        kinds: Any = [type_.fields for type_ in types[:3]]  # type: ignore[attr-defined]
        parts = []
        for tensor, scale, zero, *own in zip(data, scales, zeros, *kinds, strict=True):
            if same_value(scale, args[3]) and same_value(zero, args[4]):
                parts.append(tensor)
                continue
            operands = (tensor, scale, zero, args[3], args[4])
            parts.append(requantize_by_operators(operands, (*own, *types[3:5]), -1, attrs.rounding, dtype_of(own[0])))
        return relay_op.concatenate(parts, attrs.axis)

    infer_correct_layout = staticmethod(layouts.concatenate)


def _fields(name: str, type_: Type, data: Type) -> Sequence[Type] | None:
    if isinstance(type_, IncompleteType):
        return None
    if not isinstance(type_, TupleType):
        raise TypeInferenceError(f"{name} is a tuple with one for each tensor, found {describe(type_)}")
    assert isinstance(data, TupleType)
    if len(type_.fields) != len(data.fields):
        raise TypeInferenceError(f"{name} has {len(type_.fields)} elements for {len(data.fields)} tensors")
    return type_.fields


def _parts(expr: RelayExpr, type_: Type) -> list[RelayExpr]:
    if isinstance(expr, Tuple):
        return list(expr.fields)
    assert isinstance(type_, TupleType)
    return [TupleGetItem(expr, i) for i in range(len(type_.fields))]


def concatenate(
    data: RelayExpr | Sequence[Operand],
    input_scales: RelayExpr | Sequence[Operand],
    input_zero_points: RelayExpr | Sequence[Operand],
    output_scale: Operand,
    output_zero_point: Operand,
    axis: int,
    rounding: str = UPWARD,
) -> Call:
    """The quantized tensors ``data`` joined along ``axis``, in units of ``output_scale``."""
    args = [*(tuple_operand(part) for part in (data, input_scales, input_zero_points))]
    args += [operand(output_scale), operand(output_zero_point)]
    return call(Concatenate.name, args, QnnConcatenateAttrs(whole_int(axis), rounding))
