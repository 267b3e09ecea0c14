"""A plug-in of pytest: cases in the order of their closeness to a change, until their time is over.

Runs without an order note in pytest's cache which tests are slow; those come last in runs with one.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

ROUNDS = (8, 40)  # cases of each file that run before any file's next ones
SLOW = 3.0  # seconds of a case
CACHE = "tilewright/slow"


def ordered(
    items: list[pytest.Item], scores: Mapping[str, Mapping[str, float]], slow: Mapping[str, float]
) -> list[pytest.Item]:
    """Return the closest cases first: some of each file, then more, then the rest; slow ones last.

    Cases of one module stay together in each round, for the sake of the module's fixtures. Of a test with many cases
    the first ones come early, and which they are depends on their names alone.
    """
    of_file: dict[str, list[tuple[float, pytest.Item]]] = defaultdict(list)
    seen: Counter[tuple[str, str]] = Counter()
    for item in sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode())):
        file, name = item.nodeid.split("::")[0], getattr(item, "originalname", None) or item.name
        seen[file, name] += 1
        of_file[file].append(((1 + scores.get(file, {}).get(name, 0)) / seen[file, name], item))
    files = sorted(of_file, key=lambda file: list(scores).index(file) if file in scores else len(scores))
    rounds: list[list[pytest.Item]] = [[] for _ in range(len(ROUNDS) + 2)]
    for file in files:
        for i, (_, item) in enumerate(sorted(of_file[file], key=lambda case: -case[0])):
            rounds[-1 if item.nodeid in slow else sum(i >= limit for limit in ROUNDS)].append(item)
    return [item for cases in rounds for item in cases]


class Durations:
    """Notes which cases are slow."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        cache = self.config.cache
        if cache is None or not self.seconds:
            return
        kept = {case: s for case, s in cache.get(CACHE, {}).items() if case not in self.seconds}
        cache.set(CACHE, kept | {case: round(s, 1) for case, s in self.seconds.items() if s >= SLOW})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order", help="a JSON file that maps files of tests, in order, to scores of their functions")
    parser.addoption("--until", type=float, default=0, help="start no test after this time, in seconds since 1970")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("order") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if order := config.getoption("order"):
        slow = config.cache.get(CACHE, {}) if config.cache else {}
        items[:] = ordered(items, json.loads(Path(order).read_text()), slow)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Pass over what is left when the time is over."""
    until = item.config.getoption("until")
    return True if until and time.time() > until else None
