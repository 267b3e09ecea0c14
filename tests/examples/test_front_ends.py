"""The lessons on torch.compile, TensorFlow Lite and TensorFlow."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

LESSONS = Path(__file__).resolve().parents[2] / "examples"


def _printed(lesson: str, capsys: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(LESSONS / lesson))
    return capsys.readouterr().out


def test_the_lesson_on_torch_compile_infers_trains_and_names_what_stays(capsys: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    lines = _printed("14_torch_compile.py", capsys).splitlines()
    errors = [float(line.split()[-1]) for line in lines if "largest error" in line]
    assert len(errors) == 3 and max(errors) < 1e-5
    assert lines[-2].startswith("loss ")
    assert "aten.bernoulli" in lines[-1]


def test_the_lesson_on_tensorflow_lite_gives_litert_s_bits(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in _printed("15_tflite.py", capsys).splitlines() if line.startswith("ours ")]
    assert len(lines) == 3
    assert all(line[len("ours ") :].split(" LiteRT's ")[0] == line.split(" LiteRT's ")[1] for line in lines)


def test_the_lesson_on_tensorflow_runs_any_batch(capsys: pytest.CaptureFixture[str]) -> None:
    printed = _printed("16_tensorflow.py", capsys)
    assert "x_0" in printed
    assert printed.count("largest error") == 2
