"""Building scalar expressions: dtype matching, and folding of constants and identities.

These are the functions behind Python's operators on ``PrimExpr`` and behind ``tilewright.tir.op``.
Folding here is the cheap, local kind; algebra over several nodes belongs to ``tilewright.arith``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any as AnyType

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir import prim_expr as p
from tilewright.ir.errors import DivisionByZeroError, OperandError, OperandValueError, TilewrightError
from tilewright.ir.op_table import find_op


def as_expr(value: AnyType, dtype: str | None = None) -> p.PrimExpr:
    """Convert ``value`` to an expression; Python numbers become literals (int32, float32 or bool by default)."""
    if isinstance(value, p.PrimExpr):
        return value
    if isinstance(value, (bool, np.bool_)):
        return const(value, dtype or "bool")
    if isinstance(value, (int, np.integer)):
        return const(int(value), dtype or ("int32" if -(2**31) <= value < 2**31 else "int64"))
    if isinstance(value, (float, np.floating)):
        return const(float(value), dtype or "float32")
    if isinstance(value, str):
        return p.StringImm(value)
    if hasattr(value, "asobject"):  # tensor slices and iteration variables know their expression
        return as_expr(value.asobject(), dtype)
    raise TypeError(f"cannot use a {type(value).__name__} ({value!r}) as a scalar expression")


def whole(value: AnyType) -> AnyType:
    """Convert a dimension or an extent that is a float, such as ``channels / 8``, to an int.

    Raises:
        TilewrightError: the float is no whole number.
    """
    found = value.value if isinstance(value, p.FloatImm) else value
    if not isinstance(found, (float, np.floating)):
        return value
    if not np.isfinite(found) or found != int(found):
        raise TilewrightError(f"dimensions are whole numbers, got {found}; did you mean // where / stands?")
    return int(found)


def const(value: AnyType, dtype: str | None = None) -> p.PrimExpr:
    """Create a literal of ``dtype``; for a vector type, a ``Broadcast`` of the literal."""
    if dtype is None:
        if not isinstance(value, np.generic):
            return as_expr(value)
        dtype = str(value.dtype)
    dtype = dt.in_full(dtype)
    info = dt.parse(dtype)
    scalar: p.PrimExpr
    if info.kind in ("int", "uint", "bool"):
        scalar = p.IntImm(dt.element(dtype), int(value))
    elif dt.is_float(dtype):
        scalar = p.FloatImm(dt.element(dtype), float(value))
    else:
        raise ValueError(f"no literal has the data type {dtype}")
    return scalar if info.lanes == 1 else p.Broadcast(scalar, info.lanes)


def match_dtypes(a: AnyType, b: AnyType) -> tuple[p.PrimExpr, p.PrimExpr]:
    """Bring two operands to one dtype: broadcast lanes, int to float, narrow to wide."""
    if isinstance(a, p.PrimExpr) and isinstance(b, p.PrimExpr) and a.dtype == b.dtype:
        return a, b
    if not isinstance(a, p.PrimExpr) and hasattr(a, "asobject"):
        a = a.asobject()
    if not isinstance(b, p.PrimExpr) and hasattr(b, "asobject"):
        b = b.asobject()
    if not isinstance(b, p.PrimExpr):
        if isinstance(a, p.PrimExpr):
            b = _literal_like(b, a)
    elif not isinstance(a, p.PrimExpr):
        a = _literal_like(a, b)
    a, b = as_expr(a), as_expr(b)
    if a.dtype == b.dtype:
        return a, b
    lanes_a, lanes_b = dt.lanes(a.dtype), dt.lanes(b.dtype)
    if lanes_a != lanes_b:
        if lanes_a == 1:
            a = p.Broadcast(a, lanes_b)
        elif lanes_b == 1:
            b = p.Broadcast(b, lanes_a)
        else:
            raise ValueError(f"operands have {lanes_a} and {lanes_b} lanes: {a} and {b}")
    common = _common_dtype(a.dtype, b.dtype)
    return cast(common, a), cast(common, b)


def _literal_like(value: AnyType, other: p.PrimExpr) -> p.PrimExpr:
    if type(value) is int and dt.is_int(other.dtype):
        dtype = dt.element(other.dtype)
        low, high = dt.int_range(dtype)
        return p.IntImm(dtype, value) if low <= value <= high else as_expr(value)
    if isinstance(value, float) and not dt.is_float(other.dtype):
        return as_expr(value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if dt.is_bool(other.dtype):
            return as_expr(value)
        if not dt.is_float(other.dtype):
            low, high = dt.int_range(dt.element(other.dtype))
            if not low <= value <= high:
                return as_expr(value)
    if isinstance(value, (bool, int, float, np.integer, np.floating)) and dt.parse(other.dtype).kind != "handle":
        return const(value, dt.element(other.dtype))
    return as_expr(value)


def _common_dtype(a: str, b: str) -> str:
    if a == b:
        return a
    info_a, info_b = dt.parse(a), dt.parse(b)
    float_a, float_b = dt.is_float(a), dt.is_float(b)
    if float_a != float_b:
        return a if float_a else b
    if float_a:
        if info_a.bits == info_b.bits:  # float16 with bfloat16
            return dt.make("float", 32, info_a.lanes)
        return a if info_a.bits > info_b.bits else b
    if info_a.kind == "bool" or info_b.kind == "bool":
        return b if info_a.kind == "bool" else a
    bits = max(info_a.bits, info_b.bits)
    if info_a.kind == info_b.kind:
        kind: str = info_a.kind
    else:  # the wider one wins, and of two that are equally wide the unsigned one, as in C
        signed, unsigned = (info_a, info_b) if info_a.kind == "int" else (info_b, info_a)
        kind = "int" if signed.bits > unsigned.bits else "uint"
    return dt.make(kind, bits, info_a.lanes)


def cast(dtype: str, value: AnyType) -> p.PrimExpr:
    """Convert ``value`` to ``dtype``; literals fold, and a scalar is broadcast to a vector type."""
    value, dtype = as_expr(value), dt.in_full(dtype)
    if value.dtype == dtype:
        return value
    if isinstance(value, p.StringImm):
        raise OperandError(f"the text {value.value!r} cannot be converted to {dtype}")
    lanes, value_lanes = dt.lanes(dtype), dt.lanes(value.dtype)
    if lanes != value_lanes:
        if value_lanes != 1:
            raise ValueError(f"cannot convert {value.dtype} to {dtype}: the number of lanes differs")
        return p.Broadcast(cast(dt.element(dtype), value), lanes)
    if isinstance(value, p.IntImm):
        return _cast_int_literal(value.value, dtype)
    if isinstance(value, p.FloatImm):
        if dt.is_float(dtype):
            return p.FloatImm(dtype, value.value)
        if math.isfinite(value.value) and not dt.is_bool(dtype):
            low, high = dt.int_range(dtype)
            if low <= int(value.value) <= high:
                return p.IntImm(dtype, int(value.value))
    if isinstance(value, p.Broadcast):
        return p.Broadcast(cast(dt.element(dtype), value.value), lanes)
    if isinstance(value, p.Ramp) and value.dtype.startswith("int32") and dtype.startswith("int64"):
        wide = dt.element(dtype)  # steps of an index do not overflow
        return p.Ramp(cast(wide, value.base), cast(wide, value.stride), lanes)
    return p.Cast(dtype, value)


def _cast_int_literal(value: int, dtype: str) -> p.PrimExpr:
    if dt.is_float(dtype):
        return p.FloatImm(dtype, float(value))
    if dt.parse(dtype).kind == "handle":
        return p.Cast(dtype, p.IntImm("int64", value))
    if dt.is_bool(dtype):
        return p.IntImm("bool", int(value != 0))
    return p.IntImm(dtype, wrap_int(value, dtype))


def wrap_int(value: int, dtype: str) -> int:
    """Reduce ``value`` to the range of an integer dtype, as the hardware does."""
    info = dt.parse(dtype)
    value &= (1 << info.bits) - 1
    if info.kind == "int" and value >> (info.bits - 1):
        value -= 1 << info.bits
    return value


def round_float(value: float, dtype: str) -> float:
    """Round ``value`` to the precision of a floating dtype."""
    bits = dt.bits(dtype)
    with np.errstate(over="ignore"):
        if bits == 32:
            return float(np.float32(value))
        if dt.parse(dtype).kind == "float" and bits == 16:
            return float(np.float16(value))
    return float(value)


def is_const_int(expr: AnyType, value: int | None = None) -> bool:
    """Return whether ``expr`` is an integer literal (equal to ``value``, when passed), possibly broadcast."""
    if isinstance(expr, p.Broadcast):
        expr = expr.value
    if isinstance(expr, p.IntImm):
        return value is None or expr.value == value
    return isinstance(expr, int) and (value is None or expr == value)


def _is_number(expr: p.PrimExpr, value: float) -> bool:
    if isinstance(expr, p.Broadcast):
        expr = expr.value
    return isinstance(expr, (p.IntImm, p.FloatImm)) and expr.value == value


def _fold(
    a: p.PrimExpr,
    b: p.PrimExpr,
    int_op: Callable[[int, int], int],
    float_op: Callable[[float, float], float] | None,
) -> p.PrimExpr | None:
    if not (isinstance(a, p.ConstExpr) and isinstance(b, p.ConstExpr)):
        return None
    if isinstance(a, p.IntImm) and isinstance(b, p.IntImm):
        return p.IntImm(a.dtype, wrap_int(int_op(a.value, b.value), a.dtype))
    if float_op and isinstance(a, p.FloatImm) and isinstance(b, p.FloatImm) and not dt.is_custom(a.dtype):
        return p.FloatImm(a.dtype, round_float(float_op(a.value, b.value), a.dtype))
    return None


def _bool_as_int(e: p.PrimExpr) -> p.PrimExpr:
    return cast(dt.make("int", 32, dt.lanes(e.dtype)), e) if dt.is_bool(e.dtype) else e


def _arith_operands(a: AnyType, b: AnyType) -> tuple[p.PrimExpr, p.PrimExpr]:
    a, b = match_dtypes(a, b)
    return (_bool_as_int(a), _bool_as_int(b)) if dt.is_bool(a.dtype) else (a, b)


def add(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A + b"""
    a, b = _arith_operands(a, b)
    if dt.parse(a.dtype).kind == "handle":
        raise TypeError(f"cannot add {a} and {b}: not numbers")
    if (folded := _fold(a, b, operator.add, operator.add)) is not None:
        return folded
    if is_const_int(b, 0):
        return a
    if is_const_int(a, 0):
        return b
    return p.Add(a, b)


