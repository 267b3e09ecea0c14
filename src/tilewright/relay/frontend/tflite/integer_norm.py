"""Layer normalization of integers inside an LSTM's gates, to the bit as TensorFlow Lite's kernels compute it.

Means have 10 fraction bits. One over the square root of a row's variance is five steps of Newton's method in numbers of
3 integer bits, as the library gemmlowp multiplies them, and a shift.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const

Array = np.ndarray[Any, Any]
_GREATEST = (1 << 31) - 1
_ONE, _THREE_HALVES = 1 << 28, 3 << 27  # of 3 integer bits
_HALF_ROOT_OF_TWO = 1518500250  # of no integer bit
_STEPS = 5


def normalized(gate: RelayExpr, weight: Array, bias: Array, guard: int) -> RelayExpr:
    """Return rows of a gate, less their mean, over their deviation, times ``weight`` and plus ``bias``.

    Args:
        gate: int32 numbers of 16 bits, (rows, units).
        weight: int16, (units,).
        bias: int32, (units,), in steps of the weight's over 1024.
        guard: the variance of rows whose own is below 1.

    Returns:
        int32, (rows, units), in steps of the weight's.
    """
    units = weight.size
    data = relay_op.cast(gate, "int64")
    total = relay_op.sum(data, axis=1, keepdims=True)
    mean = _cut(relay_op.multiply(total, _number(1024)), units)
    squares = relay_op.sum(relay_op.multiply(data, data), axis=1, keepdims=True)
    spread = relay_op.subtract(relay_op.multiply(squares, _number((1 << 20) // units)), relay_op.multiply(mean, mean))
    variance = relay_op.right_shift(spread, _number(20))
    variance = relay_op.where(
        relay_op.less(variance, _number(1)), relay_op.full_like(variance, _number(guard)), variance
    )
    factor, shift = _one_over_root(variance)
    centred = relay_op.subtract(relay_op.multiply(data, _number(1024)), mean)
    scaled = _shifted(_high(centred, factor), shift)
    weighted = relay_op.add(relay_op.multiply(scaled, const(weight.astype("int64"))), const(bias.astype("int64")))
    return relay_op.cast(_rounded(weighted, 10), "int32")


def _one_over_root(value: RelayExpr) -> tuple[RelayExpr, RelayExpr]:
    """Return a factor of 31 bits and how far its product is shifted to the right; of numbers from 1 to 2^30."""
    large = relay_op.cast(relay_op.greater_equal(value, _number(1 << 29)), "int64")
    shift = relay_op.add(_number(11), large)
    x = relay_op.right_shift(value, relay_op.multiply(large, _number(2)))
    for pairs in (8, 4, 2, 1):  # of bits, until the number has 28 or 29
        small = relay_op.cast(relay_op.less(x, _number(1 << (29 - 2 * pairs))), "int64")
        x = relay_op.left_shift(x, relay_op.multiply(small, _number(2 * pairs)))
        shift = relay_op.subtract(shift, relay_op.multiply(small, _number(pairs)))
    x = relay_op.right_shift(x, _number(1))
    half = relay_op.right_shift(relay_op.add(x, _number(1)), _number(1))
    root: RelayExpr = relay_op.full_like(x, _number(_ONE))
    for _ in range(_STEPS):
        cube = _raised(_high(_high(root, root), root), 6)
        root = _raised(relay_op.subtract(_high(_number(_THREE_HALVES), root), _high(half, cube)), 3)
    root = _high(root, _number(_HALF_ROOT_OF_TWO))
    negative = relay_op.maximum(relay_op.negative(shift), _number(0))
    root, shift = relay_op.left_shift(root, negative), relay_op.maximum(shift, _number(0))
    one = relay_op.equal(value, _number(1))
    return (
        relay_op.where(one, relay_op.full_like(root, _number(_GREATEST)), root),
        relay_op.where(one, relay_op.zeros_like(shift), shift),
    )


def _high(a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """Return the product over 2^31, rounded, halves up."""
    return relay_op.right_shift(relay_op.add(relay_op.multiply(a, b), _number(1 << 30)), _number(31))


def _raised(value: RelayExpr, times: int) -> RelayExpr:
    """Return the number times a power of two, kept in 32 bits."""
    raised = relay_op.left_shift(value, _number(times))
    return relay_op.minimum(relay_op.maximum(raised, _number(-_GREATEST - 1)), _number(_GREATEST))


def _shifted(value: RelayExpr, shift: RelayExpr) -> RelayExpr:
    """Return the number over 2^shift, rounded to the nearest, halves away from zero."""
    mask = relay_op.subtract(relay_op.left_shift(relay_op.ones_like(shift), shift), _number(1))
    below = relay_op.cast(relay_op.less(value, _number(0)), "int64")
    most = relay_op.add(relay_op.right_shift(mask, _number(1)), below)
    up = relay_op.cast(relay_op.greater(relay_op.bitwise_and(value, mask), most), "int64")
    return relay_op.add(relay_op.right_shift(value, shift), up)


def _rounded(value: RelayExpr, times: int) -> RelayExpr:
    """Return the number over a power of two, rounded to the nearest, halves away from zero."""
    size = relay_op.right_shift(relay_op.add(relay_op.abs(value), _number(1 << (times - 1))), _number(times))
    return relay_op.multiply(size, relay_op.sign(value))


def _cut(value: RelayExpr, divisor: int) -> RelayExpr:
    """Return the quotient, rounded to zero."""
    return relay_op.multiply(relay_op.floor_divide(relay_op.abs(value), _number(divisor)), relay_op.sign(value))


def _number(value: int) -> RelayExpr:
    return const(value, "int64")


__all__ = ["normalized"]
