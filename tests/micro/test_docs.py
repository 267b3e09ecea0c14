"""The examples in docs/micro.md run as they stand."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.driver.command import DIGITS, tilewright

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "micro.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks("python"):
        exec(compile(block, "docs/micro.md", "exec"), {"__name__": "docs"})
    assert (tmp_path / "net" / "net.h").exists()


def test_the_c_compiles_against_the_header_of_the_digits_model(tmp_path: Path) -> None:
    done = tilewright("compile", DIGITS, "-f", "c", "--symbol-prefix", "digits", "-q", "-o", tmp_path / "digits")
    assert done.returncode == 0, done.stderr
    (block,) = blocks("c")
    (tmp_path / "use.c").write_text(block)
    subprocess.run(["gcc", "-Idigits", "-Wall", "-Werror", "-c", "use.c"], cwd=tmp_path, check=True)