def sub(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A - b"""
    a, b = _arith_operands(a, b)
    if (folded := _fold(a, b, operator.sub, operator.sub)) is not None:
        return folded
    if is_const_int(b, 0):
        return a
    return p.Sub(a, b)


def mul(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A * b"""
    a, b = _arith_operands(a, b)
    if (folded := _fold(a, b, operator.mul, operator.mul)) is not None:
        return folded
    for x, y in ((a, b), (b, a)):
        if _is_number(y, 1):
            return x
        if is_const_int(y, 0):
            return y
    return p.Mul(a, b)


def _trunc_div(x: int, y: int) -> int:
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def _check_divisor(b: p.PrimExpr) -> None:
    if is_const_int(b, 0):
        raise DivisionByZeroError("division of an integer expression by the constant 0")


def div(a: AnyType, b: AnyType) -> p.PrimExpr:
    """Divide floating-point operands; for integers use truncdiv or floordiv."""
    a, b = _arith_operands(a, b)
    if not dt.is_float(a.dtype):
        raise OperandError(
            f"'/' of the integers {a} and {b} is ambiguous; use tir.floordiv, tir.truncdiv, or convert to float"
        )
    if isinstance(a, p.FloatImm) and isinstance(b, p.FloatImm) and b.value != 0 and not dt.is_custom(a.dtype):
        return p.FloatImm(a.dtype, round_float(a.value / b.value, a.dtype))
    if _is_number(b, 1):
        return a
    return p.Div(a, b)


def truncdiv(a: AnyType, b: AnyType) -> p.PrimExpr:
    """Divide integers, rounding towards zero, like C."""
    a, b = _arith_operands(a, b)
    _check_divisor(b)
    if (folded := _fold(a, b, _trunc_div, None)) is not None:
        return folded
    return a if is_const_int(b, 1) else p.Div(a, b)


def truncmod(a: AnyType, b: AnyType) -> p.PrimExpr:
    """Remainder of ``truncdiv``."""
    a, b = _arith_operands(a, b)
    _check_divisor(b)
    if (folded := _fold(a, b, lambda x, y: x - y * _trunc_div(x, y), None)) is not None:
        return folded
    return const(0, a.dtype) if is_const_int(b, 1) else p.Mod(a, b)


def floordiv(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A // b, rounding down; on floats, the floor of the quotient."""
    a, b = _arith_operands(a, b)
    if dt.is_float(a.dtype):
        return call_pure("tir.floor", a.dtype, div(a, b))
    _check_divisor(b)
    if (folded := _fold(a, b, operator.floordiv, None)) is not None:
        return folded
    if is_const_int(b, 1):
        return a
    return a if is_const_int(a, 0) else p.FloorDiv(a, b)


def floormod(a: AnyType, b: AnyType) -> p.PrimExpr:
    """Return the remainder of ``floordiv``, with the sign of ``b``."""
    a, b = _arith_operands(a, b)
    if dt.is_float(a.dtype):
        return sub(a, mul(floordiv(a, b), b))
    _check_divisor(b)
    if (folded := _fold(a, b, operator.mod, None)) is not None:
        return folded
    if is_const_int(b, 1):
        return const(0, a.dtype)
    return a if is_const_int(a, 0) else p.FloorMod(a, b)


def minimum(a: AnyType, b: AnyType) -> p.PrimExpr:
    """Return min(a, b); NaN if either is NaN."""
    a, b = _arith_operands(a, b)
    if a is b:
        return a
    return (
        folded if (folded := _fold(a, b, min, lambda x, y: x if x <= y or x != x else y)) is not None else p.Min(a, b)
    )


def maximum(a: AnyType, b: AnyType) -> p.PrimExpr:
    """Return max(a, b); NaN if either is NaN."""
    a, b = _arith_operands(a, b)
    if a is b:
        return a
    return (
        folded if (folded := _fold(a, b, max, lambda x, y: x if x >= y or x != x else y)) is not None else p.Max(a, b)
    )


def neg(a: AnyType) -> p.PrimExpr:
    """-a"""
    a = _bool_as_int(as_expr(a))
    if isinstance(a, p.IntImm):
        return p.IntImm(a.dtype, wrap_int(-a.value, a.dtype))
    if isinstance(a, p.FloatImm):
        return p.FloatImm(a.dtype, -a.value)
    if dt.is_float(a.dtype) or dt.is_signed(a.dtype):
        return mul(a, const(-1, a.dtype))
    return sub(const(0, a.dtype), a)


def _compare(cls: type[p.CompareExpr], a: AnyType, b: AnyType, test: Callable[[AnyType, AnyType], bool]) -> p.PrimExpr:
    a, b = match_dtypes(a, b)
    if isinstance(a, (p.IntImm, p.FloatImm)) and isinstance(b, (p.IntImm, p.FloatImm)):
        return p.IntImm("bool", int(test(a.value, b.value)))
    if a is b and not dt.is_float(a.dtype):
        return const(test(0, 0), dt.make("bool", 1, dt.lanes(a.dtype)))
    return cls(a, b)


def less(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A < b"""
    return _compare(p.LT, a, b, operator.lt)


def less_equal(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A <= b"""
    return _compare(p.LE, a, b, operator.le)


def greater(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A > b"""
    return _compare(p.GT, a, b, operator.gt)


def greater_equal(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A >= b"""
    return _compare(p.GE, a, b, operator.ge)


def _comparable(b: object) -> bool:
    return isinstance(b, (p.PrimExpr, int, float, np.integer, np.floating, np.bool_)) or hasattr(b, "asobject")


def equal(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A == b; comparing with something that is no number is plainly false."""
    if not _comparable(b) or not _comparable(a):
        return p.IntImm("bool", 0)
    if isinstance(a, p.PrimExpr) and dt.parse(a.dtype).kind == "handle":
        return p.IntImm("bool", int(a is b))
    return _compare(p.EQ, a, b, operator.eq)


def not_equal(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A != b"""
    if not _comparable(b) or not _comparable(a):
        return p.IntImm("bool", 1)
    if isinstance(a, p.PrimExpr) and dt.parse(a.dtype).kind == "handle":
        return p.IntImm("bool", int(a is not b))
    return _compare(p.NE, a, b, operator.ne)


def _as_bool(a: AnyType) -> p.PrimExpr:
    a = as_expr(a)
    return a if dt.is_bool(a.dtype) else not_equal(a, const(0, a.dtype))


def logical_and(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A && b"""
    a, b = match_dtypes(_as_bool(a), _as_bool(b))
    for x, y in ((a, b), (b, a)):
        if is_const_int(x):
            return y if is_const_int(x, 1) else x
    return a if a is b else p.And(a, b)


def logical_or(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A || b"""
    a, b = match_dtypes(_as_bool(a), _as_bool(b))
    for x, y in ((a, b), (b, a)):
        if is_const_int(x):
            return x if is_const_int(x, 1) else y
    return a if a is b else p.Or(a, b)


def logical_not(a: AnyType) -> p.PrimExpr:
    """!a"""
    a = _as_bool(a)
    if isinstance(a, p.IntImm):
        return p.IntImm("bool", 1 - a.value)
    return a.a if isinstance(a, p.Not) else p.Not(a)


def call_pure(name: str, dtype: str, *args: AnyType) -> p.PrimExpr:
    """Call of the intrinsic ``name`` giving ``dtype``."""
    return p.Call(dtype, find_op(name), args)


def _bitwise(name: str, a: AnyType, b: AnyType, fold: Callable[[int, int], int]) -> p.PrimExpr:
    a, b = match_dtypes(a, b)
    if dt.is_float(a.dtype):
        raise OperandError(f"{name} takes integer operands, got {a.dtype}")
    if (folded := _fold(a, b, fold, None)) is not None:
        return folded
    return call_pure(name, a.dtype, a, b)


def shift_left(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A << b"""
    return _shift("tir.shift_left", a, b, lambda x, y: x << y)


def shift_right(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A >> b, arithmetic on signed types."""
    return _shift("tir.shift_right", a, b, lambda x, y: x >> y)


def _shift(name: str, a: AnyType, b: AnyType, fold: Callable[[int, int], int]) -> p.PrimExpr:
    a, b = match_dtypes(a, b)
    if isinstance(b, p.IntImm):
        bits = dt.bits(a.dtype)
        if not 0 <= b.value < bits:
            raise OperandValueError(f"{name} of {a} by {b.value}: {a.dtype} is shifted by 0 to {bits - 1} bits")
        if b.value == 0:
            return a
    return _bitwise(name, a, b, fold)


def bitwise_and(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A & b"""
    return _bitwise("tir.bitwise_and", a, b, lambda x, y: x & y)


def bitwise_or(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A | b"""
    return _bitwise("tir.bitwise_or", a, b, lambda x, y: x | y)


def bitwise_xor(a: AnyType, b: AnyType) -> p.PrimExpr:
    """A ^ b"""
    return _bitwise("tir.bitwise_xor", a, b, lambda x, y: x ^ y)


def bitwise_not(a: AnyType) -> p.PrimExpr:
    """~a; on bool, the logical not."""
    a = as_expr(a)
    if dt.is_float(a.dtype):
        raise OperandError(f"tir.bitwise_not takes an integer, got {a.dtype}")
    if dt.is_bool(a.dtype):
        return logical_not(a)
    if isinstance(a, p.IntImm):
        return p.IntImm(a.dtype, wrap_int(~a.value, a.dtype))
    return call_pure("tir.bitwise_not", a.dtype, a)
