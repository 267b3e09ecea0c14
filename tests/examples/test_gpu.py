"""The lesson on GPUs, on OpenCL."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from tests.runtime.gpu_sources import need_opencl

LESSON = Path(__file__).resolve().parents[2] / "examples" / "09_gpu.py"


def test_the_lesson_runs_a_kernel_and_a_network(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_opencl()
    monkeypatch.setattr(sys, "argv", [str(LESSON)])
    runpy.run_path(str(LESSON))
    printed = capsys.readouterr().out
    assert printed.startswith("opencl(0) is ")
    assert "__kernel" in printed and "get_local_id(0)" in printed
    assert "us by the device's clock" in printed
    assert printed.endswith("the network gives the same on the CPU, on the device, and on both\n")
