"""Broadcasting functions of two tensors: arithmetic, comparison, logic, bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright import topi
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op import relations, value_ranges
from tilewright.relay.op.builder import ops
from tilewright.relay.op.families import Array, binary
from tilewright.relay.op.gradients import Gradients, collapsed, no_gradient, number


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    down = np.floor_divide(a, b)  # 0 for a divisor of 0
    inexact = (b != 0) & (down * b != a)
    return np.asarray(down + (inexact & ((a < 0) != (b < 0))).astype(down.dtype))


def _of_sum(attrs: None, orig: Call, grad: RelayExpr) -> Gradients:
    return [collapsed(grad, orig, arg) for arg in orig.args]


def _of_difference(attrs: None, orig: Call, grad: RelayExpr) -> Gradients:
    x, y = orig.args
    return [collapsed(grad, orig, x), ops.negative(collapsed(grad, orig, y))]


def _of_product(attrs: None, orig: Call, grad: RelayExpr) -> Gradients:
    x, y = orig.args
    return [collapsed(multiply(grad, y), orig, x), collapsed(multiply(grad, x), orig, y)]


def _of_quotient(attrs: None, orig: Call, grad: RelayExpr) -> Gradients:
    x, y = orig.args
    by_x = divide(grad, y)
    return [collapsed(by_x, orig, x), ops.negative(collapsed(multiply(by_x, orig), orig, y))]


def _of_power(attrs: None, orig: Call, grad: RelayExpr) -> Gradients:
    """Of x^y: y x^(y-1), 0 for y = 0; and x^y log(x), 0 for x = 0 and y >= 0."""
    x, y = orig.args
    zero, one = number(0, x), number(1, x)
    by_x = ops.where(equal(y, zero), zero, multiply(grad, multiply(y, power(x, subtract(y, one)))))
    still = logical_and(equal(x, zero), greater_equal(y, zero))
    by_y = ops.where(still, zero, multiply(grad, multiply(orig, ops.log(x))))
    return [collapsed(by_x, orig, x), collapsed(by_y, orig, y)]


def _of_extreme(taken: str) -> Callable[[None, Call, RelayExpr], Gradients]:
    """To the one that is taken, by this comparison; half to each where they are equal."""

    def gradient(attrs: None, orig: Call, grad: RelayExpr) -> Gradients:
        x, y = orig.args
        zero, half = number(0, x), multiply(grad, number(0.5, x))

        def share(a: RelayExpr, b: RelayExpr) -> RelayExpr:
            kept = ops.where(getattr(ops, taken)(a, b), grad, ops.where(equal(a, b), half, zero))
            return collapsed(kept, orig, a)

        return [share(x, y), share(y, x)]

    return gradient


def _of_remainder(quotient: Callable[[RelayExpr, RelayExpr], Call]) -> Callable[[None, Call, RelayExpr], Gradients]:
    def gradient(attrs: None, orig: Call, grad: RelayExpr) -> Gradients:
        x, y = orig.args
        return [collapsed(grad, orig, x), ops.negative(collapsed(multiply(grad, quotient(x, y)), orig, y))]

    return gradient


add = binary(
    "add", "lhs + rhs, broadcast.", topi.add, np.add, neutral=(0, 0), finite=True, support_level=1, gradient=_of_sum,
)  # fmt: skip
subtract = binary(
    "subtract", "lhs - rhs, broadcast.", topi.subtract, np.subtract, neutral=(None, 0), finite=True, support_level=1,
    gradient=_of_difference,
)  # fmt: skip
multiply = binary(
    "multiply", "lhs * rhs, broadcast.",
    topi.multiply, np.multiply, neutral=(1, 1), absorbing=0, finite=True, support_level=1, gradient=_of_product,
)  # fmt: skip
divide = binary(
    "divide", "lhs / rhs, broadcast; integers round towards zero.",
    topi.divide, _divide, neutral=(None, 1), support_level=1, gradient=_of_quotient,
)  # fmt: skip
floor_divide = binary(
    "floor_divide", "lhs / rhs rounded down, broadcast.",
    topi.floor_divide, np.floor_divide, in_float32=True, support_level=1, gradient=no_gradient,
)  # fmt: skip
mod = binary(
    "mod", "Remainder of ``divide``, with the sign of ``lhs``.", topi.mod, np.fmod, in_float32=True, support_level=1,
    gradient=_of_remainder(lambda x, y: ops.trunc(ops.divide(x, y))),
)  # fmt: skip
floor_mod = binary(
    "floor_mod", "Remainder of ``floor_divide``, with the sign of ``rhs``.",
    topi.floor_mod, np.mod, in_float32=True, support_level=1,
    gradient=_of_remainder(lambda x, y: ops.floor_divide(x, y)),
)  # fmt: skip
power = binary(
    "power", "lhs ** rhs, broadcast.", topi.power, np.power, in_float32=True, transcendental=True,
    support_level=4, gradient=_of_power,
)  # fmt: skip
maximum = binary(
    "maximum", "The larger of ``lhs`` and ``rhs``, broadcast.",
    topi.maximum, np.maximum, value_range=value_ranges.largest, finite=True, support_level=4,
    gradient=_of_extreme("greater"),
)  # fmt: skip
minimum = binary(
    "minimum", "The smaller of ``lhs`` and ``rhs``, broadcast.",
    topi.minimum, np.minimum, value_range=value_ranges.smallest, finite=True, support_level=4,
    gradient=_of_extreme("less"),
)  # fmt: skip
logical_and = binary(
    "logical_and", "Whether both are true, broadcast.", topi.logical_and, np.logical_and, support_level=4,
    gradient=no_gradient,
)  # fmt: skip
logical_or = binary(
    "logical_or", "Whether at least one is true, broadcast.", topi.logical_or, np.logical_or, support_level=4,
    gradient=no_gradient,
)  # fmt: skip
logical_xor = binary(
    "logical_xor", "Whether exactly one is true, broadcast.", topi.logical_xor, np.logical_xor, support_level=4,
    gradient=no_gradient,
)  # fmt: skip
bitwise_and = binary("bitwise_and", "lhs & rhs, broadcast.", topi.bitwise_and, np.bitwise_and, gradient=no_gradient)
bitwise_or = binary("bitwise_or", "lhs | rhs, broadcast.", topi.bitwise_or, np.bitwise_or, gradient=no_gradient)
bitwise_xor = binary("bitwise_xor", "lhs ^ rhs, broadcast.", topi.bitwise_xor, np.bitwise_xor, gradient=no_gradient)
left_shift = binary(
    "left_shift", "lhs << rhs, broadcast.", topi.left_shift, np.left_shift, support_level=4, gradient=no_gradient,
)  # fmt: skip
right_shift = binary(
    "right_shift", "lhs >> rhs, broadcast.", topi.right_shift, np.right_shift, support_level=4, gradient=no_gradient,
)  # fmt: skip
equal = binary(
    "equal", "lhs == rhs, broadcast; bool.", topi.equal, np.equal, relations.broadcast_compare, support_level=4,
    gradient=no_gradient,
)  # fmt: skip
not_equal = binary(
    "not_equal", "lhs != rhs, broadcast; bool.",
    topi.not_equal, np.not_equal, relations.broadcast_compare, support_level=4, gradient=no_gradient,
)  # fmt: skip
less = binary(
    "less", "lhs < rhs, broadcast; bool.",
    topi.less, np.less, relations.broadcast_compare, finite=True, support_level=4, gradient=no_gradient,
)  # fmt: skip
less_equal = binary(
    "less_equal", "lhs <= rhs, broadcast; bool.",
    topi.less_equal, np.less_equal, relations.broadcast_compare, support_level=4, gradient=no_gradient,
)  # fmt: skip
greater = binary(
    "greater", "lhs > rhs, broadcast; bool.",
    topi.greater, np.greater, relations.broadcast_compare, finite=True, support_level=4, gradient=no_gradient,
)  # fmt: skip
greater_equal = binary(
    "greater_equal", "lhs >= rhs, broadcast; bool.",
    topi.greater_equal, np.greater_equal, relations.broadcast_compare, support_level=4, gradient=no_gradient,
)  # fmt: skip
