"""Arithmetic on whole tensors with numpy's broadcasting rules: ``A + B``, ``-A``, ``A.astype("int8")``.

Either side may be a scalar or a scalar expression. Topi exports these functions by the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith.analyzer import simplify
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import InvalidShapeError
from tilewright.ir.prim_expr import IntImm, PrimExpr, Select, Var
from tilewright.te.declare import compute
from tilewright.te.tag import BROADCAST, ELEMWISE
from tilewright.te.tensor import Tensor, set_tensor_arithmetic
from tilewright.tir import op

Operand = Any  # Tensor, PrimExpr or a Python number
ScalarFunction = Callable[[Any, Any], PrimExpr]


def _simple(dim: PrimExpr) -> PrimExpr:
    return dim if isinstance(dim, IntImm | Var) else simplify(dim)


def broadcast_shape(a: Sequence[Any], b: Sequence[Any]) -> tuple[PrimExpr, ...]:
    """Return the common shape of two shapes under numpy's rules; raises InvalidShapeError when there is none."""
    rank = max(len(a), len(b))
    result: list[PrimExpr] = []
    for i in range(rank):
        x = ops.as_expr(a[i - rank + len(a)]) if i >= rank - len(a) else ops.as_expr(1)
        y = ops.as_expr(b[i - rank + len(b)]) if i >= rank - len(b) else ops.as_expr(1)
        result.append(_broadcast_dim(_simple(x), _simple(y), a, b))
    return tuple(result)


def _broadcast_dim(x: PrimExpr, y: PrimExpr, a: Sequence[Any], b: Sequence[Any]) -> PrimExpr:
    if x is y or ops.is_const_int(y, 1):
        return x
    if ops.is_const_int(x, 1):
        return y
    if isinstance(x, IntImm) and isinstance(y, IntImm):
        if int(x) != int(y):
            shapes = " and ".join(f"({', '.join(repr(d) for d in s)})" for s in (a, b))
            raise InvalidShapeError(f"cannot broadcast shapes {shapes}: {x} and {y} differ and neither is 1")
        return x
    if isinstance(x, IntImm):
        return x
    return y if isinstance(y, IntImm) else Select(ops.equal(x, 1), y, x)


