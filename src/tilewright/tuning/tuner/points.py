"""Configurations as one number, as a number for each choice, and many of them as matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def point2knob(p: int, dims: Sequence[int]) -> list[int]:
    """The value of each choice, of the configuration number ``p``; the first choice varies fastest."""
    knobs = []
    for dim in dims:
        p, value = divmod(p, dim)
        knobs.append(value)
    return knobs


def knob2point(knob: Sequence[int], dims: Sequence[int]) -> int:
    """The number of a configuration, of the value of each choice."""
    point = 0
    for value, dim in zip(reversed(list(knob)), reversed(list(dims)), strict=True):
        point = point * dim + int(value)
    return point


def points_to_knobs(points: np.ndarray, dims: Sequence[int]) -> np.ndarray:
    """A row of values for each of many configurations."""
    rest = np.asarray(points, dtype=np.int64 if _fits(dims) else object)
    columns = []
    for dim in dims:
        columns.append((rest % dim).astype(np.int64))
        rest = rest // dim
    return np.stack(columns, axis=1) if columns else np.zeros((len(points), 0), np.int64)


def knobs_to_points(knobs: np.ndarray, dims: Sequence[int]) -> np.ndarray:
    """The numbers of configurations that are rows of values."""
    points = np.zeros(len(knobs), dtype=np.int64 if _fits(dims) else object)
    for column in reversed(range(len(dims))):
        points = points * dims[column] + knobs[:, column]
    return points


def _fits(dims: Sequence[int]) -> bool:
    size = 1
    for dim in dims:
        size *= dim
    return size < 1 << 62
