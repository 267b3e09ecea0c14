"""Values of inputs that nobody gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.runtime.ndarray import numpy_dtype


def made_up(shape: Sequence[int], dtype: str, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return numbers between 0 and 1 for floats, else zeros, which are valid indices and conditions."""
    kind = numpy_dtype(dtype)
    if np.issubdtype(kind, np.floating) or dtype.startswith("bfloat"):
        return rng.random(tuple(shape), "float32").astype(kind)
    return np.zeros(tuple(shape), kind)
