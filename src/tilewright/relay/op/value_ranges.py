"""Ranges of values: the hook ``value_range(attrs, ranges, types)`` of an operator returns one for each result.

A range is the least and the greatest value that an integer tensor may hold; a tuple has one range for all its fields.
``ranges`` and ``types`` are those of the arguments. Operators that only move data (``moves``) need no hook.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.type import TensorType, Type

Range = tuple[float, float]

EVERYTHING: Range = (-math.inf, math.inf)


def positions(data: Type, axes: Sequence[int] | None = None) -> Range:
    """Return the range of positions along ``axes`` of ``data``, or in the whole of it."""
    if not isinstance(data, TensorType) or data.is_dynamic:
        return EVERYTHING
    shape = data.concrete_shape
    return 0, max(math.prod(shape if axes is None else [shape[a] for a in axes]) - 1, 0)


def largest(attrs: object, ranges: Sequence[Range], types: Sequence[Type]) -> list[Range]:
    """Return the range of the element-wise maximum."""
    return [(max(low for low, _ in ranges), max(high for _, high in ranges))]


def smallest(attrs: object, ranges: Sequence[Range], types: Sequence[Type]) -> list[Range]:
    """Return the range of the element-wise minimum."""
    return [(min(low for low, _ in ranges), min(high for _, high in ranges))]


def selected(attrs: object, ranges: Sequence[Range], types: Sequence[Type]) -> list[Range]:
    """Return the union of the ranges of all operands but the first, the condition."""
    return [(min(low for low, _ in ranges[1:]), max(high for _, high in ranges[1:]))]


def limited(attrs: Any, ranges: Sequence[Range], types: Sequence[Type]) -> list[Range]:
    """Return the range between two bounds."""
    return [(attrs.a_min, attrs.a_max)]


def converted(attrs: Any, ranges: Sequence[Range], types: Sequence[Type]) -> list[Range]:
    """Return the range of the argument where the new dtype holds it."""
    data, dtype = types[0], attrs.dtype
    if not isinstance(data, TensorType) or not dt.is_int(dtype) or not dt.is_int(data.dtype) or dt.bits(dtype) < 8:
        return [EVERYTHING]
    info = np.iinfo(dtype)
    return [ranges[0] if info.min <= ranges[0][0] and ranges[0][1] <= info.max else EVERYTHING]


def extreme_positions(attrs: Any, ranges: Sequence[Range], types: Sequence[Type]) -> list[Range]:
    """Return the range of positions along the reduced axes."""
    axis = None if attrs.exclude else attrs.axis
    return [positions(types[0], axis if axis is None or isinstance(axis, tuple) else (axis,))]


def order(attrs: Any, ranges: Sequence[Range], types: Sequence[Type]) -> list[Range]:
    """Return the range of positions along one axis."""
    return [positions(types[0], (attrs.axis,))]
