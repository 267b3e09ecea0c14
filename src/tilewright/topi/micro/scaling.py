"""``rint(float(sum) * factor)`` on integers, as ``scaling.c`` computes it to the bit.

The multiplier is ``rint(factor * 2 ** (32 + FRACTION - shift))``. Its product with ``sum * 2 ** shift`` has the result
in its upper 32 bits, with ``FRACTION`` bits behind the point. Where these come next to a half, and only there, the
exact product decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FRACTION = 10
"""``TW_FRACTION``: of results up to 2 ** 9, float32 has 4 bits more; of 2 ** 10 / 5 one is next to a half."""


@dataclass(frozen=True)
class FixedPoint:
    """Multipliers of factors, and how far sums are shifted up."""

    multipliers: Array  # int32
    shift: int


def offset(zero: int) -> int:
    """Return the zero point of results in units of products, and a half, less 2."""
    return (zero << FRACTION) + (1 << (FRACTION - 1)) - 2


def fixed_point(factors: Array, largest_sum: int) -> FixedPoint | None:
    """Return how sums up to ``largest_sum`` are scaled by float32 ``factors``.

    None where products leave 32 bits, or a factor is not positive or subnormal: such sums are scaled as floats.
    """
    if not factors.size or not (factors >= np.finfo(np.float32).tiny).all() or not largest_sum < 2**31:
        return None
    shift = 31 - int(largest_sum).bit_length()
    exponent = 32 + FRACTION - shift
    largest = float(factors.max())
    if largest * 2.0**exponent > 2**31 - 2 or largest * (largest_sum + 1) >= 2 ** (30 - FRACTION):
        return None
    return FixedPoint(np.rint(np.ldexp(factors.astype(np.float64), exponent)).astype(np.int32), shift)
