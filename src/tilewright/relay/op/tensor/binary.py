"""Broadcasting functions of two tensors: arithmetic, comparison, logic, bits."""

from __future__ import annotations

import numpy as np

from tilewright import topi
from tilewright.relay.op import relations, value_ranges
from tilewright.relay.op.families import Array, binary


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    down = np.floor_divide(a, b)  # 0 for a divisor of 0
    inexact = (b != 0) & (down * b != a)
    return np.asarray(down + (inexact & ((a < 0) != (b < 0))).astype(down.dtype))


add = binary("add", "lhs + rhs, broadcast.", topi.add, np.add, neutral=(0, 0), finite=True, support_level=1)
subtract = binary(
    "subtract", "lhs - rhs, broadcast.", topi.subtract, np.subtract, neutral=(None, 0), finite=True, support_level=1
)
multiply = binary(
    "multiply",
    "lhs * rhs, broadcast.",
    topi.multiply,
    np.multiply,
    neutral=(1, 1),
    absorbing=0,
    finite=True,
    support_level=1,
)
divide = binary(
    "divide",
    "lhs / rhs, broadcast; integers round towards zero.",
    topi.divide,
    _divide,
    neutral=(None, 1),
    support_level=1,
)
floor_divide = binary(
    "floor_divide",
    "lhs / rhs rounded down, broadcast.",
    topi.floor_divide,
    np.floor_divide,
    in_float32=True,
    support_level=1,
)
mod = binary(
    "mod", "Remainder of ``divide``, with the sign of ``lhs``.", topi.mod, np.fmod, in_float32=True, support_level=1
)
floor_mod = binary(
    "floor_mod",
    "Remainder of ``floor_divide``, with the sign of ``rhs``.",
    topi.floor_mod,
    np.mod,
    in_float32=True,
    support_level=1,
)
power = binary("power", "lhs ** rhs, broadcast.", topi.power, np.power, in_float32=True, support_level=4)
maximum = binary(
    "maximum",
    "The larger of ``lhs`` and ``rhs``, broadcast.",
    topi.maximum,
    np.maximum,
    value_range=value_ranges.largest,
    finite=True,
    support_level=4,
)
minimum = binary(
    "minimum",
    "The smaller of ``lhs`` and ``rhs``, broadcast.",
    topi.minimum,
    np.minimum,
    value_range=value_ranges.smallest,
    finite=True,
    support_level=4,
)
logical_and = binary(
    "logical_and", "Whether both are true, broadcast.", topi.logical_and, np.logical_and, support_level=4
)
logical_or = binary(
    "logical_or", "Whether at least one is true, broadcast.", topi.logical_or, np.logical_or, support_level=4
)
logical_xor = binary(
    "logical_xor", "Whether exactly one is true, broadcast.", topi.logical_xor, np.logical_xor, support_level=4
)
bitwise_and = binary("bitwise_and", "lhs & rhs, broadcast.", topi.bitwise_and, np.bitwise_and)
bitwise_or = binary("bitwise_or", "lhs | rhs, broadcast.", topi.bitwise_or, np.bitwise_or)
bitwise_xor = binary("bitwise_xor", "lhs ^ rhs, broadcast.", topi.bitwise_xor, np.bitwise_xor)
left_shift = binary("left_shift", "lhs << rhs, broadcast.", topi.left_shift, np.left_shift, support_level=4)
right_shift = binary("right_shift", "lhs >> rhs, broadcast.", topi.right_shift, np.right_shift, support_level=4)
equal = binary(
    "equal", "lhs == rhs, broadcast; bool.", topi.equal, np.equal, relations.broadcast_compare, support_level=4
)
not_equal = binary(
    "not_equal",
    "lhs != rhs, broadcast; bool.",
    topi.not_equal,
    np.not_equal,
    relations.broadcast_compare,
    support_level=4,
)
less = binary(
    "less", "lhs < rhs, broadcast; bool.", topi.less, np.less, relations.broadcast_compare, finite=True, support_level=4
)
less_equal = binary(
    "less_equal",
    "lhs <= rhs, broadcast; bool.",
    topi.less_equal,
    np.less_equal,
    relations.broadcast_compare,
    support_level=4,
)
greater = binary(
    "greater",
    "lhs > rhs, broadcast; bool.",
    topi.greater,
    np.greater,
    relations.broadcast_compare,
    finite=True,
    support_level=4,
)
greater_equal = binary(
    "greater_equal",
    "lhs >= rhs, broadcast; bool.",
    topi.greater_equal,
    np.greater_equal,
    relations.broadcast_compare,
    support_level=4,
)
