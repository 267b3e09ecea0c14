"""Binary operators with numpy's broadcasting rules; those that Python writes with a sign are in ``te.broadcast``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.type import as_shape
from tilewright.te.broadcast import (
    Operand,
    add,
    binary,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    broadcast_indices,
    broadcast_shape,
    divide,
    floor_divide,
    floor_mod,
    left_shift,
    multiply,
    power,
    remainder,
    right_shift,
    subtract,
)  # fmt: skip
from tilewright.topi import tag


def broadcast_to(data: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """Repeat ``data`` to ``shape`` under numpy's broadcasting rules."""
    shape = as_shape(shape)
    out_shape = broadcast_shape(data.shape, shape)
    return te.compute(
        shape,
        lambda *i: data(*broadcast_indices(data.shape, out_shape, i)),
        name="T_broadcast_to",
        tag=tag.BROADCAST,
    )


def _trunc_mod(a: Any, b: Any) -> PrimExpr:
    a, b = ops.match_dtypes(a, b)
    return tir.fmod(a, b) if dt.is_float(a.dtype) else ops.truncmod(a, b)


def mod(lhs: Operand, rhs: Operand) -> Any:
    """Return the remainder of the truncating division, with the sign of lhs; an integer modulo 0 is 0."""
    return binary(lhs, rhs, remainder(rhs, _trunc_mod), "T_mod")


def maximum(lhs: Operand, rhs: Operand) -> Any:
    """The larger of lhs and rhs."""
    return binary(lhs, rhs, ops.maximum, "T_maximum")


def minimum(lhs: Operand, rhs: Operand) -> Any:
    """The smaller of lhs and rhs."""
    return binary(lhs, rhs, ops.minimum, "T_minimum")


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
    """Return lhs && rhs; a number is true when it is not 0."""
    return binary(lhs, rhs, ops.logical_and, "T_logical_and")


def logical_or(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs || rhs; a number is true when it is not 0."""
    return binary(lhs, rhs, ops.logical_or, "T_logical_or")


def logical_xor(lhs: Operand, rhs: Operand) -> Any:
    """Return true where exactly one of lhs and rhs is."""
    return binary(lhs, rhs, lambda a, b: ops.not_equal(_truth(a), _truth(b)), "T_logical_xor")


def _truth(value: Any) -> PrimExpr:
    return ops.logical_not(ops.logical_not(value))


def logical_not(data: te.Tensor) -> te.Tensor:
    """Return !data."""
    return te.compute(data.shape, lambda *i: ops.logical_not(data(*i)), name="T_logical_not", tag=tag.ELEMWISE)


def bitwise_not(data: te.Tensor) -> te.Tensor:
    """Return ~data."""
    return te.compute(data.shape, lambda *i: ops.bitwise_not(data(*i)), name="T_bitwise_not", tag=tag.ELEMWISE)


__all__ = [
    "add", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast_indices", "broadcast_shape",
    "broadcast_to", "divide", "equal", "floor_divide", "floor_mod", "greater", "greater_equal", "left_shift",
    "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum",
    "mod", "multiply", "not_equal", "power", "right_shift", "subtract",
]  # fmt: skip
