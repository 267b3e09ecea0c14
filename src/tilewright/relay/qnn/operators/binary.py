"""qnn.add, qnn.subtract and qnn.mul: of two quantized tensors, which broadcast, a third one of the same type.

mul requantizes the product of the integers less their zero points. add and subtract requantize both operands to the
scale of the result (UPWARD, TONEAREST, TVM 0.8's answers); by TOEVEN they round once, where the operands are bytes::

    clip(rint((a - za) * fa + (b - zb) * fb) + zo)      fa = sa / so, rounded to 15 bits

Both products are exact in float32 then, so that a fused multiply-add gives what two operations give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.qnn.operators import layouts
from tilewright.relay.qnn.operators.parameters import RESULT, QnnDef, check_types, dtype_of, is_zero, number, value_of
from tilewright.relay.qnn.operators.product import less
from tilewright.relay.qnn.operators.requantize import requantize_by_operators, requantized
from tilewright.relay.qnn.operators.rounding import TOEVEN, UPWARD, check_mode, saturate, saturated

_BITS = 15  # of a factor: with 9 of the difference of two bytes, 24
_INPUTS = (
    "lhs", "rhs", "lhs_scale", "lhs_zero_point", "rhs_scale", "rhs_zero_point", "output_scale", "output_zero_point",
)  # fmt: skip
_NUMBER, _SCALE = TensorType((), "int32"), TensorType((), "float32")


class RoundingAttrs(Attrs):
    """How halves round: UPWARD, TONEAREST or TOEVEN."""

    rounding: str = UPWARD


def few_bits(number: float) -> np.float32:
    """The nearest number with 15 significant bits."""
    fraction, exponent = np.frexp(number)
    return np.float32(np.ldexp(np.rint(np.ldexp(fraction, _BITS)), int(exponent) - _BITS))


class _Binary(QnnDef[RoundingAttrs]):
    """Base of the three operators: operands, their types, and the type of the result."""

    inputs = _INPUTS
    infer_correct_layout = staticmethod(layouts.binary)
    owners = (("lhs", "lhs"), ("rhs", "rhs"), ("output", RESULT))
    support_level = 11

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: RoundingAttrs, solver: TypeSolver) -> Type | None:
        """Two tensors of one integer type, broadcast."""
        check_mode(attrs.rounding)
        result = relations.broadcast(types[:2], attrs, solver)
        if isinstance(result, TensorType):
            relations.require(dt.is_int(result.dtype), f"operands are integers, found {result.dtype}")
        return result if check_types(_INPUTS, types) else None


class Add(_Binary):
    """The sum of two quantized tensors, quantized."""

    name = "qnn.add"
    sign: ClassVar[int] = 1

    @classmethod
    def evaluate(cls, attrs: RoundingAttrs, inputs: Sequence[Array]) -> list[Array]:
        """The definition."""
        a, b, a_scale, a_zero, b_scale, b_zero, scale, zero = _parts(inputs)
        dtype = str(a.dtype)
        sides = ((a, a_scale, a_zero), (b, b_scale, b_zero))
        if _once(attrs, dtype):
            left, right = (less(x, z).astype(np.float32) * few_bits(float(s) / float(scale)) for x, s, z in sides)
            return [saturated(np.rint(left + cls.sign * right), zero, dtype)]
        none = np.zeros((), "int32")
        wide = [requantized(x, s, z, scale, none, attrs.rounding, "int32").astype(np.int64) for x, s, z in sides]
        return [saturated(wide[0] + cls.sign * wide[1], zero, dtype)]

    @classmethod
    def canonicalize_qnn(cls, attrs: RoundingAttrs, args: Sequence[RelayExpr], types: Sequence[Type]) -> RelayExpr:
        """As operators on integers, or on whole numbers in float32."""
        join = relay_op.add if cls.sign > 0 else relay_op.subtract
        dtype, zero = dtype_of(types[0]), None if is_zero(args[7]) else number(args[7], "int32")
        sides = [(args[i], args[2 + 2 * i], args[3 + 2 * i]) for i in (0, 1)]
        if not _once(attrs, dtype):
            wide = [_wide(*side, args[6], type_, attrs.rounding) for side, type_ in zip(sides, types[:2], strict=True)]
            return saturate(join(*wide), "int64", zero, dtype)
        scale = _constant(args[6])
        terms = [
            relay_op.multiply(relay_op.cast(_less(x, z), "float32"), const(few_bits(_constant(s) / scale)))
            for x, s, z in sides
        ]
        return saturate(relay_op.nearbyint(join(*terms)), "float32", zero, dtype)


class Subtract(Add):
    """The difference of two quantized tensors, quantized."""

    name = "qnn.subtract"
    sign = -1


class Mul(_Binary):
    """The product of two quantized tensors, quantized."""

    name = "qnn.mul"

    @staticmethod
    def evaluate(attrs: RoundingAttrs, inputs: Sequence[Array]) -> list[Array]:
        """The definition."""
        a, b, a_scale, a_zero, b_scale, b_zero, scale, zero = _parts(inputs)
        product, none = less(a, a_zero) * less(b, b_zero), np.zeros((), "int32")
        return [requantized(product, a_scale * b_scale, none, scale, zero, attrs.rounding, str(a.dtype))]

    @staticmethod
    def canonicalize_qnn(attrs: RoundingAttrs, args: Sequence[RelayExpr], types: Sequence[Type]) -> RelayExpr:
        """requantize of the product of the integers less their zero points."""
        product = relay_op.multiply(_less(args[0], args[3]), _less(args[1], args[5]))
        scale = relay_op.multiply(number(args[2], "float32"), number(args[4], "float32"))
        result: Any = types[-1]
        wide = (TensorType(result.shape, "int32"), _SCALE, _NUMBER, _SCALE, _NUMBER)
        operands = (product, scale, const(np.zeros((), "int32")), args[6], args[7])
        return requantize_by_operators(operands, wide, -1, attrs.rounding, result.dtype)


add, subtract, mul = builder(Add), builder(Subtract), builder(Mul)


def _parts(inputs: Sequence[Array]) -> list[Array]:
    """Both operands, and the parameters as scalars."""
    return [*inputs[:2], *(p.reshape(()) for p in inputs[2:])]


def _once(attrs: RoundingAttrs, dtype: str) -> bool:
    """Whether a sum is rounded once."""
    return attrs.rounding == TOEVEN and dt.bits(dtype) == 8


def _wide(
    data: RelayExpr, scale: RelayExpr, zero: RelayExpr, out_scale: RelayExpr, type_: Type, rounding: str
) -> RelayExpr:
    """An operand in units of the result's scale, in 64 bits."""
    args = (data, number(scale, "float32"), number(zero, "int32"), out_scale, const(np.zeros((), "int32")))
    types = (type_, _SCALE, _NUMBER, _SCALE, _NUMBER)
    return relay_op.cast(requantize_by_operators(args, types, -1, rounding, "int32"), "int64")


def _constant(scale: RelayExpr) -> float:
    value = value_of(scale)
    if value is None:
        raise UnsupportedError("the scales of a sum rounded once have to be constants; fold them first (FoldConstant)")
    return float(value.reshape(()))


def _less(data: RelayExpr, zero: RelayExpr) -> RelayExpr:
    whole = relay_op.cast(data, "int32")
    return whole if is_zero(zero) else relay_op.subtract(whole, number(zero, "int32"))
