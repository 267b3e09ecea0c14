"""``tilewright info``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.driver.command import DIGITS, fails, tilewright


def test_info_tells_inputs_outputs_and_what_made_the_library(library: Path) -> None:
    result = tilewright("info", library)
    assert result.returncode == 0, result.stderr
    rows = dict(line.split("\t", 1) for line in result.stdout.splitlines())
    assert rows["input"] == "pixels: float32 (1, 1, 8, 8)"
    assert rows["output"] == "probabilities: float32 (1, 10)"
    assert rows["made by"].startswith("Tilewright ")
    assert "CPU features needed" in rows and "weights" in rows and str(library) in rows["library"]


def test_info_in_json(library: Path, tmp_path: Path) -> None:
    report = json.loads(tilewright("info", library, "--json", "--graph", tmp_path / "graph.json").stdout)
    assert len(json.loads((tmp_path / "graph.json").read_text())["heads"]) == 1
    assert report["inputs"] == {"pixels": {"shape": [1, 1, 8, 8], "dtype": "float32"}}
    assert report["outputs"]["probabilities"]["shape"] == [1, 10]
    assert report["file_bytes"] == library.stat().st_size


def test_info_of_an_ahead_of_time_program(library: Path, tmp_path: Path) -> None:
    path = tmp_path / "program.so"
    done = tilewright("compile", DIGITS, "-o", path, "--executor", "aot", "-q")
    assert done.returncode == 0, done.stderr
    graph, program = (json.loads(tilewright("info", p, "--json").stdout) for p in (library, path))
    assert (graph["executor"], program["executor"]) == ("graph", "aot")
    assert program["kernel_calls"] == graph["kernel_calls"] > 1
    assert len(program["parameters"]) == len(graph["parameters"])
    assert program["activation_bytes"] > 0 and "unpacked" not in program["target"]


def test_info_of_a_library_for_another_machine(tmp_path: Path) -> None:
    if shutil.which("aarch64-linux-gnu-gcc") is None:
        pytest.skip("aarch64-linux-gnu-gcc is not installed")
    path = tmp_path / "board.so"
    done = tilewright("compile", DIGITS, "-o", path, "--target", "llvm -mtriple=aarch64-linux-gnu", "-q")
    assert done.returncode == 0, done.stderr
    report = json.loads(tilewright("info", path, "--json").stdout)
    assert report["machine"] == "aarch64" and list(report["inputs"]) == ["pixels"]


def test_info_of_something_else(tmp_path: Path) -> None:
    fails(tilewright("info", DIGITS), "digits.onnx", "not a library that Tilewright wrote")
    fails(tilewright("info", tmp_path / "none.so"), "none.so")
