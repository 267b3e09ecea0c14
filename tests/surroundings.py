"""What is installed beside Tilewright does not reach the tests: a pytest plug-in.

Packages that plug in register targets, devices and executors, whose names tests may take themselves, or list.
"""

from __future__ import annotations

from importlib import metadata
from importlib.metadata import Distribution, EntryPoint, EntryPoints
from typing import Any

_GROUPS = "tilewright."
_OURS = {"tilewright", "tilewright-npu"}


def _plugs_in(package: Distribution) -> bool:
    return any(entry.group.startswith(_GROUPS) for entry in package.entry_points)


def pytest_configure() -> None:
    """Hide the plug-ins of packages that are installed now; those that a test installs are seen."""
    foreign = {package.name for package in metadata.distributions() if _plugs_in(package)} - _OURS
    everything = metadata.entry_points

    def hidden(entry: EntryPoint) -> bool:
        return entry.group.startswith(_GROUPS) and entry.dist is not None and entry.dist.name in foreign

    def without_foreign(**selected: Any) -> EntryPoints:
        return EntryPoints(entry for entry in everything(**selected) if not hidden(entry))

    if foreign:
        metadata.entry_points = without_foreign
