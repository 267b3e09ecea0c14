"""Random choices that can be replayed and made simpler, and the arrays that are drawn by them.

A generator of cases is a function of a ``Draw``. Every choice is a number below a bound, and 0 is the simplest; what
was chosen is the list of these numbers. ``shrink`` looks for a smaller list that fails in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

# Simple ones first: what shrinking leaves.
EXTENTS = (1, 2, 3, 0, 5, 4, 7, 8, 13, 17, 31)
# What a tensor holds at most.
MAX_ELEMENTS = 3000
FLOATS = ("float32", "float64", "float16", "bfloat16")


class Discard(Exception):
    """The choices do not make a case; others are drawn."""


class Draw:
    """Choices from a seed, or those of an earlier run (with zeros where it has no more)."""

    def __init__(self, seed: Sequence[int] = (), replay: Sequence[int] | None = None) -> None:
        self._rng = np.random.default_rng(list(seed)) if replay is None else None
        self._replay = list(replay or ())
        self.choices: list[int] = []

    def below(self, bound: int) -> int:
        """A number from 0 to ``bound - 1``."""
        if self._rng is not None:
            value = int(self._rng.integers(bound))
        else:
            index = len(self.choices)
            value = min(self._replay[index], bound - 1) if index < len(self._replay) else 0
        self.choices.append(value)
        return value

    def between(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``."""
        return low + self.below(high - low + 1)

    def of(self, *options: Any) -> Any:
        """One of the options."""
        return options[self.below(len(options))]

    def chance(self, one_in: int) -> bool:
        """True once in ``one_in``."""
        return self.below(one_in) == one_in - 1

    def some(self, items: Sequence[Any]) -> list[Any]:
        """Some of the items, in their order."""
        return [item for item in items if self.of(False, True)]

    def order(self, count: int) -> list[int]:
        """A permutation of ``range(count)``."""
        left = list(range(count))
        return [left.pop(self.below(len(left))) for _ in range(count)]

    def shape(self, low: int = 0, high: int = 4, extents: Sequence[int] = EXTENTS) -> tuple[int, ...]:
        """Extents of a tensor of rank ``low`` to ``high``."""
        found: list[int] = []
        for _ in range(self.between(low, high)):
            extent = self.of(*extents)
            found.append(extent if math.prod(found) * extent <= MAX_ELEMENTS else 2)
        return tuple(found)

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to ``shape``: some extents 1, some at the front missing."""
        kept = [1 if self.chance(4) else extent for extent in shape]
        return tuple(kept[self.below(len(kept) + 1) if self.chance(4) else 0 :])

    def array(self, dtype: str, shape: Sequence[int], kinds: str = "any") -> Array:
        """Numbers of one kind: ``mild`` ones, ``finite`` ones (large ones too), or ``any`` (special values too).

        ``open``: mild ones, infinities and NaN, without large ones, whose products may overflow or not.
        """
        options = {
            "mild": ("small", "normal"),
            "finite": ("small", "normal", "wide", "extreme"),
            "open": ("small", "normal", "infinite"),
        }
        kind = self.of(*options.get(kinds, ("small", "normal", "wide", "special")))
        return fill(np.random.default_rng(self.below(1 << 16)), kind, dtype, tuple(shape))

    def integers(self, dtype: str, shape: Sequence[int], low: int, high: int) -> Array:
        """Numbers from ``low`` to ``high`` - 1."""
        rng = np.random.default_rng(self.below(1 << 16))
        if low >= high and math.prod(shape):
            raise Discard
        return rng.integers(low, max(high, low + 1), tuple(shape)).astype(dtype)


def fill(rng: np.random.Generator, kind: str, dtype: str, shape: tuple[int, ...]) -> Array:
    """An array of one kind of numbers."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in FLOATS:
        return _floats(rng, kind, numpy_dtype(dtype), shape)
    info = np.iinfo(dtype)
    match kind:
        case "small":
            return rng.integers(max(info.min, -3), 4, shape).astype(dtype)
        case "normal":
            return rng.integers(max(info.min, -100), 101, shape).astype(dtype)
        case "wide":
            return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        case _:
            values = {info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, max(info.min, -1), max(info.min, -2)}
            return rng.choice(np.array(sorted(values), dtype=dtype), shape)


def _floats(rng: np.random.Generator, kind: str, dtype: Any, shape: tuple[int, ...]) -> Array:
    info = ml_dtypes.finfo(dtype)
    largest, tiny, least = float(info.max), float(info.smallest_normal), float(info.smallest_subnormal)
    match kind:
        case "small":
            return rng.integers(-3, 4, shape).astype(dtype)
        case "normal":
            return rng.standard_normal(shape).astype(dtype)
        case "wide":
            reach = math.log10(largest) - 1
            return (rng.choice([-1.0, 1.0], shape) * 10 ** rng.uniform(-reach, reach, shape)).astype(dtype)
    infinite = [math.nan, math.inf, -math.inf]
    if kind == "infinite":
        return rng.choice(np.array([0.0, 1.0, -1.0, 0.5, 2.5, -2.5, *infinite]), shape).astype(dtype)
    finite = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1.5, largest, -largest, tiny, -tiny, least, -least, 3 * least]
    values = finite if kind == "extreme" else [*finite, *infinite, *infinite]
    return rng.choice(np.array(values), shape).astype(dtype)


def numpy_dtype(dtype: str) -> Any:
    """The numpy data type of a name."""
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def shrink(choices: Sequence[int], fails: Any, budget: int = 400) -> list[int]:
    """A simpler list of choices for which ``fails`` still holds, after at most ``budget`` tries."""
    best, tries = list(choices), 0

    def better(candidate: list[int]) -> bool:
        nonlocal best, tries
        if candidate == best or tries >= budget:
            return False
        tries += 1
        if not fails(candidate):
            return False
        best = candidate
        return True

    improved = True
    while improved and tries < budget:
        improved = False
        for size in (8, 4, 2, 1):
            start = 0
            while start < len(best):
                if not better(best[:start] + best[start + size :]):
                    start += size
                else:
                    improved = True
        for i in range(len(best)):
            for smaller in (0, best[i] // 2, best[i] - 1):
                if i < len(best) and 0 <= smaller < best[i] and better([*best[:i], smaller, *best[i + 1 :]]):
                    improved = True
    return best
