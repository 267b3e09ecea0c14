"""Integers times a real factor, as integers: what ``requantize`` and its like round by.

========= ======================================================================================================
UPWARD    The factor is ``m * 2 ** (e - 31)``, m of 31 bits. The product is exact, in 64 bits; halves go up:
          ``(x * m + 2 ** (30 - e)) >> (31 - e)``. TVM's default.
TONEAREST As UPWARD, but halves go away from zero: of a negative product one less is added.
TOEVEN    The factor is float32: ``rint(f32(x) * factor)``. The product is rounded to float32, halves go to even.
          ONNX Runtime's arithmetic, and that of the groups of ``relay.qnn.groups``.
========= ======================================================================================================

Each is there twice: on numpy's arrays, which is the definition, and as Relay's operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.op.families import Array
from tilewright.relay.qnn.operators.parameters import value_of

UPWARD, TONEAREST, TOEVEN = "UPWARD", "TONEAREST", "TOEVEN"
MODES = (UPWARD, TONEAREST, TOEVEN)

_POINT = 31  # bits of m
_LARGEST_EXPONENT, _LEAST_EXPONENT = 30, -31


def check_mode(rounding: str) -> None:
    """Raise TilewrightError for a rounding mode that is none."""
    if rounding not in MODES:
        raise TilewrightError(f"rounding has to be one of {', '.join(MODES)}, found {rounding!r}")


def fixed_point(factor: Array) -> tuple[Array, Array]:
    """``(m, shift)`` of positive factors, int64: the factor is ``m / 2 ** shift``, m of 31 bits, the last one rounded.

    Raises:
        UnsupportedError: a factor is 2 ** 30 or more.
    """
    fraction, exponent = np.frexp(np.asarray(factor, "float64"))
    whole = np.floor(fraction * 2.0**_POINT + 0.5).astype(np.int64)
    carried = whole == 1 << _POINT
    whole, exponent = np.where(carried, whole >> 1, whole), exponent.astype(np.int64) + carried
    if (exponent > _LARGEST_EXPONENT).any():
        largest = float(np.asarray(factor).max())
        raise UnsupportedError(f"rounding in fixed point takes scales up to 2**30 apart, found {largest:g}; use TOEVEN")
    small = exponent < _LEAST_EXPONENT  # every int32 times that is less than a half
    return np.where(small, 0, whole), _POINT - np.where(small, 0, exponent)


def rescaled(values: Array, factor: Array, rounding: str) -> Array:
    """``values``, numbers of int32, times ``factor`` (float64), rounded; int64."""
    check_mode(rounding)
    if rounding == TOEVEN:
        rounded = np.rint(values.astype(np.float32) * np.asarray(factor, np.float32))
        return np.clip(rounded, *float_range("int32")).astype(np.int64)
    m, shift = fixed_point(factor)
    product = values.astype(np.int64) * m
    half = np.int64(1) << (shift - 1)
    if rounding == TONEAREST:
        half = half - (product < 0)
    return np.asarray((product + half) >> shift)


def float_range(dtype: str) -> tuple[float, float]:
    """The least and the greatest float32 that an integer type has."""
    low, high = dt.int_range(dtype)
    greatest = np.float32(high)
    return float(low), float(greatest if int(greatest) <= high else np.nextafter(greatest, np.float32(0)))


def saturated(values: Array, zero: Array, dtype: str) -> Array:
    """``values + zero`` as the nearest number of an integer type."""
    return np.clip(values.astype(np.int64) + zero.astype(np.int64), *dt.int_range(dtype)).astype(dtype)


# ------------------------------------------------------------------------------------------- as operators

Shape = Callable[[Array], Array]


def rescale(values: RelayExpr, factor: Array, rounding: str, shaped: Shape) -> RelayExpr:
    """As ``rescaled``: ``values`` are int64 in fixed point and int32 for TOEVEN, and so is the result, or float32.

    Args:
        shaped: makes a vector of factors broadcast.
    """
    check_mode(rounding)
    if rounding == TOEVEN:
        product = relay_op.multiply(relay_op.cast(values, "float32"), _numbers(shaped(factor), "float32"))
        return relay_op.nearbyint(product)
    m, shift = (shaped(part) for part in fixed_point(factor))
    product = relay_op.multiply(values, _numbers(m, "int64"))
    half: RelayExpr = _numbers(np.int64(1) << (shift - 1), "int64")
    if rounding == TONEAREST:  # the shift gives -1 of a negative product
        half = relay_op.add(relay_op.right_shift(product, _numbers(np.int64(63), "int64")), half)
    return relay_op.right_shift(relay_op.add(product, half), _numbers(shift, "int64"))


def saturate(values: RelayExpr, given: str, zero: RelayExpr | None, dtype: str) -> RelayExpr:
    """As ``saturated``, of ``values`` whose type is ``given``: an integer type, or float32 of whole numbers."""
    low, high = dt.int_range(dtype)
    if given == "float32" and dt.bits(dtype) > 16:  # a sum of float32 would round
        values, given = relay_op.cast(relay_op.clip(values, *float_range(dtype)), "int64"), "int64"
    if zero is not None:
        values = relay_op.add(values, _in(zero, given))
    if given == dtype == "int32":
        return values
    return relay_op.cast(relay_op.clip(values, float(low), float(high)), dtype)


def _in(zero: RelayExpr, dtype: str) -> RelayExpr:
    """A zero point, shaped to broadcast, in another type."""
    value = value_of(zero)
    return relay_op.cast(zero, dtype) if value is None else const(value.astype(dtype))


def _numbers(values: Any, dtype: str) -> RelayExpr:
    return const(np.asarray(values, dtype))