def broadcast_indices(shape: Sequence[Any], out_shape: Sequence[Any], indices: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Return the indices into a tensor of ``shape`` for the element ``indices`` of its broadcast to ``out_shape``."""
    skip = len(out_shape) - len(shape)
    result: list[PrimExpr] = []
    for dim, out_dim, index in zip(shape, out_shape[skip:], indices[skip:], strict=True):
        dim, out_dim = _simple(ops.as_expr(dim)), _simple(ops.as_expr(out_dim))
        if dim is out_dim:
            result.append(index)
        elif isinstance(dim, IntImm):
            result.append(ops.const(0, index.dtype) if int(dim) == 1 else index)
        elif isinstance(out_dim, IntImm) and int(out_dim) == 1:
            result.append(index)
        else:
            result.append(Select(ops.equal(dim, 1), ops.const(0, index.dtype), index))
    return result


def binary(lhs: Operand, rhs: Operand, function: ScalarFunction, name: str) -> Any:
    """Apply ``function`` to broadcast operands; return a scalar expression for two scalars, else a tensor ``name``."""
    if not isinstance(lhs, Tensor) and not isinstance(rhs, Tensor):
        return function(ops.as_expr(lhs), ops.as_expr(rhs))
    if not isinstance(rhs, Tensor):
        return compute(lhs.shape, lambda *i: function(lhs(*i), rhs), name=name, tag=ELEMWISE)
    if not isinstance(lhs, Tensor):
        return compute(rhs.shape, lambda *i: function(lhs, rhs(*i)), name=name, tag=ELEMWISE)
    shape = broadcast_shape(lhs.shape, rhs.shape)

    def body(*i: PrimExpr) -> PrimExpr:
        a = lhs(*broadcast_indices(lhs.shape, shape, i))
        return function(a, rhs(*broadcast_indices(rhs.shape, shape, i)))

    return compute(shape, body, name=name, tag=BROADCAST)


def _true_divide(a: Any, b: Any) -> PrimExpr:
    a, b = ops.match_dtypes(a, b)
    return ops.div(a, b) if dt.is_float(a.dtype) else ops.truncdiv(a, b)


def _power(a: Any, b: Any) -> PrimExpr:
    a, b = ops.match_dtypes(a, b)
    if not dt.is_float(a.dtype):  # the mathematical library only has floating-point powers
        return ops.cast(a.dtype, op.round(op.power(ops.cast("float64", a), ops.cast("float64", b))))
    return op.power(a, b)


def add(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs + rhs."""
    return binary(lhs, rhs, ops.add, "T_add")


def subtract(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs - rhs."""
    return binary(lhs, rhs, ops.sub, "T_subtract")


def multiply(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs * rhs."""
    return binary(lhs, rhs, ops.mul, "T_multiply")


def _traps(divisor: PrimExpr) -> PrimExpr:
    """Return whether a division by ``divisor`` may trap: for 0, or for -1 (of the least integer)."""
    zero = ops.equal(divisor, ops.const(0, divisor.dtype))
    return ops.logical_or(zero, ops.equal(divisor, ops.const(-1, divisor.dtype))) if _signed(divisor) else zero


def _signed(value: PrimExpr) -> bool:
    return dt.is_signed(value.dtype)


def quotient(rhs: Operand, function: ScalarFunction) -> ScalarFunction:
    """Make the division ``function`` total for integer tensors ``rhs``: 0 for a divisor 0, wrapped negation for -1."""

    def total(a: Any, b: Any) -> PrimExpr:
        a, b = ops.match_dtypes(a, b)
        if dt.is_float(a.dtype) or not isinstance(rhs, Tensor):
            return function(a, b)
        zero = ops.const(0, a.dtype)
        found = function(a, Select(_traps(b), ops.const(1, b.dtype), b))
        if _signed(b):
            found = Select(ops.equal(b, ops.const(-1, b.dtype)), zero - a, found)
        return Select(ops.equal(b, zero), zero, found)

    return total


def remainder(rhs: Operand, function: ScalarFunction) -> ScalarFunction:
    """Make the remainder ``function`` total for integer tensors ``rhs``: 0 for divisors 0 and -1."""

    def total(a: Any, b: Any) -> PrimExpr:
        a, b = ops.match_dtypes(a, b)
        if dt.is_float(a.dtype) or not isinstance(rhs, Tensor):
            return function(a, b)
        return function(a, Select(_traps(b), ops.const(1, b.dtype), b))

    return total


def divide(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs / rhs; integers truncate towards zero, and division by an integer element 0 yields 0."""
    return binary(lhs, rhs, quotient(rhs, _true_divide), "T_divide")


def floor_divide(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs / rhs rounded down; division by an integer element 0 yields 0."""
    return binary(lhs, rhs, quotient(rhs, ops.floordiv), "T_floor_divide")


def floor_mod(lhs: Operand, rhs: Operand) -> Any:
    """Return the remainder of the floor division, with the sign of rhs; for an integer element 0 of rhs it is 0."""
    return binary(lhs, rhs, remainder(rhs, ops.floormod), "T_floor_mod")


def power(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs to the power rhs."""
    return binary(lhs, rhs, _power, "T_power")


def left_shift(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs << rhs."""
    return binary(lhs, rhs, ops.shift_left, "T_left_shift")


def right_shift(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs >> rhs, arithmetic on signed types."""
    return binary(lhs, rhs, ops.shift_right, "T_right_shift")


def _bitwise(function: ScalarFunction, on_bool: ScalarFunction) -> ScalarFunction:
    def apply(a: Any, b: Any) -> PrimExpr:
        a, b = ops.match_dtypes(a, b)
        return on_bool(a, b) if dt.is_bool(a.dtype) else function(a, b)

    return apply


def bitwise_and(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs & rhs."""
    return binary(lhs, rhs, _bitwise(ops.bitwise_and, ops.logical_and), "T_bitwise_and")


def bitwise_or(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs | rhs."""
    return binary(lhs, rhs, _bitwise(ops.bitwise_or, ops.logical_or), "T_bitwise_or")


def bitwise_xor(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs ^ rhs."""
    return binary(lhs, rhs, _bitwise(ops.bitwise_xor, ops.not_equal), "T_bitwise_xor")


def cast(x: Any, dtype: str) -> Any:
    """Convert x to ``dtype``; a scalar expression stays one."""
    if not isinstance(x, Tensor):
        return ops.cast(dtype, x)
    return compute(x.shape, lambda *i: ops.cast(dtype, x(*i)), name="T_cast", tag=ELEMWISE)


set_tensor_arithmetic(
    {
        "add": add,
        "subtract": subtract,
        "multiply": multiply,
        "divide": divide,
        "floor_divide": floor_divide,
        "mod": floor_mod,
        "power": power,
        "left_shift": left_shift,
        "right_shift": right_shift,
        "bitwise_and": bitwise_and,
        "bitwise_or": bitwise_or,
        "bitwise_xor": bitwise_xor,
        "cast": cast,
    }
)
