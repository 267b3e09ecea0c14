"""Ranges of activations from their histograms: the part of the numbers that 8 bits are spent on.

A histogram has ``BINS`` bins of equal width from ``min(least, 0)`` to ``max(largest, 0)``; zeros are not in it, since
every quantization has 0 exactly.

========== ==========================================================================================================
minmax     all numbers.
percentile all but ``100 - percentile`` per cent of the numbers, half of them at each end.
mse        the range ``share * (least, largest)`` with the least mean squared error of rounding and cutting off.
entropy    the range ``share * (least, largest)`` with the least Kullback-Leibler divergence from the histogram, cut off
           at its ends, of the same histogram in as many steps as there are integers (S. Migacz, "8-bit inference with
           TensorRT", GTC 2017).
========== ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

METHODS = ("minmax", "entropy", "percentile", "mse")
BINS = 2048
_SHARES = np.arange(16, 129) / 128.0
_LEVELS = 255  # steps between 256 integers


@dataclass(frozen=True)
class Histogram:
    """Counts of numbers other than 0 in bins from ``low`` <= 0 to ``high`` >= 0, and how many zeros there were."""

    low: float
    high: float
    counts: Array
    zeros: int = 0

    @property
    def edges(self) -> Array:
        """The ends of the bins."""
        return np.linspace(self.low, self.high, len(self.counts) + 1)

    @property
    def centres(self) -> Array:
        """The middle of each bin."""
        return (self.edges[1:] + self.edges[:-1]) / 2


def choose_range(histogram: Histogram, method: str, percentile: float) -> tuple[float, float]:
    """Return the least and the largest number that integers stand for, 0 between them."""
    low, high = histogram.low, histogram.high
    if method == "minmax" or not histogram.counts.any():
        return low, high
    if method == "percentile":
        return _percentiles(histogram, percentile)
    loss: Callable[[Histogram, float, float], float] = _squared_error if method == "mse" else _divergence
    best = min(_SHARES, key=lambda share: (loss(histogram, low * share, high * share), -share))
    return low * float(best), high * float(best)


def _percentiles(histogram: Histogram, percentile: float) -> tuple[float, float]:
    tail = (100.0 - percentile) / 200.0
    counts, edges = histogram.counts.astype("float64"), histogram.edges
    if histogram.zeros:
        counts[np.clip(np.searchsorted(edges, 0.0, "right") - 1, 0, len(counts) - 1)] += histogram.zeros
    share = np.concatenate([[0.0], np.cumsum(counts)]) / counts.sum()
    low, high = np.interp([tail, 1.0 - tail], share, edges)
    return min(float(low), 0.0), max(float(high), 0.0)


def _squared_error(histogram: Histogram, low: float, high: float) -> float:
    step = (high - low) / _LEVELS
    zero = np.rint(-low / step)
    values = histogram.centres
    rounded = (np.clip(np.rint(values / step) + zero, 0, _LEVELS) - zero) * step
    return float((histogram.counts * (values - rounded) ** 2).sum() / histogram.counts.sum())


def _divergence(histogram: Histogram, low: float, high: float) -> float:
    counts, centres = histogram.counts.astype("float64"), histogram.centres
    first, last = np.searchsorted(centres, [low, high])
    inside = counts[first:last]
    if not inside.sum():
        return np.inf
    given = inside.copy()
    given[0] += counts[:first].sum()
    given[-1] += counts[last:].sum()
    levels = np.minimum((np.arange(len(inside)) * (_LEVELS + 1)) // len(inside), _LEVELS)
    filled = inside > 0
    mass = np.bincount(levels, inside, _LEVELS + 1)
    places = np.bincount(levels, filled, _LEVELS + 1)
    spread = np.where(filled, mass[levels] / np.maximum(places[levels], 1), 0.0)
    return _kl(given / given.sum(), spread / spread.sum())


def _kl(p: Array, q: Array) -> float:
    """Return the divergence of two distributions; what q lacks and p has counts as a very small share."""
    there = p > 0
    return float((p[there] * np.log(p[there] / np.maximum(q[there], 1e-10))).sum())
