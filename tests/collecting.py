"""Processes of one run collect the tests' files in different orders: a pytest plug-in.

In a fresh clone each file is parsed and rewritten before it is imported, and the result kept beside it. Processes that
begin at different files find much of that done by the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

_WORKER, _WORKERS = "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"


class _Rotated(pytest.Dir):
    """A folder whose first entry depends on the process."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        entries = list(super().collect())
        first = len(entries) * int(os.environ[_WORKER].removeprefix("gw")) // int(os.environ[_WORKERS])
        return entries[first:] + entries[:first]


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Rotate the entries of each folder that is no package, in a process of pytest-xdist."""
    if _WORKER not in os.environ or (path / "__init__.py").exists():
        return None
    return _Rotated.from_parent(parent, path=path)  # type: ignore[no-any-return]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the tests into the order of their files' names, the same one in each process."""
    if _WORKER in os.environ:
        items.sort(key=lambda item: item.path.parts)
