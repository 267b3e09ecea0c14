"""Whether an output is what it should be, within a tolerance."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from tests.random_operators.case import Tolerance
from tests.random_operators.draw import FLOATS, Array


def complaint(found: Array, wanted: Array, dtype: str, tolerance: Tolerance, scale: Array | None = None) -> str | None:
    """What is wrong with ``found``, or None.

    ``wanted`` may be more exact than ``dtype``; ``scale`` is the sum of the absolute values of what was added up.
    """
    if str(found.dtype) != dtype:
        return f"data type {found.dtype}, expected {dtype}"
    if found.shape != wanted.shape:
        return f"shape {list(found.shape)}, expected {list(wanted.shape)}"
    with np.errstate(all="ignore"):
        bad = _wrong(found, wanted, dtype, tolerance, scale)
    if not bad.any():
        return None
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    place = f" at {list(index)}" if index else ""
    return f"{int(bad.sum())} of {bad.size} wrong; {found[index]!r}{place}, expected {wanted[index]!r}"


def _wrong(found: Array, wanted: Array, dtype: str, tolerance: Tolerance, scale: Array | None) -> Array:
    if dtype not in FLOATS and tolerance.kind == "truncated":
        return np.asarray(np.abs(found.astype("float64") - wanted.astype("float64")) > 1)
    if dtype not in FLOATS:
        return np.asarray(found != wanted.astype(found.dtype))
    rounded = wanted.astype(found.dtype)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    if tolerance.kind == "exact":
        return np.asarray(~same)
    have, want = found.astype("float64"), wanted.astype("float64")
    largest = float(ml_dtypes.finfo(found.dtype).max)
    # Next to where numbers overflow, infinity is near.
    near = np.abs(np.clip(have, -largest, largest) - np.clip(want, -largest, largest)) <= _allowed(
        np.clip(want, -largest, largest), found.dtype, tolerance, scale
    )
    usable = ~np.isnan(have) & ~np.isnan(want) & (np.isfinite(have) | (np.abs(want) > largest / 2))
    usable &= np.isfinite(want) | (np.abs(have) > largest / 2)
    return np.asarray(~(same | (usable & near)))


def _allowed(want: Array, dtype: np.dtype, tolerance: Tolerance, scale: Array | None) -> Array:
    info = ml_dtypes.finfo(dtype)
    eps, least = float(info.eps), float(info.smallest_subnormal)
    tiny = float(info.smallest_normal)
    match tolerance.kind:
        case "ulp":
            exponent = np.floor(np.log2(np.maximum(np.abs(want), tiny)))
            return np.asarray(tolerance.amount * np.maximum(eps * 2.0**exponent, least))
        case "linear":
            assert scale is not None
            size = np.where(np.isfinite(scale), np.abs(scale), float(info.max))
            accumulated = max(eps if dtype == np.float64 else 0.0, 2.0**-52 if dtype == np.float64 else 2.0**-23)
            return np.asarray((tolerance.amount * accumulated + 2 * eps) * size + tolerance.amount * least)
        case "rough":
            return np.asarray(max(tolerance.amount, 16 * eps) * np.abs(want) + max(1e-6, eps))
        case _:
            finite = np.abs(want[np.isfinite(want)])
            return np.asarray(tolerance.amount * eps * max(finite.max(initial=0.0), 1.0))
