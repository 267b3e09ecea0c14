"""Made-up values of inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.runtime.error import TVMError
from tilewright.runtime.interface import TensorInfo, open_names
from tilewright.runtime.ndarray import numpy_dtype

Array = np.ndarray[Any, Any]


def filled(name: str, info: TensorInfo, fill: str, rng: np.random.Generator) -> Array:
    """Return values for an input: ``"random"``, ``"zeros"`` or ``"ones"``."""
    dtype = numpy_dtype(info.dtype)
    if open_names(info):
        raise TVMError(f"input {name!r} has dimensions without a number: give --dim {open_names(info)[0]}=N")
    shape = tuple(d for d in info.shape if isinstance(d, int))
    if fill != "random":
        return np.full(shape, 0 if fill == "zeros" else 1, dtype=dtype)
    if info.dtype.startswith(("float", "bfloat")):
        return rng.random(shape, dtype="float32").astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)
