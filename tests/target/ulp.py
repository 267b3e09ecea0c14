"""Errors of exp, exp2, log, tanh, sigmoid, erf, sin and cos of float32 in units in the last place, against float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

CHUNK = 1 << 16
erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


REFERENCES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "exp2": np.exp2,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "erf": erf,
    "sin": np.sin,
    "cos": np.cos,
}


def exact_values(name: str, x: np.ndarray) -> np.ndarray:
    """The function of float32 numbers, in float64."""
    with np.errstate(all="ignore"):
        return REFERENCES[name](x.astype(np.float64))


def worst_error(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest error of float32 values; infinities and not-a-numbers must be where they belong."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        error = np.abs(found - exact) / np.spacing(np.abs(rounded))
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(found[~finite], rounded[~finite])
    return float(error[finite].max(initial=0.0))


def sampled_floats(step: int) -> Iterator[np.ndarray]:
    """Every ``step``-th float32 bit pattern in chunks, infinities and not-a-numbers among them."""
    bits = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32)
    bits = np.concatenate([bits, np.resize(bits, -len(bits) % CHUNK)])
    yield from bits.view(np.float32).reshape(-1, CHUNK)


def every_float(size: int) -> Iterator[np.ndarray]:
    """All float32 bit patterns, in chunks of ``size``."""
    for start in range(0, 1 << 32, size):
        yield np.arange(start, start + size, dtype=np.uint64).astype(np.uint32).view(np.float32)
