"""The lesson on int8 models."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

LESSON = Path(__file__).resolve().parents[2] / "examples" / "11_quantize.py"


def test_the_lesson_prints_accuracies_sizes_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(LESSON))
    printed = capsys.readouterr().out
    right = re.search(r"right answers  ([\d.]+)% in float, ([\d.]+)% in int8", printed)
    same = re.search(r"same answer    ([\d.]+)%", printed)
    assert right is not None and same is not None
    assert float(right[2]) >= float(right[1]) - 1 and float(same[1]) > 90
    sizes = re.findall(r"file           (\d+) KiB in float, (\d+) KiB in int8", printed)
    assert len(sizes) == 2 and all(int(after) < 0.4 * int(before) for before, after in sizes)
    assert printed.count("kernels  ") == printed.count("costs most  ") == 2
