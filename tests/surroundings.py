"""Tests do not depend on each other, nor on what is installed beside Tilewright: a pytest plug-in.

Packages that plug in register targets, devices and executors, whose names tests may take themselves, or list: they are
hidden. A test that leaves changed what the whole process sees fails itself, before another one does.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from importlib import metadata
from importlib.metadata import Distribution, EntryPoint, EntryPoints
from typing import Any

import pytest

from tilewright.ir.transform import PassContext
from tilewright.target import Target

# How the names of variables begin that are looked at: other packages set variables of their own.
_OBSERVED = ("HOME", "PATH", "TMPDIR", "TILEWRIGHT_", "TVM_", "XDG_")
_GROUPS = "tilewright."
_OURS = {"tilewright", "tilewright-npu"}


def _plugs_in(package: Distribution) -> bool:
    return any(entry.group.startswith(_GROUPS) for entry in package.entry_points)


def pytest_configure() -> None:
    """Hide the plug-ins of packages that are installed now; those that a test installs are seen. Hear Ctrl-C.

    A shell has what it starts in the background ignore SIGINT, and so would the processes that tests interrupt.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    foreign = {package.name for package in metadata.distributions() if _plugs_in(package)} - _OURS
    everything = metadata.entry_points

    def hidden(entry: EntryPoint) -> bool:
        return entry.group.startswith(_GROUPS) and entry.dist is not None and entry.dist.name in foreign

    def without_foreign(**selected: Any) -> EntryPoints:
        return EntryPoints(entry for entry in everything(**selected) if not hidden(entry))

    if foreign:
        metadata.entry_points = without_foreign


def _process_state() -> dict[str, object]:
    """What tests see of each other."""
    return {
        "the working directory": os.getcwd(),
        "the environment": {name: value for name, value in os.environ.items() if name.startswith(_OBSERVED)},
        "the root logger's level": logging.root.level,
        "the level below which nothing is logged": logging.root.manager.disable,
        "Target.current()": Target.current(allow_none=True),
        "the instruments of all pass contexts": list(PassContext.everywhere),
    }


@pytest.fixture(autouse=True)
def nothing_stays_changed() -> Iterator[None]:
    """Fail a test that leaves the process changed."""
    before = _process_state()
    yield
    after = _process_state()
    changed = [f"{name}: {value!r} became {after[name]!r}" for name, value in before.items() if after[name] != value]
    assert not changed, f"the test changes the process; use monkeypatch, or restore it: {'; '.join(changed)}"
