"""Convolutions in numpy, by windows of the data, in double precision."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def convolve(
    data: Array,
    kernel: Array,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
) -> Array:
    """Data (n, c, ...) with kernel (o, c / groups, ...); ``padding`` the same before and after."""
    n = data.ndim - 2
    data = np.pad(data.astype(np.float64), [(0, 0), (0, 0), *((p, p) for p in padding)])
    window = kernel.shape[2:]
    out = [(d - (k - 1) * e - 1) // s + 1 for d, k, e, s in zip(data.shape[2:], window, dilation, strides, strict=True)]
    result = np.zeros((data.shape[0], kernel.shape[0], *out))
    per_in, per_out = kernel.shape[1], kernel.shape[0] // groups
    for tap in itertools.product(*(range(k) for k in window)):
        cut = [slice(t * e, t * e + (o - 1) * s + 1, s) for t, e, o, s in zip(tap, dilation, out, strides, strict=True)]
        part = data[(slice(None), slice(None), *cut)]
        for g in range(groups):
            inputs, outputs = slice(g * per_in, (g + 1) * per_in), slice(g * per_out, (g + 1) * per_out)
            weights = kernel[(outputs, slice(None), *tap)].astype(np.float64)
            result[:, outputs] += np.moveaxis(np.tensordot(weights, part[:, inputs], (1, 1)), 0, 1)
    assert result.ndim == n + 2
    return result


def convolve_transposed(
    data: Array, kernel: Array, strides: Sequence[int], padding: Sequence[int], more: Sequence[int], groups: int = 1
) -> Array:
    """Data (n, c, ...) with kernel (c, o / groups, ...): each element spread over its window."""
    window = kernel.shape[2:]
    full = [(d - 1) * s + k + m for d, s, k, m in zip(data.shape[2:], strides, window, more, strict=True)]
    per_in, per_out = data.shape[1] // groups, kernel.shape[1]
    result = np.zeros((data.shape[0], per_out * groups, *full))
    for tap in itertools.product(*(range(k) for k in window)):
        cut = [slice(t, t + (d - 1) * s + 1, s) for t, d, s in zip(tap, data.shape[2:], strides, strict=True)]
        for g in range(groups):
            inputs, outputs = slice(g * per_in, (g + 1) * per_in), slice(g * per_out, (g + 1) * per_out)
            weights = kernel[(inputs, slice(None), *tap)].astype(np.float64)
            part = np.moveaxis(np.tensordot(weights, data[:, inputs].astype(np.float64), (0, 1)), 0, 1)
            result[(slice(None), outputs, *cut)] += part
    return result[(..., *(slice(p, f - p) for p, f in zip(padding, full, strict=True)))]
