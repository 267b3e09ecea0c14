"""Looks for inputs that a loader does not answer as it should, for a time."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from tests.fuzz.loaders import Loader
from tests.fuzz.mutations import damaged

SLOWEST = 20
"""Seconds of the processor's time that a loader or a front end may take for an input of some kilobytes."""


@contextmanager
def within(seconds: int, what: str) -> Iterator[None]:
    """Raise AssertionError where the block takes more than some seconds of the processor's time."""

    def stop(signum: int, frame: Any) -> None:
        raise AssertionError(f"{what} takes more than {seconds} s")

    old = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)


def search(loader: Loader, seconds: float, first_seed: int = 0, save: Callable[[bytes], None] | None = None) -> int:
    """Give a loader damaged inputs for ``seconds``; returns how many. What it does wrong is raised.

    ``save`` is given the least input that shows it.
    """
    inputs = damaged(loader.corpus(), loader.text)
    end, count, last = time.monotonic() + seconds, 0, b""

    @settings(max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(inputs)
    def try_one(data: bytes) -> None:
        nonlocal count, last
        count, last = count + 1, data
        with within(SLOWEST, "the loader"):
            loader.try_to_read(data)

    for number in itertools.count(first_seed):
        if time.monotonic() >= end:
            return count
        try:
            seed(number)(try_one)()
        except BaseException:
            if save is not None:
                save(last)
            raise
    raise AssertionError
