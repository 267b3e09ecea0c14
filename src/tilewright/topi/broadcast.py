"""Binary operators with numpy's broadcasting rules; scalars and scalar expressions may stand for either side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm, PrimExpr
from tilewright.topi import tag
from tilewright.topi.utils import InvalidShapeError, simplify

Operand = Any  # te.Tensor, PrimExpr or a Python number
ScalarFunction = Callable[[Any, Any], PrimExpr]


def broadcast_shape(a: Sequence[Any], b: Sequence[Any]) -> tuple[PrimExpr, ...]:
    """Common shape of two shapes under numpy's rules; raises InvalidShapeError when there is none."""
    rank = max(len(a), len(b))
    result: list[PrimExpr] = []
    for i in range(rank):
        x = ops.as_expr(a[i - rank + len(a)]) if i >= rank - len(a) else ops.as_expr(1)
        y = ops.as_expr(b[i - rank + len(b)]) if i >= rank - len(b) else ops.as_expr(1)
        result.append(_broadcast_dim(simplify(x), simplify(y), a, b))
    return tuple(result)


def _broadcast_dim(x: PrimExpr, y: PrimExpr, a: Sequence[Any], b: Sequence[Any]) -> PrimExpr:
    if x is y or ops.is_const_int(y, 1):
        return x
    if ops.is_const_int(x, 1):
        return y
    if isinstance(x, IntImm) and isinstance(y, IntImm):
        if int(x) != int(y):
            shapes = " and ".join(f"({', '.join(str(d) for d in s)})" for s in (a, b))
            raise InvalidShapeError(f"cannot broadcast shapes {shapes}: {x} and {y} differ and neither is 1")
        return x
    if isinstance(x, IntImm):
        return x
    return y if isinstance(y, IntImm) else ops.maximum(x, y)


