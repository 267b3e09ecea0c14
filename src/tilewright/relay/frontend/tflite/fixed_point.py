"""Sigmoid and tanh of numbers of 16 bits as tables, to the bit as the library gemmlowp computes them.

An array of int64 holds fixed-point numbers of 16 bits; ``F0`` below has 15 fraction bits, ``F2`` 13, ``Fi`` 15 - i.
Products are rounded, halves up; quotients by powers of two are rounded, halves away from zero; sums stay in 16 bits.
exp of what is below zero is exp of its rest over a quarter, by a polynomial, times constants for the bits of the whole
quarters. 1 / (1 + x) is three steps of Newton's method.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_ONE = 32767  # of F0, which has no 1
_ALL = np.arange(-32768, 32768, dtype="int64")
# exp(-2^e) for e from -2, in F0 of 32 bits.
_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


def _of_32_bits(value: int) -> int:
    return (value + (1 << 15)) >> 16


def _product(a: Array | int, b: Array | int) -> Array:
    return np.asarray((np.multiply(a, b, dtype="int64") + (1 << 14)) >> 15)


def _halved(value: Array, times: int) -> Array:
    return np.asarray((value + (1 << (times - 1)) - (value < 0)) >> times)


def _saturated(value: Array) -> Array:
    return np.asarray(np.clip(value, -32768, 32767))


def _exp_near_zero(a: Array) -> Array:
    """Return exp of numbers from -1/4 to 0, F0, by a polynomial around -1/8."""
    x = a + (1 << 12)
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    third = _product(_halved(fourth, 2) + cube, _of_32_bits(715827883))
    rest = _halved(third + square, 1)
    start = _of_32_bits(1895147668)
    return _saturated(start + _product(start, x + rest))


def _exp_below_zero(a: Array, integer_bits: int) -> Array:
    """Return exp of numbers that are not above 0, Fi, as F0."""
    bits = 15 - integer_bits
    quarter = 1 << (bits - 2)
    rest = (a & (quarter - 1)) - quarter
    found = _exp_near_zero(_saturated(rest << integer_bits))
    quarters = rest - a
    for exponent, power in enumerate(_POWERS, -2):
        if integer_bits > exponent:
            there = (quarters >> (bits + exponent)) & 1 if bits + exponent >= 0 else np.zeros_like(a)
            found = np.where(there != 0, _product(found, _of_32_bits(power)), found)
    if integer_bits > 5:
        found = np.where(a < -(1 << (bits + 5)), 0, found)
    return np.where(a == 0, _ONE, found)


def _reciprocal(a: Array) -> Array:
    """Return 2 / (1 + a) of numbers from 0 to 1, F0, as F2."""
    half = (a + _ONE + 1) // 2
    x = _of_32_bits(1515870810) + _product(half, _of_32_bits(-1010580540))
    for _ in range(3):
        error = (1 << 13) - _product(half, x)
        x = _saturated(x + _saturated(_product(x, error) << 2))
    return x


@cache
def sigmoid_table() -> Array:
    """Return the sigmoid of all numbers with 3 integer bits, as int16 of 15 fraction bits."""
    above = _saturated(_reciprocal(_exp_below_zero(-np.abs(_ALL), 3)) << 1)
    found = np.where(_ALL > 0, above, _ONE - above)
    return np.where(_ALL == 0, 1 << 14, found).astype("int16")


@cache
def tanh_table(integer_bits: int) -> Array:
    """Return tanh of all numbers with some integer bits, 0 to 6, as int16 of 15 fraction bits."""
    below = -np.abs(_ALL)
    # Twice the number is the same bits with one integer bit more.
    size = _saturated((_reciprocal(_exp_below_zero(below, integer_bits + 1)) - (1 << 13)) << 2)
    return np.where(_ALL == 0, 0, np.where(_ALL < 0, -size, size)).astype("int16")
