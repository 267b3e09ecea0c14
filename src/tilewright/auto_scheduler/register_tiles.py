"""Tile sizes whose innermost tile is whole vectors that fit the registers.

Of all ways to split, few keep the accumulators of a tile in registers; half of the programs are drawn from these. The
levels are ``S S R S R S``, the first in lists of lengths being the second S:

    i: [any, 1, rows]    j: [any, 1, lanes * columns]    k: [a few]      rows * columns accumulators
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright.auto_scheduler.factorization import factors_of, sample_lengths
from tilewright.auto_scheduler.transform_step import SplitStep

_ELEMENT_BYTES = 4  # of the accumulators of nearly all kernels
_MOST_ACCUMULATORS = 28  # of 32 registers; others hold what is loaded
_FEW_ROWS = 4  # of a tile: with fewer, more is loaded than is computed
_INNER_REDUCTIONS = (1, 2, 4, 8, 16, 32)


def vector_lanes(task: Any) -> int:
    """Elements of a vector of a task's processor."""
    return max(1, task.hardware_params.vector_unit_bytes // _ELEMENT_BYTES)


def fill_register_tiles(steps: list[Any], lanes: int, limit: int, uneven: bool, rng: random.Random) -> None:
    """Fill open splits of tiled stages with such lengths, in place; other splits stay open.

    Vectors may reach past the end of their axis if ``uneven``.
    """
    by_stage: dict[int, list[int]] = {}
    for i, step in enumerate(steps):
        if isinstance(step, SplitStep) and None in step.lengths and step.extent:
            by_stage.setdefault(step.stage_id, []).append(i)
    for numbers in by_stage.values():
        spatial = [i for i in numbers if len(steps[i].lengths) == 3]
        if not spatial:
            _fill_reduction_lanes(steps, numbers, lanes, limit, rng)
            continue
        inner = _inner_tile([steps[i].extent for i in spatial], lanes, limit, uneven, rng)
        for i, length in zip(spatial, inner, strict=True):
            tiles = -(-steps[i].extent // length)
            middle = 1 if rng.random() < 0.8 else rng.choice(factors_of(tiles)[:3])
            outer = sample_lengths(tiles // middle, 1, tiles, rng)
            steps[i] = replace(steps[i], lengths=(*outer, middle, length))
        for i in numbers:
            if len(steps[i].lengths) == 1:
                few = [f for f in factors_of(steps[i].extent) if f in _INNER_REDUCTIONS] or [1]
                steps[i] = replace(steps[i], lengths=(rng.choice(few),))


def _fill_reduction_lanes(steps: list[Any], numbers: Sequence[int], lanes: int, limit: int, rng: random.Random) -> None:
    """Fill the lengths of a reduction of which a part becomes an axis (rfactor), with whole vectors if possible."""
    for i in numbers:
        extent = steps[i].extent
        whole = [f for f in factors_of(extent) if f % lanes == 0 and f <= limit]
        whole = whole or [n for n in (lanes, 2 * lanes) if n <= min(limit, extent // 4)]
        if whole and len(steps[i].lengths) == 1:
            steps[i] = replace(steps[i], lengths=(rng.choice(whole),))


def _inner_tile(extents: Sequence[int], lanes: int, limit: int, uneven: bool, rng: random.Random) -> list[int]:
    """The innermost length of each axis; the last is that of vectors."""
    last = rng.choice(_vector_lengths(extents[-1], lanes, min(limit, 4 * lanes), uneven))
    registers = _MOST_ACCUMULATORS // max(1, -(-last // lanes))
    inner = [1] * len(extents)
    inner[-1] = last
    order = list(range(len(extents) - 1))
    rng.shuffle(order)
    for axis in order:
        inner[axis] = rng.choice(_row_counts(extents[axis], registers))
        registers //= inner[axis]
    return inner


def _vector_lengths(extent: int, lanes: int, limit: int, uneven: bool) -> Sequence[int]:
    """Return lengths of the innermost axis: whole vectors that divide it, or else with a partial last one."""
    whole = [f for f in factors_of(extent) if f % lanes == 0 and f <= limit]
    if whole or not uneven or extent <= lanes:
        return whole or [f for f in factors_of(extent) if f <= limit][-3:]
    past_end = [n for n in range(lanes, limit + 1, lanes) if n < extent]
    return [*past_end, *[f for f in factors_of(extent) if lanes // 2 <= f <= limit]]


def _row_counts(extent: int, registers: int) -> Sequence[int]:
    """Return candidate row counts of a tile; non-divisors if the extent has no suitable divisors."""
    fitting = [f for f in factors_of(extent) if f <= registers]
    if registers < _FEW_ROWS or fitting[-1] >= min(extent, _FEW_ROWS):
        return fitting[-3:]
    return [n for n in range(_FEW_ROWS, registers + 1) if n < extent]
