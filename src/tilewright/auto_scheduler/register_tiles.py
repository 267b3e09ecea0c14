"""Tile sizes with which the innermost tile is whole vectors, and as many as registers hold.

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
_INNER_REDUCTIONS = (1, 2, 4, 8, 16, 32)


def fill_register_tiles(steps: list[Any], vector_bytes: int, limit: int, rng: random.Random) -> None:
    """Give open splits of tiled stages lengths, in place; other splits stay open."""
    by_stage: dict[int, list[int]] = {}
    for i, step in enumerate(steps):
        if isinstance(step, SplitStep) and None in step.lengths and step.extent:
            by_stage.setdefault(step.stage_id, []).append(i)
    for numbers in by_stage.values():
        spatial = [i for i in numbers if len(steps[i].lengths) == 3]
        if not spatial:
            _fill_reduction_lanes(steps, numbers, max(1, vector_bytes // _ELEMENT_BYTES), limit, rng)
            continue
        inner = _inner_tile([steps[i].extent for i in spatial], max(1, vector_bytes // _ELEMENT_BYTES), limit, rng)
        for i, length in zip(spatial, inner, strict=True):
            middle = 1 if rng.random() < 0.8 else rng.choice(factors_of(steps[i].extent // length)[:3])
            outer = sample_lengths(steps[i].extent // length // middle, 1, steps[i].extent, rng)
            steps[i] = replace(steps[i], lengths=(*outer, middle, length))
        for i in numbers:
            if len(steps[i].lengths) == 1:
                few = [f for f in factors_of(steps[i].extent) if f in _INNER_REDUCTIONS] or [1]
                steps[i] = replace(steps[i], lengths=(rng.choice(few),))


def _fill_reduction_lanes(steps: list[Any], numbers: Sequence[int], lanes: int, limit: int, rng: random.Random) -> None:
    """A reduction of which a part becomes an axis (rfactor): of whole vectors, if it can be."""
    for i in numbers:
        whole = [f for f in factors_of(steps[i].extent) if f % lanes == 0 and f <= limit]
        if whole and len(steps[i].lengths) == 1:
            steps[i] = replace(steps[i], lengths=(rng.choice(whole),))


def _inner_tile(extents: Sequence[int], lanes: int, limit: int, rng: random.Random) -> list[int]:
    """The innermost length of each axis; the last is that of vectors."""
    whole = [f for f in factors_of(extents[-1]) if f % lanes == 0 and f <= min(limit, 4 * lanes)]
    last = rng.choice(whole or [f for f in factors_of(extents[-1]) if f <= limit][-3:])
    room = _MOST_ACCUMULATORS // max(1, -(-last // lanes))
    inner = [1] * len(extents)
    inner[-1] = last
    order = list(range(len(extents) - 1))
    rng.shuffle(order)
    for axis in order:
        fitting = [f for f in factors_of(extents[axis]) if f <= room]
        inner[axis] = rng.choice(fitting[-3:])
        room //= inner[axis]
    return inner
