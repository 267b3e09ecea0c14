"""``rint(float(sum) * factor)`` on integers, as ``scaling.c`` computes it to the bit.

The multiplier is ``rint(factor * 2 ** (32 + fraction - shift))``. Its product with ``sum * 2 ** shift`` has the result
in its upper 32 bits, with ``fraction`` bits behind the point. Where these come next to a half, and only there, the
exact product decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_MOST_FRACTION = 14  # of results up to 2 ** 9 float32 has as many, and one more
_LEAST_FRACTION = 3  # of fewer, all would be next to a half


@dataclass(frozen=True)
class FixedPoint:
    """Multipliers of factors, how far sums are shifted up, and the bits behind the point of their products."""

    multipliers: Array  # int32
    shift: int
    fraction: int


def fixed_point(factors: Array, largest_sum: int) -> FixedPoint | None:
    """Return how sums up to ``largest_sum`` are scaled by float32 ``factors``.

    None where products leave 32 bits, or a factor is not positive or subnormal: such sums are scaled as floats.
    """
    if not factors.size or not (factors >= np.finfo(np.float32).tiny).all() or not largest_sum < 2**31:
        return None
    shift = 31 - int(largest_sum).bit_length()
    largest = factors.max().astype(np.float64)
    exponent = min(32 + _MOST_FRACTION - shift, 30 - int(np.frexp(largest)[1]))
    fraction = exponent - 32 + shift
    if fraction < _LEAST_FRACTION:
        return None
    multipliers = np.rint(np.ldexp(factors.astype(np.float64), exponent)).astype(np.int32)
    return FixedPoint(multipliers, shift, fraction)
