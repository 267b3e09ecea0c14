"""Small things that the tuner's parts share."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

SI_PREFIXES = "yzafpn\u00b5m kMGTPEZY"
_SMALLEST = -24  # the power of ten of the first of them


def format_si_prefix(x: float, si_prefix: str) -> float:
    """Return ``x`` in units of the prefix: ``format_si_prefix(2e9, "G")`` is 2.0. Raises ValueError on an
    unknown one.
    """
    return float(x) / 10 ** (SI_PREFIXES.index(si_prefix) * 3 + _SMALLEST)


def get_rank(values: np.ndarray) -> np.ndarray:
    """The rank of each value, 0 for the largest."""
    order = np.argsort(-values)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks


def sample_ints(low: int, high: int, m: int) -> list[int]:
    """Sample ``m`` different integers of [low, high), a range that may exceed numpy's integers."""
    return random.sample(range(low, high), m)


def mean(costs: Sequence[float]) -> float:
    """The mean; infinite of nothing."""
    return sum(costs) / len(costs) if costs else float("inf")
