"""The lesson on shapes that change."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

LESSON = Path(__file__).resolve().parents[2] / "examples" / "10_dynamic.py"


def test_the_lesson_serves_all_shapes_from_one_library(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(LESSON))
    printed = capsys.readouterr().out
    assert printed.startswith("Tensor[(batch, seq), int64]\n")
    assert printed.count(": right") == 4
    assert 'input "ids": batch is 9; the program was compiled for 1 to 8' in printed
    assert printed.endswith("the library that was loaded gives the same\n")
