"""The runtime in C without some of its parts: each set links by itself, and does what it has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.native_objects import NATIVE, ROOT, SANITIZED, run_sanitized, runtime_objects

import tilewright as tvm
from tilewright import relay

BASE = ["core", "device", "array", "function", "module"]
PARTS = ["executor", "vm", "model", "rpc", "gpu", "dnnl"]


def linked(folder: Path, source: Path, parts: list[str]) -> Path:
    """A program of a source file and the objects of parts."""
    objects = [o for o in runtime_objects("gcc", *SANITIZED) if Path(o).parent.name in {*BASE, *parts}]
    command = ["gcc", "-std=c11", *SANITIZED, f"-I{NATIVE / 'include'}", "-rdynamic", source, *objects]
    program = folder / "program"
    subprocess.run([*map(str, command), "-lpthread", "-ldl", "-lm", "-o", str(program)], check=True)
    return program


def test_cmake_knows_every_folder_as_a_part() -> None:
    text = (ROOT / "CMakeLists.txt").read_text()
    default = re.search(r"set\(TILEWRIGHT_PARTS ([\w ]+) CACHE", text)
    base = re.search(r"foreach\(part ([\w ]+) \$\{TILEWRIGHT_PARTS\}\)", text)
    assert default is not None and default[1].split() == PARTS
    assert base is not None and base[1].split() == BASE
    assert {*BASE, *PARTS} == {path.name for path in (NATIVE / "src").iterdir() if path.is_dir()}


SETS = [
    [],
    ["executor"],
    ["vm"],
    ["rpc"],
    ["dnnl"],
    ["executor", "model"],
    ["executor", "gpu"],
    ["executor", "vm", "rpc"],
]


@pytest.mark.parametrize("parts", SETS, ids=lambda parts: "+".join(parts) or "base")
def test_a_set_of_parts_links_by_itself(parts: list[str], tmp_path: Path) -> None:
    main = tmp_path / "main.c"
    main.write_text("#include <tvm/runtime/c_runtime_api.h>\nint main(void) { return *TVMGetLastError(); }\n")
    done = run_sanitized([str(linked(tmp_path, main, parts))], {})
    assert done.returncode == 0, done.stderr


def test_a_runtime_without_the_machine_runs_graphs_and_refuses_programs_of_the_machine(tmp_path: Path) -> None:
    x = relay.var("x", shape=(1, 5))
    net = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    relay.build(net, "llvm").export_library(tmp_path / "graph.so")
    relay.vm.compile(net, "llvm").export_library(tmp_path / "vm.so")
    np.float32([-2, 3, -1, 0, 4]).tofile(tmp_path / "x.bin")
    program = linked(tmp_path, NATIVE / "tools" / "run.c", ["executor", "model"])
    done = run_sanitized(
        [str(program), str(tmp_path / "graph.so"), f"x={tmp_path / 'x.bin'}", "-o", f"{tmp_path}/out"], {}
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out0", "float32"), [0, 3, 0, 0, 4])
    refused = run_sanitized([str(program), str(tmp_path / "vm.so"), f"x={tmp_path / 'x.bin'}"], {})
    assert refused.returncode == 1 and "VMExecutable" in refused.stderr
