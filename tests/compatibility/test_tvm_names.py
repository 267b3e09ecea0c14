"""The tool that compares public names with TVM's, on a package made up here: every kind of difference."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).with_name("tvm_names.py")

PACKAGE = {
    "__init__.py": "from . import relay\nfrom .nd import cpu\n",
    "nd.py": "def array(arr, device=None, extra=1): pass\ndef empty_of_nothing(): pass\ndef cpu(dev_id=0): pass\n",
    "relay/__init__.py": "from .expr import *\nfrom ._hidden import secret\n",
    "relay/_hidden.py": "def secret(): pass\n",
    "relay/expr.py": """
class Let(Expr):
    def __init__(self, var, value, body): pass
    def checked(self): pass
def const(value, dtype=None): pass
def _own(): pass
""",
    "relay/nowhere.py": "def lost(a): pass\n",
    "relay/transform/__init__.py": "def InferType(): pass\ndef FuseOps(fuse_opt_level=-1): pass\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        path = tmp_path / "tvm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tvm"


def test_each_kind_of_difference_is_told_once(package: Path) -> None:
    run = subprocess.run([sys.executable, TOOL, package], capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    assert {line for line in run.stdout.splitlines() if line.startswith("tvm")} == {
        "tvm.nd.array: takes no extra",
        "tvm.nd.empty_of_nothing: missing",
        "tvm.relay.Let.checked: missing",
        "tvm.relay.secret: missing",
        "tvm.relay.nowhere: no such module (lost)",
    }


def test_only_a_part_can_be_asked_for(package: Path) -> None:
    arguments = [sys.executable, str(TOOL), str(package), "--under", "tvm.relay.transform"]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_every_exception_has_a_reason() -> None:
    spec = importlib.util.spec_from_file_location("tvm_names", TOOL)
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    sys.modules["tvm_names"] = tool
    spec.loader.exec_module(tool)
    found = tool.exceptions()
    assert len(found) > 50 and all(len(reason) > 8 for reason in found.values())
