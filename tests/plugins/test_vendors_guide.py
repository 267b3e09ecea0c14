"""docs/vendors.md is followed in an empty folder: its files are made, its commands run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "vendors.md"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the commands print, each in turn."""
    folder = tmp_path_factory.mktemp("vendor")
    text = GUIDE.read_text()
    first, *commands = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    subprocess.run(["sh", "-ec", first], cwd=folder, check=True)
    for path, body in re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)```", text, re.DOTALL | re.MULTILINE):
        (folder / path).write_text(body)
    site = str(folder / "site")  # in place of this environment
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PIP_TARGET": site, "PYTHONPATH": site, "PIP_NO_INDEX": "1"}
    printed = []
    for command in commands:
        script = ["sh", "-ec", command]
        done = subprocess.run(script, cwd=folder / "acme", env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        printed.append(done.stdout)
    return printed


def test_the_back_end_of_the_guide_passes_all_checks(said: list[str]) -> None:
    lines = said[0].splitlines()
    assert lines[-1] == "27 of 27 checks passed"
    promised, _ = re.findall(r"```text\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert set(promised.splitlines()) <= set(lines)


def test_resnet18_of_the_guide_runs_on_it(said: list[str]) -> None:
    _, promised = re.findall(r"```text\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert said[1].startswith(promised)
    assert "largest difference: " in said[1]
