"""Sums, products and means of quantized tensors on integers alone, for code without a runtime: microcontrollers.

``groups`` defines them in float32. Where the numbers are few, shifts of integers give the same::

    exact     (t + 2 ** (s - 1) - 1 + (t >> s & 1)) >> s   rint(t * 2 ** -s), of t that float32 has exactly
    linear    (n * m + r) >> s                             rint(float32(n) * factor), found and tried for every n
    rational  (2 * n * p + q) // (2 * q), halves to even   the same, of a factor next to p / q, tried for every n

Numbers that only move, to another scale, are looked up in tables. Means over images that none gives, and of windows,
are convolutions by ones (``integer_products``); softmax is an operator of its own. What is left stays in float32.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.op.nn.integer_softmax import contrib_integer_softmax
from tilewright.relay.op.reduce.reduce import Mean as MeanOp
from tilewright.relay.qnn.exact import Form
from tilewright.relay.qnn.groups import Array, Group, Mean, Multiplied, Output, Quantized, Shares, Sum, Windows
from tilewright.relay.qnn.integer_products import integer_mean, integer_windows

_EXACT = 2**24
_BEYOND = 256  # results from here on, without their zero point, have the limits' value
_LARGEST_DENOMINATOR = 2**14
_MOST_NUMBERS = 2**20  # that are tried
_SMALLEST_FACTOR = 2.0**-60
_CANDIDATES = (0, 1, -1, 2, -2, 3, -3, 5, -5, 8, -8, 13, -13)


def integer_steps(group: Group, form: Form) -> RelayExpr | None:
    """Return what a group computes; None where this file has no form for it."""
    if group.output.early:
        return None
    match group:
        case Sum():
            steps = _sum(group, form)
        case Multiplied():
            product = relay_op.multiply(*(form.whole(side, "int32") for side in group.data))
            steps = _scaled(product, group.multiplier, group.data[0].largest * group.data[1].largest)
        case Mean():
            steps = _scaled(_total(group, form), group.multiplier, group.count * group.data.largest)
            if steps is None:
                return integer_mean(group, form.integers(group.data)[0])
        case Windows():
            return integer_windows(group, form.integers(group.data)[0])
        case Shares():
            return _shares(group, form.integers(group.data)[0])
        case _:
            return None
    return None if steps is None else _limited(steps, group.output)


def table_of_steps(data: Quantized, factor: np.float32, output: Output) -> Array:
    """Return the result for each number of the data's type, the least first, of ``(x - zero) * factor``."""
    low, high = dt.int_range(data.dtype)
    value = np.arange(low - data.zero, high - data.zero + 1, dtype=np.float32) * factor
    zero = np.float32(output.zero)
    steps = np.rint(value + zero) if output.early else np.rint(value) + zero
    return np.clip(steps, output.low, output.high).astype(output.dtype)


def _shares(group: Shares, tensor: RelayExpr) -> RelayExpr | None:
    """Softmax; None where a quotient of its factor would be no normal number of float32."""
    if not _SMALLEST_FACTOR <= group.multiplier <= 1 / _SMALLEST_FACTOR:
        return None
    output = group.output
    return contrib_integer_softmax(
        tensor,
        const(group.exponentials),
        axis=group.axis,
        multiplier=float(group.multiplier),
        out_zero=output.zero,
        low=output.low,
        high=output.high,
        out_dtype=output.dtype,
    )


def _limited(steps: RelayExpr, output: Output) -> RelayExpr:
    shifted = relay_op.add(steps, const(output.zero, "int32")) if output.zero else steps
    return relay_op.cast(relay_op.clip(shifted, float(output.low), float(output.high)), output.dtype)


def _total(group: Mean, form: Form) -> RelayExpr:
    attrs: Any = group.operator.attrs
    keeps = group.operator.op is not MeanOp.op or bool(attrs.keepdims)
    return relay_op.sum(form.whole(group.data, "int32"), axis=list(group.axes), keepdims=keeps)


def _parts(factor: Any) -> tuple[int, int]:
    """An odd ``m`` and ``s`` of a positive float32: ``m * 2 ** -s``."""
    numerator, denominator = float(factor).as_integer_ratio()
    twos = (numerator & -numerator).bit_length() - 1
    return numerator >> twos, denominator.bit_length() - 1 - twos


def _shifted_even(total: RelayExpr, shift: int) -> RelayExpr:
    """``rint(total * 2 ** -shift)``."""
    if shift <= 0:
        return relay_op.multiply(total, const(1 << -shift, "int32")) if shift else total
    odd = relay_op.bitwise_and(relay_op.right_shift(total, const(shift, "int32")), const(1, "int32"))
    half = relay_op.add(total, const((1 << (shift - 1)) - 1, "int32"))
    return relay_op.right_shift(relay_op.add(half, odd), const(shift, "int32"))


