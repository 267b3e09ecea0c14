"""Importing relay loads the operators, and no schedules or code generators of any processor."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("llvmlite", "tilewright.target.codegen.", "tilewright.topi.cpu.", "tilewright.topi.gpu.")


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """The modules that are loaded after ``import tilewright.relay``."""
    program = "import sys, tilewright.relay; print(*sys.modules)"
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize("prefix", HEAVY)
def test_importing_relay_does_not_load(loaded: list[str], prefix: str) -> None:
    assert not [name for name in loaded if name.startswith(prefix)]


def test_importing_relay_loads_at_most_380_modules_of_the_package(loaded: list[str]) -> None:
    assert len([name for name in loaded if name.startswith("tilewright")]) <= 380
