"""The programs in guides that no other test runs: they run as they stand, in an empty folder."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from tests.driver.command import ROOT

import tilewright as tvm


@pytest.mark.parametrize("guide", ["from_tvm.md", "inside.md"])
def test_the_programs_of_a_guide_run(guide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / guide).read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    (tmp_path / "guide.py").write_text("\n".join(blocks))
    monkeypatch.chdir(tmp_path)
    runpy.run_path("guide.py")


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("relay.backend.Executor", True),
        ("nd.NDArray.asnumpy", True),
        ("nd.NDArray.numpy", True),
        ("autotvm", True),
        ("auto_scheduler", True),
        ("te.create_schedule", True),
        ("script", True),
        ("relax", False),
        ("tir.Schedule", False),
    ],
)
def test_what_the_table_of_releases_says_is_here_is_here(name: str, here: bool) -> None:
    found: object = tvm
    for part in name.split("."):
        found = getattr(found, part, None)
    assert (found is not None) == here, name
