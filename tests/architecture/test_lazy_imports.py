"""Importing relay loads the operators, no schedules or code generators; a build loads those of its own processor."""

from __future__ import annotations

import subprocess
import sys

import pytest

BUILD = """
import sys
from tilewright import IRModule, relay
x = relay.var("x", shape=(1, 8))
relay.build(IRModule.from_expr(relay.Function([x], relay.nn.relu(x))), "llvm")
print(*sys.modules)
"""
HEAVY = ("llvmlite", "tilewright.target.codegen.", "tilewright.topi.cpu.", "tilewright.topi.gpu.")


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """The modules that are loaded after ``import tilewright.relay``."""
    return _modules_after("import sys, tilewright.relay; print(*sys.modules)")


def _modules_after(program: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize("prefix", HEAVY)
def test_importing_relay_does_not_load(loaded: list[str], prefix: str) -> None:
    assert not [name for name in loaded if name.startswith(prefix)]


def test_importing_relay_loads_at_most_380_modules_of_the_package(loaded: list[str]) -> None:
    assert len([name for name in loaded if name.startswith("tilewright")]) <= 380


def test_importing_the_runtime_loads_nothing_that_only_writing_libraries_takes() -> None:
    late = {"concurrent.futures", "hashlib", "subprocess", "tarfile", "tempfile", "tilewright.runtime.export"}
    program = "import sys, numpy; before = {*sys.modules}; import tilewright.runtime; print(*{*sys.modules} - before)"
    assert not late & {*_modules_after(program)}


def test_a_build_for_cpus_loads_nothing_for_graphics_processors() -> None:
    parts = ("tilewright.topi.gpu", "tilewright.target.codegen.nvptx", "tilewright.target.codegen.opencl")
    assert not [name for name in _modules_after(BUILD) if name.startswith(parts)]


def test_a_build_loads_front_ends_when_a_model_of_their_format_comes() -> None:
    loaded = _modules_after("import sys, tilewright.model.build; print(*sys.modules)")
    kept = {"tilewright.relay.frontend", "tilewright.relay.frontend.door"}
    assert not {name for name in loaded if name.startswith("tilewright.relay.frontend")} - kept
    assert "onnx" not in loaded
