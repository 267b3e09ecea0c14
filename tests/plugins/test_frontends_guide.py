"""docs/frontends.md is followed in a folder of its own: its package is found by its entry point, its commands run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tilewright.runtime.model import load

GUIDE = Path(__file__).parents[2] / "docs" / "frontends.md"


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The guide's files, and its package as pip would install it."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "layers_front_end.py").write_text(_blocks("python")[0])
    project = tomllib.loads(_blocks("toml")[0])["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()) for group, entries in groups]
    (info / "entry_points.txt").write_text("".join(lines))
    (tmp_path / "net.layers").write_text(_blocks("json")[0])
    return tmp_path


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYTHONPATH": str(folder / "site"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_command_line_compiles_a_file_of_the_package(folder: Path) -> None:
    done = _run(folder, "sh", "-ec", _blocks("sh")[0])
    assert done.returncode == 0, done.stderr
    result = load(folder / "net.so")(np.float32([[1, 0, 2], [0, 0, -1]]))
    np.testing.assert_array_equal(result, np.float32([[8], [0]]))


def test_python_compiles_an_object_of_the_package(folder: Path) -> None:
    done = _run(folder, sys.executable, "-c", _blocks("python")[1])
    assert done.returncode == 0, done.stderr


def test_a_suffix_that_nobody_reads_is_one_error_on_the_command_line(folder: Path) -> None:
    (folder / "net.xyz").write_text("?")
    done = _run(folder, "tilewright", "compile", "net.xyz", "-o", "net.so")
    assert done.returncode == 1
    assert "known are .onnx (onnx), " in done.stderr
    assert ", .layers (layers). Name one (--frontend, frontend=) for a file of another suffix" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_package_that_is_broken_is_named_on_the_command_line(folder: Path) -> None:
    (folder / "site" / "layers_front_end.py").write_text("import a_framework_that_is_not_there\n")
    done = _run(folder, "tilewright", "compile", "net.layers", "-o", "net.so")
    assert done.returncode == 1
    assert "of the package layers-tilewright cannot be loaded: ModuleNotFoundError" in done.stderr
    assert done.stderr.count("layers-tilewright") == 1


def test_a_file_that_is_no_network_says_so(folder: Path) -> None:
    (folder / "net.layers").write_text("{}")
    done = _run(folder, "tilewright", "show", "net.layers")
    assert (done.returncode, done.stderr.strip()) == (1, "error: net.layers: no network of layers: 'layers'")
