"""The lesson that trains a network."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

LESSON = Path(__file__).resolve().parents[2] / "examples" / "07_train_a_network.py"


def test_the_network_learns_to_read_digits(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(LESSON))
    *epochs, result = capsys.readouterr().out.splitlines()
    losses = [float(line.rpartition(" ")[2]) for line in epochs]
    assert len(losses) == 4 and losses[-1] < 0.1
    assert result.endswith("of 113 new pictures are right")
