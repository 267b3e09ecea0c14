"""The lesson on language models."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest

LESSON = Path(__file__).resolve().parents[2] / "examples" / "12_generate.py"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_lesson_gives_the_tokens_of_torch_by_python_shell_and_c(capfd: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(LESSON))
    printed = capfd.readouterr().out
    assert "one prompt: 64 tokens, those of PyTorch\nfour prompts: 256 tokens, those of PyTorch\n" in printed
    assert printed.endswith("tilewright run gives the same\nthe C program gives the same\n")
