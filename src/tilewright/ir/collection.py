"""Fewer collections of garbage while the compiler works.

Nodes hold no cycles: what dies is freed at once, and looking for cycles among hundreds of thousands of living nodes
finds nothing. Python looks each time that 700 objects more are alive.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG_OBJECTS = 50_000

_lock = threading.Lock()
_given: list[tuple[int, int, int]] = []  # the thresholds before, once for each builder at work


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage rarely inside; the thresholds of before come back with the last of several that nest."""
    with _lock:
        thresholds = gc.get_threshold()
        _given.append(thresholds)
        if 0 < thresholds[0] < _YOUNG_OBJECTS:
            gc.set_threshold(_YOUNG_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        with _lock:
            first = _given[0]
            _given.pop()
            if not _given and gc.get_threshold()[0] == _YOUNG_OBJECTS:
                gc.set_threshold(*first)
