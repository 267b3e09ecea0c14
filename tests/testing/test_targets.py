"""``tilewright.testing``'s decorators and fixtures, in a pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tilewright as tvm
from tilewright.ir.errors import TilewrightError


def test_enabled_targets_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TVM_TEST_TARGETS", raising=False)
    assert ("llvm", tvm.cpu(0)) in tvm.testing.enabled_targets()
    monkeypatch.setenv("TVM_TEST_TARGETS", "llvm -mcpu=x86-64 ; nowhere;")
    assert [target for target, _ in tvm.testing.enabled_targets()] == ["llvm -mcpu=x86-64"]
    assert tvm.testing.device_enabled("llvm") and not tvm.testing.device_enabled("c")
    monkeypatch.setenv("TVM_TEST_TARGETS", "nowhere")
    with pytest.raises(TilewrightError, match="none of the targets of TVM_TEST_TARGETS runs here: nowhere"):
        tvm.testing.enabled_targets()


SUITE = """
import tilewright as tvm, pytest
size = tvm.testing.parameter(1, 7)
named = tvm.testing.parameter(by_dict={"few": 2, "many": 3})
rows, dtype = tvm.testing.parameters((16, "float32"), (5, "int8"))
calls = []

@tvm.testing.fixture(cache_return_value=True)
def data(size):
    calls.append(size)
    return [size]

def test_sizes(size, named): assert (size, named) in [(1, 2), (1, 3), (7, 2), (7, 3)]
def test_sets(rows, dtype): assert (rows, dtype) in [(16, "float32"), (5, "int8")]
def test_cached(data, size, named): data.append(0); assert data == [size, 0] and calls.count(size) == 1
def test_target(target, dev): assert dev == tvm.device(target)
@tvm.testing.exclude_targets("llvm")
def test_excluded(target): assert not target.startswith("llvm")
@tvm.testing.known_failing_targets("llvm")
def test_failing(target): assert not target.startswith("llvm")
@tvm.testing.parametrize_targets("llvm -mcpu=x86-64", "c")
def test_given(target, dev): assert target in ("llvm -mcpu=x86-64", "c")
@tvm.testing.requires_package("no_such_package_of_this_name")
def test_package(): raise AssertionError
@tvm.testing.requires_llvm
def test_llvm(): pass
@tvm.testing.requires_metal
def test_metal(): raise AssertionError
"""


def test_a_suite_is_parametrized(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tilewright.testing.plugin"]\n')
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error::pytest.PytestWarning", "."]
    environment = {"TVM_TEST_TARGETS": "llvm", "PATH": "/usr/bin:/bin"}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "14 passed, 3 skipped, 1 xfailed" in run.stdout, run.stdout + run.stderr
