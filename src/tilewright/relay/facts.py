"""Questions about the elements of constants, asked over parts of them, and once.

A weight may be a view of a file of gigabytes, in another order of axes. No question copies it, and one whose answer
the first elements give reads no more. Answers are kept as long as the constant.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.relay.expr import Constant
from tilewright.runtime.ndarray import numpy_view

Array = np.ndarray[Any, Any]
T = TypeVar("T")
_PART = 1 << 18  # elements that are looked at together
_FIRST = 64  # elements that are looked at before all
_known: WeakKeyDictionary[Constant, dict[Hashable, bool]] = WeakKeyDictionary()


def parts(values: Array, most: int = _PART) -> Iterator[Array]:
    """Yield views of at most ``most`` elements, which together are ``values``, in row-major order.

    Arrays of one shape have the same parts.
    """
    if values.size <= most:
        yield values
        return
    axis = next(i for i, extent in enumerate(values.shape) if extent > 1)
    row = values.size // values.shape[axis]
    rows, lead = max(1, most // row), (slice(None),) * axis
    for start in range(0, values.shape[axis], rows):
        yield from parts(values[(*lead, slice(start, start + rows))], most)


def all_are(constant: Constant, question: Hashable, holds: Callable[[Array], Any]) -> bool:
    """Return whether every element is as ``holds``, a condition by element, says.

    ``question`` names the condition: the answer is kept under it.
    """
    known = _known.setdefault(constant, {})
    if question not in known:
        values = numpy_view(constant.data)
        first = values.flat[:_FIRST]
        known[question] = bool(np.all(holds(first))) and all(bool(np.all(holds(part))) for part in parts(values))
    return known[question]


def any_is(constant: Constant, question: Hashable, holds: Callable[[Array], Any]) -> bool:
    """Return whether an element is as ``holds`` says; see :func:`all_are`."""
    return not all_are(constant, ("no", question), lambda part: np.logical_not(holds(part)))


_LEAST_WHOLE = 32  # quantization leaves larger ones; weights like -1, 0 and 1 are no mark of it


def is_whole(expr: Any) -> bool:
    """Return whether a floating-point constant holds integers, of which the greatest is 32 or more, as quantized
    weights do.

    Sums of products of integers are exact while they fit; algorithms that scale or transform such weights round.
    """
    if not isinstance(expr, Constant) or "float" not in str(expr.data.dtype):
        return False
    return all_are(expr, "whole", lambda part: part == np.rint(part)) and any_is(
        expr, "large", lambda part: np.abs(part) >= _LEAST_WHOLE
    )


def same_bits(a: Array, b: Array) -> bool:
    """Return whether two arrays of one shape and dtype hold the same bits."""
    if a.ctypes.data == b.ctypes.data and a.strides == b.strides:
        return True
    bits = f"u{a.itemsize}"
    return all(np.array_equal(x, y) for x, y in zip(parts(a.view(bits)), parts(b.view(bits)), strict=True))


def sample(values: Array, count: int = 256) -> bytes:
    """Return a few elements as bytes, which differ for most different arrays."""
    step = max(1, values.size // count) | 1
    return bytes(values.flat[np.arange(0, values.size, step)].tobytes())


class ByBits(Generic[T]):
    """Values that are made once for all arrays of the same bits, shape and dtype."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[tuple[Array, T]]] = {}

    def find(self, values: Array, key: Hashable, make: Callable[[], T]) -> T:
        """Return what was made for such an array with that key, or make it."""
        known = self._known.setdefault((key, values.shape, values.dtype, sample(values)), [])
        for other, made in known:
            if same_bits(values, other):
                return made
        known.append((values, make()))
        return known[-1][1]
