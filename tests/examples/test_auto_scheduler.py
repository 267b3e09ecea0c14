"""The lesson on the auto-scheduler."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

LESSON = Path(__file__).resolve().parents[2] / "examples" / "08_auto_scheduler.py"


def test_the_lesson_measures_programs_and_prints_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(LESSON))
    printed = capsys.readouterr().out
    assert printed.startswith("A = PLACEHOLDER [128, 128]\n")
    assert "3 sketches" in printed and "failed" not in printed
    assert printed.count(" us\n") == 8
    assert "s[relu].vectorize(" in printed
