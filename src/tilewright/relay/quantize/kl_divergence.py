"""The range of a tensor by the Kullback-Leibler divergence of its histogram from the quantized one.

After S. Migacz, "8-bit inference with TensorRT", GTC 2017, with the bins and the smoothing that MXNet and TVM take.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_SMOOTHING = 1e-4  # mass of an empty bin


def _find_scale_by_kl(
    arr: Array, quantized_dtype: str = "int8", num_bins: int = 8001, num_quantized_bins: int = 255
) -> float:
    """Return the largest magnitude that integers should stand for; 0 for a tensor of zeros.

    Args:
        arr: the numbers.
        quantized_dtype: "uint8" has twice the steps for numbers that are not negative.
        num_bins: bins of the histogram, an odd number.
        num_quantized_bins: steps of the integers, an odd number.
    """
    largest = float(np.abs(arr).max(initial=0))
    if not largest:
        return 0.0
    if quantized_dtype == "uint8" and arr.min() >= 0:
        num_quantized_bins = num_quantized_bins * 2 + 1
    counts, edges = np.histogram(arr, num_bins, (-largest, largest))
    middle = num_bins // 2
    widths = range(num_quantized_bins // 2, middle + 1)
    losses = [_loss(counts, middle - width, middle + width + 1, num_quantized_bins) for width in widths]
    return float(edges[middle + widths[int(np.argmin(losses))] + 1])


def _loss(counts: Array, start: int, stop: int, steps: int) -> float:
    """Return the divergence of the histogram cut off to ``[start, stop)`` from the same in ``steps`` steps."""
    inside = counts[start:stop].astype("float64")
    inside[0] = 0
    cut = inside.copy()
    cut[0] = counts[: start + 1].sum()
    cut[-1] += counts[stop:].sum()
    merged = len(inside) // steps
    first = np.arange(steps) * merged
    sums, filled = np.add.reduceat(inside, first), np.add.reduceat(inside != 0, first, dtype="int64")
    step_of = np.minimum(np.arange(len(inside)) // merged, steps - 1)
    spread = np.where(cut != 0, (sums / np.maximum(filled, 1))[step_of], 0.0)
    p, q = _smoothed(cut), _smoothed(spread)
    if p is None or q is None:
        return np.inf
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())


def _smoothed(counts: Array) -> Array | None:
    """Give empty bins some of the mass of the others; None where that is more than they have."""
    empty = counts == 0
    full = len(counts) - int(empty.sum())
    taken = _SMOOTHING * (len(counts) - full) / full if full else 1.0
    return None if taken >= 1 else np.where(empty, _SMOOTHING, counts - taken)
