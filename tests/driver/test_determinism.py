"""The same model and options give the same bytes, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.driver.command import DIGITS


def _compiled(folder: Path, seed: str, executor: str) -> bytes:
    """The library that a process of its own makes: its sets have another order, its cache of kernels is empty."""
    folder.mkdir()
    command = ["compile", DIGITS, "-o", folder / "digits.so", "--executor", executor]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "XDG_CACHE_HOME": str(folder / "cache")}
    subprocess.run([sys.executable, "-m", "tilewright", *map(str, command), "-q"], env=environment, check=True)
    return (folder / "digits.so").read_bytes()


@pytest.mark.parametrize("executor", ["graph", "vm"])
def test_two_processes_make_the_same_library(executor: str, tmp_path: Path) -> None:
    assert _compiled(tmp_path / "one", "1", executor) == _compiled(tmp_path / "two", "2", executor)
