"""The lesson on models from PyTorch."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

LESSON = Path(__file__).resolve().parents[2] / "examples" / "13_pytorch.py"


def test_the_lesson_agrees_with_pytorch_and_keeps_state(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(LESSON))
    printed = capsys.readouterr().out
    assert printed.count("largest error") == 3
    assert "dimension  batch (from 1 to 64)" in printed
    classes = [line.partition(": ")[2].strip() for line in printed.splitlines() if line.startswith("from the ")]
    assert len(classes) == 2 and classes[0] == classes[1]
    assert printed.endswith("mean [3.0, 3.0, 3.0] of 3\n")
