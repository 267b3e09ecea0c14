"""Ways to write a number as a product: the candidates for tile sizes."""

from __future__ import annotations

import random
from functools import cache


@cache
def factors_of(number: int) -> tuple[int, ...]:
    """The divisors of a number, the smallest first."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


@cache
def _count(extent: int, parts: int, max_innermost: int) -> int:
    """Count the divisions of ``extent`` by ``parts`` lengths, the last at most ``max_innermost``."""
    if parts == 1:
        return sum(f <= max_innermost for f in factors_of(extent))
    return sum(_count(extent // f, parts - 1, max_innermost) for f in factors_of(extent))


def sample_lengths(extent: int, parts: int, max_innermost: int, rng: random.Random) -> tuple[int, ...]:
    """Draw ``parts`` lengths whose product divides ``extent``, uniformly.

    The last, of the innermost loop, is at most ``max_innermost``.
    """
    lengths: list[int] = []
    for left in range(parts, 0, -1):
        choices = factors_of(extent)
        if left == 1:
            choices = tuple(f for f in choices if f <= max_innermost)
            length = rng.choice(choices)
        else:
            weights = [_count(extent // f, left - 1, max_innermost) for f in choices]
            length = rng.choices(choices, weights)[0]
        lengths.append(length)
        extent //= length
    return tuple(lengths)
