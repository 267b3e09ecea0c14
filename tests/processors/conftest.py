"""Fixtures of the tests that run for other processors."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.native_objects import ROOT
from tests.processors.board import Board, compile_program
from tests.processors.tools import need


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``tilewright-run`` for AArch64."""
    need("qemu-aarch64", "aarch64-linux-gnu-gcc")
    return compile_program(tmp_path_factory.mktemp("aarch64") / "run", ROOT / "native" / "tools" / "run.c")


@pytest.fixture
def board(runner: Path, tmp_path: Path) -> Board:
    return Board(runner, tmp_path)
