"""The commands and examples in docs/deployment.md run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.native_objects import ROOT
from tests.processors.tools import need


@pytest.mark.full
def test_commands_and_examples_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("qemu-aarch64", "aarch64-linux-gnu-gcc")
    text = (ROOT / "docs" / "deployment.md").read_text()
    blocks = re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)
    assert {kind for kind, _ in blocks} == {"sh", "python"}
    for folder in ("native", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    namespace: dict[str, object] = {"__name__": "docs"}
    for kind, block in blocks:
        if kind == "python":
            exec(compile(block, "docs/deployment.md", "exec"), namespace)
        else:
            subprocess.run(["bash", "-ec", block], check=True)
