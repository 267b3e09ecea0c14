"""Work on parts of arrays on several threads: numpy holds the interpreter's lock only between its loops."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_MOST = 8  # threads that memory feeds


def in_parallel(work: Callable[[T], None], items: Iterable[T]) -> None:
    """Call ``work`` with each item, on as many threads as this process has processors; the first error goes on."""
    count = min(_MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if count == 1:
        for item in items:
            work(item)
        return
    pool = ThreadPoolExecutor(count)
    try:
        for _ in pool.map(work, items):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
