"""The benchmark of requests from several threads."""

from __future__ import annotations

import threading
import time

from benchmarks.concurrent import WARM_UP, measure, row


def test_every_caller_sends_requests_of_its_own() -> None:
    seen: dict[int, int] = {}

    def call() -> None:
        seen[threading.get_ident()] = seen.get(threading.get_ident(), 0) + 1
        time.sleep(0.001)

    taken = measure(call, callers=3, seconds=0.05)
    assert sorted(seen.values()) == sorted(len(own) + WARM_UP for own in taken) and min(map(len, taken)) > 0
    assert min(min(own) for own in taken) >= 0.001


def test_a_row_has_the_times_of_all_turns_and_how_evenly_callers_are_served() -> None:
    turns = [[[0.001] * 50, [0.002] * 25], [[0.001] * 49 + [0.1], [0.002] * 25]]
    assert row("engine", turns, 2.0) == ["engine", "37.5", "1.0", "2.0", "100.0", "0.50"]
