"""qnn.requantize: integers of one scale and zero point as integers of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay import op as relay_op
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.qnn.operators import layouts
from tilewright.relay.qnn.operators.parameters import (
    RESULT,
    QnnDef,
    along,
    check_types,
    dtype_of,
    extent_along,
    is_zero,
    number,
    rank_of,
    spread,
    value_of,
)
from tilewright.relay.qnn.operators.rounding import (
    TOEVEN,
    UPWARD,
    check_mode,
    rescale,
    rescaled,
    saturate,
    saturated,
)

_INT32 = dt.int_range("int32")


class RequantizeAttrs(Attrs):
    """The axis of vectors of parameters, how halves round (UPWARD, TONEAREST, TOEVEN), and the type of the result."""

    axis: int = -1
    rounding: str = UPWARD
    out_dtype: str = "int8"


class Requantize(QnnDef[RequantizeAttrs]):
    """``saturate(round((data - input_zero_point) * input_scale / output_scale) + output_zero_point)``.

    ``rounding`` says how: ``relay.qnn.operators.rounding``. Where the scales are equal nothing is rounded.
    """

    name = "qnn.requantize"
    inputs = ("data", "input_scale", "input_zero_point", "output_scale", "output_zero_point")
    owners = (("input", "data"), ("output", RESULT))
    support_level = 11

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: RequantizeAttrs, solver: TypeSolver) -> Type | None:
        """The shape of the data, and ``out_dtype``."""
        data = relations.tensor(types[0], "data")
        check_mode(attrs.rounding)
        relations.require(_fits(data.dtype), f"integers of up to 32 bits are requantized, found {data.dtype}")
        relations.require(_fits(attrs.out_dtype), f"the result has up to 32 bits, found {attrs.out_dtype}")
        vectors = extent_along(data.shape, attrs.axis, ("input_scale", "input_zero_point"))
        return TensorType(data.shape, attrs.out_dtype) if check_types(Requantize.inputs, types, vectors) else None

    @staticmethod
    def evaluate(attrs: RequantizeAttrs, inputs: Sequence[Array]) -> list[Array]:
        """The definition, in 64-bit integers or float32."""
        data, scale, zero, out_scale, out_zero = inputs
        shaped = [along(p, data.ndim, attrs.axis) for p in (scale, zero)]
        return [requantized(data, shaped[0], shaped[1], out_scale, out_zero, attrs.rounding, attrs.out_dtype)]

    @staticmethod
    def canonicalize_qnn(attrs: RequantizeAttrs, args: Sequence[RelayExpr], types: Sequence[Type]) -> RelayExpr:
        """As operators on integers."""
        return requantize_by_operators(args, types, attrs.axis, attrs.rounding, attrs.out_dtype)

    infer_correct_layout = staticmethod(layouts.requantize)


requantize = builder(Requantize)


def _fits(dtype: str) -> bool:
    return dt.is_int(dtype) and dt.bits(dtype) <= 32 and dtype != "uint32"


def requantized(
    data: Array, scale: Array, zero: Array, out_scale: Array, out_zero: Array, rounding: str, dtype: str
) -> Array:
    """The definition of requantize; parameters broadcast with the data."""
    values = np.clip(data.astype(np.int64) - zero.astype(np.int64), *_INT32)
    out_scale = out_scale.reshape(())
    if (scale != out_scale).any():
        values = rescaled(values, factor_of(scale, out_scale, rounding), rounding)
    return saturated(values, out_zero.reshape(()), dtype)


def factor_of(scale: Array, out_scale: Array, rounding: str) -> Array:
    """The quotient of two scales: in float32 for TOEVEN, else in float64."""
    kind = np.float32 if rounding == TOEVEN else np.float64
    return np.asarray(scale.astype(kind) / out_scale.astype(kind))


def requantize_by_operators(
    args: Sequence[RelayExpr], types: Sequence[Type], axis: int, rounding: str, dtype: str
) -> RelayExpr:
    """requantize in Relay's operators; ``args`` are its operands, ``types`` their types."""
    data, scale_expr, zero, out_scale_expr, out_zero = args
    rank, given = rank_of(types[0]), dtype_of(types[0])
    scale, out_scale = value_of(scale_expr), value_of(out_scale_expr)
    if scale is None or out_scale is None:
        if rounding != TOEVEN:
            raise UnsupportedError(
                f"qnn.requantize: rounding {rounding} takes scales that are constants; use TOEVEN for computed ones"
            )
        return _by_computed_scales(args, types, axis, dtype)
    out_scale = out_scale.reshape(())
    equal = bool((scale == out_scale).all())
    narrow = given != "int32" or (is_zero(zero) and (not equal or is_zero(out_zero)))  # no sum leaves int32
    wide = "int32" if narrow and (rounding == TOEVEN or equal) else "int64"
    values = _shifted(data, given, zero, types[2], wide, rank, axis)
    if not equal:
        values = rescale(values, factor_of(scale, out_scale, rounding), rounding, lambda v: along(v, rank, axis))
        wide = "float32" if rounding == TOEVEN else "int64"
    return saturate(values, wide, None if is_zero(out_zero) else number(out_zero, "int32"), dtype)


def _shifted(data: RelayExpr, given: str, zero: RelayExpr, type_: Type, wide: str, rank: int, axis: int) -> RelayExpr:
    """The data less its zero point, as far as int32 has that."""
    values = relay_op.cast(data, wide)
    if is_zero(zero):
        return values
    whole = relay_op.subtract(values, spread(zero, type_, rank, axis, wide))
    return relay_op.clip(whole, *map(float, _INT32)) if given == "int32" else whole


def _by_computed_scales(args: Sequence[RelayExpr], types: Sequence[Type], axis: int, dtype: str) -> RelayExpr:
    """TOEVEN with scales that the program computes."""
    data, scale, zero, out_scale, out_zero = args
    rank, given = rank_of(types[0]), dtype_of(types[0])
    values = _shifted(data, given, zero, types[2], "int64" if given == "int32" else "int32", rank, axis)
    factor: Any = relay_op.divide(spread(scale, types[1], rank, axis), number(out_scale, "float32"))
    whole = relay_op.nearbyint(relay_op.multiply(relay_op.cast(values, "float32"), factor))
    return saturate(whole, "float32", number(out_zero, "int32"), dtype)
