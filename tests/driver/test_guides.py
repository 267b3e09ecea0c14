"""The programs in guides that no other test runs: they run as they stand, in an empty folder."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from tests.driver.command import ROOT


@pytest.mark.parametrize("guide", ["from_tvm.md", "inside.md"])
def test_the_programs_of_a_guide_run(guide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / guide).read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    (tmp_path / "guide.py").write_text("\n".join(blocks))
    monkeypatch.chdir(tmp_path)
    runpy.run_path("guide.py")
