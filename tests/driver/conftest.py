"""A compiled library for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.driver.command import DIGITS, tilewright


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "digits.so"
    result = tilewright("compile", DIGITS, "-o", path)
    assert result.returncode == 0, result.stderr
    for line in ("operators", "kernels", "activation memory", "CPU features needed", "time"):
        assert line in result.stdout
    return path
