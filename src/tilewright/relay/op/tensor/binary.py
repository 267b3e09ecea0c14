"""Broadcasting functions of two tensors: arithmetic, comparison, logic, bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.relay.expr import Call
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.families import Array, declare_binary


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    down = np.floor_divide(a, b)  # 0 for a divisor of 0
    inexact = (b != 0) & (down * b != a)
    return np.asarray(down + (inexact & ((a < 0) != (b < 0))).astype(down.dtype))


_Entry = tuple[str, str, Callable[[Any, Any], Any], Callable[[Array, Array], Any]]

_ARITHMETIC: tuple[_Entry, ...] = (
    ("add", "lhs + rhs", topi.add, np.add),
    ("subtract", "lhs - rhs", topi.subtract, np.subtract),
    ("multiply", "lhs * rhs", topi.multiply, np.multiply),
    ("divide", "lhs / rhs; integers round towards zero, and by 0 it is 0.", topi.divide, _divide),
    ("floor_divide", "lhs / rhs rounded down.", topi.floor_divide, np.floor_divide),
    ("mod", "Remainder with the sign of lhs.", topi.mod, np.fmod),
    ("floor_mod", "Remainder with the sign of rhs.", topi.floor_mod, np.mod),
    ("power", "lhs ** rhs", topi.power, np.power),
    ("maximum", "The larger one.", topi.maximum, np.maximum),
    ("minimum", "The smaller one.", topi.minimum, np.minimum),
    ("logical_and", "Whether both are true.", topi.logical_and, np.logical_and),
    ("logical_or", "Whether one is true.", topi.logical_or, np.logical_or),
    ("logical_xor", "Whether exactly one is true.", topi.logical_xor, np.logical_xor),
    ("bitwise_and", "lhs & rhs", topi.bitwise_and, np.bitwise_and),
    ("bitwise_or", "lhs | rhs", topi.bitwise_or, np.bitwise_or),
    ("bitwise_xor", "lhs ^ rhs", topi.bitwise_xor, np.bitwise_xor),
    ("left_shift", "lhs << rhs", topi.left_shift, np.left_shift),
    ("right_shift", "lhs >> rhs", topi.right_shift, np.right_shift),
)

_COMPARISONS: tuple[_Entry, ...] = (
    ("equal", "lhs == rhs", topi.equal, np.equal),
    ("not_equal", "lhs != rhs", topi.not_equal, np.not_equal),
    ("less", "lhs < rhs", topi.less, np.less),
    ("less_equal", "lhs <= rhs", topi.less_equal, np.less_equal),
    ("greater", "lhs > rhs", topi.greater, np.greater),
    ("greater_equal", "lhs >= rhs", topi.greater_equal, np.greater_equal),
)

_IN_SEVERAL_STEPS = ("floor_divide", "mod", "floor_mod", "power")

for _name, _doc, _compute, _evaluate in _ARITHMETIC:
    declare_binary(_name, _doc, _compute, _evaluate, in_float32=_name in _IN_SEVERAL_STEPS)
for _name, _doc, _compute, _evaluate in _COMPARISONS:
    declare_binary(_name, _doc, _compute, _evaluate, relations.broadcast_compare)


def add(lhs: Any, rhs: Any) -> Call:
    """lhs + rhs, broadcast."""
    return call("add", [lhs, rhs])


def subtract(lhs: Any, rhs: Any) -> Call:
    """lhs - rhs, broadcast."""
    return call("subtract", [lhs, rhs])


def multiply(lhs: Any, rhs: Any) -> Call:
    """lhs * rhs, broadcast."""
    return call("multiply", [lhs, rhs])


def divide(lhs: Any, rhs: Any) -> Call:
    """lhs / rhs, broadcast; integers round towards zero."""
    return call("divide", [lhs, rhs])


def floor_divide(lhs: Any, rhs: Any) -> Call:
    """lhs / rhs rounded down, broadcast."""
    return call("floor_divide", [lhs, rhs])


def mod(lhs: Any, rhs: Any) -> Call:
    """Remainder of ``divide``, with the sign of ``lhs``."""
    return call("mod", [lhs, rhs])


def floor_mod(lhs: Any, rhs: Any) -> Call:
    """Remainder of ``floor_divide``, with the sign of ``rhs``."""
    return call("floor_mod", [lhs, rhs])


def power(lhs: Any, rhs: Any) -> Call:
    """lhs ** rhs, broadcast."""
    return call("power", [lhs, rhs])


def maximum(lhs: Any, rhs: Any) -> Call:
    """The larger of ``lhs`` and ``rhs``, broadcast."""
    return call("maximum", [lhs, rhs])


def minimum(lhs: Any, rhs: Any) -> Call:
    """The smaller of ``lhs`` and ``rhs``, broadcast."""
    return call("minimum", [lhs, rhs])


def logical_and(lhs: Any, rhs: Any) -> Call:
    """Whether both are true, broadcast."""
    return call("logical_and", [lhs, rhs])


def logical_or(lhs: Any, rhs: Any) -> Call:
    """Whether at least one is true, broadcast."""
    return call("logical_or", [lhs, rhs])


def logical_xor(lhs: Any, rhs: Any) -> Call:
    """Whether exactly one is true, broadcast."""
    return call("logical_xor", [lhs, rhs])


def bitwise_and(lhs: Any, rhs: Any) -> Call:
    """lhs & rhs, broadcast."""
    return call("bitwise_and", [lhs, rhs])


def bitwise_or(lhs: Any, rhs: Any) -> Call:
    """lhs | rhs, broadcast."""
    return call("bitwise_or", [lhs, rhs])


def bitwise_xor(lhs: Any, rhs: Any) -> Call:
    """lhs ^ rhs, broadcast."""
    return call("bitwise_xor", [lhs, rhs])


def left_shift(lhs: Any, rhs: Any) -> Call:
    """lhs << rhs, broadcast."""
    return call("left_shift", [lhs, rhs])


def right_shift(lhs: Any, rhs: Any) -> Call:
    """lhs >> rhs, broadcast."""
    return call("right_shift", [lhs, rhs])


def equal(lhs: Any, rhs: Any) -> Call:
    """lhs == rhs, broadcast; bool."""
    return call("equal", [lhs, rhs])


def not_equal(lhs: Any, rhs: Any) -> Call:
    """lhs != rhs, broadcast; bool."""
    return call("not_equal", [lhs, rhs])


def less(lhs: Any, rhs: Any) -> Call:
    """lhs < rhs, broadcast; bool."""
    return call("less", [lhs, rhs])


def less_equal(lhs: Any, rhs: Any) -> Call:
    """lhs <= rhs, broadcast; bool."""
    return call("less_equal", [lhs, rhs])


def greater(lhs: Any, rhs: Any) -> Call:
    """lhs > rhs, broadcast; bool."""
    return call("greater", [lhs, rhs])


def greater_equal(lhs: Any, rhs: Any) -> Call:
    """lhs >= rhs, broadcast; bool."""
    return call("greater_equal", [lhs, rhs])
