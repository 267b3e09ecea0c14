"""The C program of docs/dynamic.md, which runs a program of the virtual machine at several shapes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.runtime.kernels import ROOT

from tilewright import relay, runtime
from tilewright.ir.prim_expr import DimVar

PROGRAM, *_ = re.findall(r"```c\n(.*?)```", (ROOT / "docs" / "dynamic.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine")
    (folder / "rows.c").write_text(PROGRAM)
    include, archive = runtime.native_dir() / "include", runtime.native_dir() / "libtilewright_runtime.a"
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    link = [folder / "rows.c", archive, "-lpthread", "-ldl", "-lm"]
    subprocess.run(["gcc", *warnings, f"-I{include}", *link, "-o", folder / "rows"], check=True)
    return folder / "rows"


def library(path: Path, most: int) -> Path:
    x = relay.var("x", relay.TensorType((DimVar("rows", 1, most), 4), "float32"))
    relay.vm.compile(relay.Function([x], relay.sum(x, axis=1)), "llvm").export_library(path)
    return path


def test_one_library_gives_results_of_each_shape(program: Path, tmp_path: Path) -> None:
    done = subprocess.run([program, library(tmp_path / "rows.so", 3)], capture_output=True, text=True, check=True)
    assert done.stdout == "1 rows: 10\n2 rows: 10 26\n3 rows: 10 26 42\n"


def test_a_shape_out_of_range_is_an_error(program: Path, tmp_path: Path) -> None:
    done = subprocess.run([program, library(tmp_path / "rows.so", 2)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("1 rows: 10\n")
    assert 'input "x": rows is 3; the program was compiled for 1 to 2' in done.stderr