def broadcast_indices(shape: Sequence[Any], out_shape: Sequence[Any], indices: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Indices into a tensor of ``shape`` for the element ``indices`` of ``out_shape`` that it is broadcast to."""
    skip = len(out_shape) - len(shape)
    result: list[PrimExpr] = []
    for dim, out_dim, index in zip(shape, out_shape[skip:], indices[skip:], strict=True):
        dim, out_dim = simplify(ops.as_expr(dim)), simplify(ops.as_expr(out_dim))
        if dim is out_dim:
            result.append(index)
        elif isinstance(dim, IntImm):
            result.append(ops.const(0, index.dtype) if int(dim) == 1 else index)
        elif isinstance(out_dim, IntImm) and int(out_dim) == 1:
            result.append(index)
        else:
            result.append(tir.Select(ops.equal(dim, 1), ops.const(0, index.dtype), index))
    return result


def broadcast_to(data: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """``data`` repeated to ``shape`` under numpy's rules."""
    out_shape = broadcast_shape(data.shape, shape)
    return te.compute(
        shape,
        lambda *i: data(*broadcast_indices(data.shape, out_shape, i)),
        name="T_broadcast_to",
        tag=tag.BROADCAST,
    )


def binary(lhs: Operand, rhs: Operand, function: ScalarFunction, name: str) -> Any:
    """Apply ``function`` to broadcast operands; two scalars give a scalar expression, else a tensor ``name``."""
    if not isinstance(lhs, te.Tensor) and not isinstance(rhs, te.Tensor):
        return function(ops.as_expr(lhs), ops.as_expr(rhs))
    if not isinstance(rhs, te.Tensor):
        return te.compute(lhs.shape, lambda *i: function(lhs(*i), rhs), name=name, tag=tag.ELEMWISE)
    if not isinstance(lhs, te.Tensor):
        return te.compute(rhs.shape, lambda *i: function(lhs, rhs(*i)), name=name, tag=tag.ELEMWISE)
    shape = broadcast_shape(lhs.shape, rhs.shape)

    def body(*i: PrimExpr) -> PrimExpr:
        a = lhs(*broadcast_indices(lhs.shape, shape, i))
        return function(a, rhs(*broadcast_indices(rhs.shape, shape, i)))

    return te.compute(shape, body, name=name, tag=tag.BROADCAST)


def _true_divide(a: Any, b: Any) -> PrimExpr:
    a, b = ops.match_dtypes(a, b)
    return ops.div(a, b) if dt.is_float(a.dtype) else ops.truncdiv(a, b)


def _trunc_mod(a: Any, b: Any) -> PrimExpr:
    a, b = ops.match_dtypes(a, b)
    return tir.fmod(a, b) if dt.is_float(a.dtype) else ops.truncmod(a, b)


def _power(a: Any, b: Any) -> PrimExpr:
    a, b = ops.match_dtypes(a, b)
    if not dt.is_float(a.dtype):  # the mathematical library only has floating-point powers
        return ops.cast(a.dtype, tir.round(tir.power(ops.cast("float64", a), ops.cast("float64", b))))
    return tir.power(a, b)


def add(lhs: Operand, rhs: Operand) -> Any:
    """lhs + rhs"""
    return binary(lhs, rhs, ops.add, "T_add")


def subtract(lhs: Operand, rhs: Operand) -> Any:
    """lhs - rhs"""
    return binary(lhs, rhs, ops.sub, "T_subtract")


def multiply(lhs: Operand, rhs: Operand) -> Any:
    """lhs * rhs"""
    return binary(lhs, rhs, ops.mul, "T_multiply")


def divide(lhs: Operand, rhs: Operand) -> Any:
    """lhs / rhs; integers truncate towards zero."""
    return binary(lhs, rhs, _true_divide, "T_divide")


def floor_divide(lhs: Operand, rhs: Operand) -> Any:
    """lhs / rhs rounded down."""
    return binary(lhs, rhs, ops.floordiv, "T_floor_divide")


def mod(lhs: Operand, rhs: Operand) -> Any:
    """Remainder of the truncating division: takes the sign of lhs."""
    return binary(lhs, rhs, _trunc_mod, "T_mod")


def floor_mod(lhs: Operand, rhs: Operand) -> Any:
    """Remainder of the floor division: takes the sign of rhs."""
    return binary(lhs, rhs, ops.floormod, "T_floor_mod")


def maximum(lhs: Operand, rhs: Operand) -> Any:
    """The larger of lhs and rhs."""
    return binary(lhs, rhs, ops.maximum, "T_maximum")


def minimum(lhs: Operand, rhs: Operand) -> Any:
    """The smaller of lhs and rhs."""
    return binary(lhs, rhs, ops.minimum, "T_minimum")


def power(lhs: Operand, rhs: Operand) -> Any:
    """lhs to the power rhs."""
    return binary(lhs, rhs, _power, "T_power")


def left_shift(lhs: Operand, rhs: Operand) -> Any:
    """lhs << rhs"""
    return binary(lhs, rhs, ops.shift_left, "T_left_shift")


def right_shift(lhs: Operand, rhs: Operand) -> Any:
    """lhs >> rhs, arithmetic on signed types."""
    return binary(lhs, rhs, ops.shift_right, "T_right_shift")


def greater(lhs: Operand, rhs: Operand) -> Any:
    """lhs > rhs, as bool."""
    return binary(lhs, rhs, ops.greater, "T_greater")


def less(lhs: Operand, rhs: Operand) -> Any:
    """lhs < rhs, as bool."""
    return binary(lhs, rhs, ops.less, "T_less")


def equal(lhs: Operand, rhs: Operand) -> Any:
    """lhs == rhs, as bool."""
    return binary(lhs, rhs, ops.equal, "T_equal")


def not_equal(lhs: Operand, rhs: Operand) -> Any:
    """lhs != rhs, as bool."""
    return binary(lhs, rhs, ops.not_equal, "T_not_equal")


def greater_equal(lhs: Operand, rhs: Operand) -> Any:
    """lhs >= rhs, as bool."""
    return binary(lhs, rhs, ops.greater_equal, "T_greater_equal")


def less_equal(lhs: Operand, rhs: Operand) -> Any:
    """lhs <= rhs, as bool."""
    return binary(lhs, rhs, ops.less_equal, "T_less_equal")


def logical_and(lhs: Operand, rhs: Operand) -> Any:
    """lhs && rhs; numbers count as true when they are not 0."""
    return binary(lhs, rhs, ops.logical_and, "T_logical_and")


def logical_or(lhs: Operand, rhs: Operand) -> Any:
    """lhs || rhs"""
    return binary(lhs, rhs, ops.logical_or, "T_logical_or")


def logical_xor(lhs: Operand, rhs: Operand) -> Any:
    """Exactly one of lhs and rhs."""
    return binary(lhs, rhs, lambda a, b: ops.not_equal(_truth(a), _truth(b)), "T_logical_xor")


def _truth(value: Any) -> PrimExpr:
    return ops.logical_not(ops.logical_not(value))


def logical_not(data: te.Tensor) -> te.Tensor:
    """!data"""
    return te.compute(data.shape, lambda *i: ops.logical_not(data(*i)), name="T_logical_not", tag=tag.ELEMWISE)


def _bitwise(function: ScalarFunction, on_bool: ScalarFunction) -> ScalarFunction:
    def apply(a: Any, b: Any) -> PrimExpr:
        a, b = ops.match_dtypes(a, b)
        return on_bool(a, b) if dt.is_bool(a.dtype) else function(a, b)

    return apply


def bitwise_and(lhs: Operand, rhs: Operand) -> Any:
    """lhs & rhs"""
    return binary(lhs, rhs, _bitwise(ops.bitwise_and, ops.logical_and), "T_bitwise_and")


def bitwise_or(lhs: Operand, rhs: Operand) -> Any:
    """lhs | rhs"""
    return binary(lhs, rhs, _bitwise(ops.bitwise_or, ops.logical_or), "T_bitwise_or")


def bitwise_xor(lhs: Operand, rhs: Operand) -> Any:
    """lhs ^ rhs"""
    return binary(lhs, rhs, _bitwise(ops.bitwise_xor, ops.not_equal), "T_bitwise_xor")


def bitwise_not(data: te.Tensor) -> te.Tensor:
    """~data"""
    return te.compute(data.shape, lambda *i: ops.bitwise_not(data(*i)), name="T_bitwise_not", tag=tag.ELEMWISE)


__all__ = [
    "add", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast_indices", "broadcast_shape",
    "broadcast_to", "divide", "equal", "floor_divide", "floor_mod", "greater", "greater_equal", "left_shift",
    "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum",
    "mod", "multiply", "not_equal", "power", "right_shift", "subtract",
]  # fmt: skip