def _sum(group: Sum, form: Form) -> RelayExpr | None:
    parts = [_parts(m) for m in group.multipliers]
    shift = max(1, *(s for _, s in parts))
    factors = [m << min(shift - s, 31) for m, s in parts]
    largest = sum(f * side.largest for f, side in zip(factors, group.data, strict=True))
    if largest >= 2**30 or shift > 30 or (largest >= _EXACT and _EXACT >> shift < _BEYOND):
        found = fitting_factors(group)
        if found is None:
            return None
        factors, shift = found

    def term(side: Quantized, factor: int) -> RelayExpr:
        return relay_op.multiply(form.whole(side, "int32"), const(factor, "int32"))

    return _shifted_even(relay_op.add(*map(term, group.data, factors)), shift)


def fitting_factors(group: Sum) -> tuple[list[int], int] | None:
    """Return factors of a sum whose scales lie far apart, and a shift; tried for every pair of integers. None of none.

    Results from 256 on may differ, as long as they stay there.
    """
    numbers = [np.arange(low - d.zero, high - d.zero + 1) for d in group.data for low, high in [dt.int_range(d.dtype)]]
    left, right = numbers[0][:, None], numbers[1][None]
    wanted = np.rint(left.astype(np.float32) * group.multipliers[0] + right.astype(np.float32) * group.multipliers[1])
    wanted = np.clip(wanted, -_BEYOND, _BEYOND)
    for shift in range(28, 7, -1):
        factors = [int(np.rint(np.ldexp(np.float64(m), shift))) for m in group.multipliers]
        if sum(abs(f) * d.largest for f, d in zip(factors, group.data, strict=True)) >= 2**30:
            continue
        total = left * factors[0] + right * factors[1]
        steps = (total + (1 << (shift - 1)) - 1 + (total >> shift & 1)) >> shift
        return (factors, shift) if np.array_equal(np.clip(steps, -_BEYOND, _BEYOND), wanted) else None
    return None


def _scaled(value: RelayExpr, factor: np.float32, largest: int) -> RelayExpr | None:
    """``rint(float32(value) * factor)`` of an int32 up to ``largest``."""
    if not np.finfo(np.float32).tiny <= factor < 2**7 or largest >= _MOST_NUMBERS:
        return None
    m, shift = _parts(factor)
    if m * largest < _EXACT and 0 <= shift <= 30:
        return _shifted_even(relay_op.multiply(value, const(m, "int32")), shift)
    found = linear_form(factor, largest)
    if found is None:
        ratio = rational_form(factor, largest)
        return None if ratio is None else _divided_even(value, *ratio)
    wide = relay_op.multiply(relay_op.cast(value, "int64"), const(found[0], "int64"))
    shifted = relay_op.right_shift(relay_op.add(wide, const(found[1], "int64")), const(found[2], "int64"))
    return relay_op.cast(shifted, "int32")


def _divided_even(value: RelayExpr, p: int, q: int) -> RelayExpr:
    """``rint(value * p / q)``."""
    total = relay_op.add(relay_op.multiply(value, const(2 * p, "int32")), const(q, "int32"))
    steps = relay_op.floor_divide(total, const(2 * q, "int32"))
    rest = relay_op.subtract(total, relay_op.multiply(steps, const(2 * q, "int32")))
    half = relay_op.cast(relay_op.equal(rest, const(0, "int32")), "int32")
    return relay_op.subtract(steps, relay_op.bitwise_and(steps, half))


def rational_form(factor: np.float32, largest: int) -> tuple[int, int] | None:
    """Return p and q with ``rint(n * p / q) == rint(float32(n) * factor)`` of all n up to ``largest``, or None."""
    ratio = Fraction(float(factor)).limit_denominator(_LARGEST_DENOMINATOR)
    p, q = ratio.numerator, ratio.denominator
    if not p or 2 * (p * largest + q) >= 2**31:
        return None
    numbers = np.arange(-largest, largest + 1, dtype=np.int64)
    steps, rest = np.divmod(2 * p * numbers + q, 2 * q)
    steps -= steps & (rest == 0)
    return (p, q) if np.array_equal(steps, np.rint(numbers.astype(np.float32) * factor)) else None


def linear_form(factor: np.float32, largest: int) -> tuple[int, int, int] | None:
    """Return m, r and s with ``(n * m + r) >> s == rint(float32(n) * factor)`` of all n up to ``largest``.

    Results from 256 on may differ, as long as they stay there. None where there are none.
    """
    numbers = np.arange(-largest, largest + 1, dtype=np.int64)
    steps = np.rint(numbers.astype(np.float32) * factor).astype(np.int64)
    shift = 30 - int(np.frexp(np.float64(factor))[1])
    low = np.where(steps <= -_BEYOND, np.iinfo(np.int64).min // 2, steps << shift)
    high = np.where(steps >= _BEYOND, np.iinfo(np.int64).max // 2, (steps + 1) << shift)
    low = np.where(steps >= _BEYOND, np.int64(_BEYOND) << shift, low)
    high = np.where(steps <= -_BEYOND, np.int64(1 - _BEYOND) << shift, high)
    middle = int(np.rint(np.ldexp(np.float64(factor), shift)))
    for more in _CANDIDATES:
        products = numbers * (middle + more)
        least, end = int((low - products).max()), int((high - products).min())
        if least < end:
            return middle + more, (least + end) // 2, shift
    return None
