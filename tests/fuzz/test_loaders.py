"""Files that were damaged are refused with an error: ten seconds of each kind of fuzzing; `make fuzz` takes longer."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.fuzz import native
from tests.fuzz.loaders import LOADERS, Loader
from tests.fuzz.search import search

SECONDS = 10
PACKAGES = "clang libclang-rt-dev"


@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: loader.name)
def test_a_loader_answers_what_is_damaged_with_an_error(loader: Loader) -> None:
    for path in loader.findings():
        loader.try_to_read(path.read_bytes())
    for valid in loader.seeds():
        loader.read(valid)
    assert search(loader, SECONDS / (len(LOADERS) + 1)) > 0


@pytest.mark.full
def test_loaders_in_c_stay_within_their_input(tmp_path: Path) -> None:
    """One test for all of them: each process that runs tests would compile the runtime."""
    if shutil.which("clang") is None:
        message = f"clang not installed: make system-packages, or on Debian apt install {PACKAGES}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    programs = native.build(tmp_path)
    for name, program in programs.items():
        seconds = SECONDS // len(programs)
        assert "Done" in native.run(program, seconds, tmp_path / f"inputs_{name}", tmp_path / "findings")
