"""Libraries that are linked without a linker."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
from tests.runtime.test_elf_objects import X, _library

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.runtime import compilers
from tilewright.runtime.elf_library import link_library
from tilewright.runtime.error import ExportError

TRIPLES = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
PROGRAM = """\
@numbers = internal global [4 x i32] [i32 1, i32 2, i32 3, i32 4]
@third = global ptr getelementptr ([4 x i32], ptr @numbers, i64 0, i64 2)
@gamma = global ptr @lgamma
@runs = common global i32 0
declare double @lgamma(double)
declare extern_weak void @nobody()
define i32 @read() {
  %p = load ptr, ptr @third
  %x = load i32, ptr %p
  %n = load i32, ptr @runs
  %m = add i32 %n, 1
  store i32 %m, ptr @runs
  %y = mul i32 %x, %m
  ret i32 %y
}
define double @direct(double %x) {
  %y = call double @lgamma(double %x)
  ret double %y
}
define double @by_table(double %x) {
  %f = load ptr, ptr @gamma
  %y = call double %f(double %x)
  ret double %y
}
@started = global i32 0
@llvm.global_ctors = appending global [1 x {i32, ptr, ptr}] [{i32, ptr, ptr} {i32 65535, ptr @begin, ptr null}]
define internal void @begin() {
  store i32 7, ptr @started
  ret void
}
define i32 @is_absent() {
  %b = icmp eq ptr @nobody, null
  %y = zext i1 %b to i32
  ret i32 %y
}
"""
OTHER = """\
declare i32 @read()
define i32 @twice() {
  %x = call i32 @read()
  %y = add i32 %x, %x
  ret i32 %y
}
"""


def objects(triple: str, *programs: str) -> list[bytes]:
    """Object code of programs of LLVM, which may be anywhere in memory."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(reloc="pic", codemodel="small")
    return [machine.emit_object(llvm.parse_assembly(f'target triple = "{triple}"\n{text}')) for text in programs]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("linked") / "program.so"
    path.write_bytes(link_library(objects(llvm.get_process_triple(), PROGRAM, OTHER)))
    library = ctypes.CDLL(str(path))
    for name in "direct", "by_table":
        getattr(library, name).restype, getattr(library, name).argtypes = ctypes.c_double, [ctypes.c_double]
    return library


def test_addresses_in_data_and_common_variables(program: ctypes.CDLL) -> None:
    assert [program.read(), program.read()] == [3, 6]
    assert program.twice() == 18


@pytest.mark.parametrize("name", ["direct", "by_table"])
def test_functions_of_the_c_library(program: ctypes.CDLL, name: str) -> None:
    assert getattr(program, name)(10.0) == pytest.approx(math.lgamma(10.0))


def test_constructors_run(program: ctypes.CDLL) -> None:
    assert ctypes.c_int.in_dll(program, "started").value == 7


def test_a_weak_function_that_nobody_has_is_null(program: ctypes.CDLL) -> None:
    assert program.is_absent() == 1


def test_hidden_names_have_to_be_defined() -> None:
    text = "declare hidden void @f()\ndefine void @g() {\n call void @f()\n ret void\n}\n"
    with pytest.raises(ExportError, match="symbol f is not defined"):
        link_library(objects("x86_64-linux-gnu", text))


def test_what_needs_a_linker_says_so() -> None:
    text = "@v = thread_local global i32 1\ndefine ptr @g() {\n ret ptr @v\n}\n"
    with pytest.raises(ExportError, match=r"section \.tdata needs a linker"):
        link_library(objects("x86_64-linux-gnu", text))
    with pytest.raises(ExportError, match="machine 243 need a linker"):
        link_library(objects("riscv64-linux-gnu", OTHER))


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf")
@pytest.mark.parametrize("machine", TRIPLES)
def test_tools_read_it(machine: str, tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(link_library(objects(TRIPLES[machine], PROGRAM, OTHER)))
    done = subprocess.run(["readelf", "-aW", path], capture_output=True, text=True, check=True)
    assert "warning" not in (done.stdout + done.stderr).lower()
    loads = [line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["LOAD"]]
    pages = {int(row[2], 16) // int(row[-1], 16) for row in loads}
    assert len(pages) == len(loads)  # each segment has pages of its own
    assert not any("WE" in row or "RWE" in row for row in loads)
    assert all((int(row[1], 16) - int(row[2], 16)) % int(row[-1], 16) == 0 for row in loads)
    assert "libm.so.6" in done.stdout and "GNU_RELRO" in done.stdout


@pytest.mark.parametrize("rows", [5, 1024, 1 << 18], ids=["a constant table", "a table", "a segment"])
def test_a_model_needs_no_compiler(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, expected = _library(rows)
    with monkeypatch.context() as empty:
        empty.setenv("PATH", "")
        empty.delenv("CC", raising=False)
        empty.setattr(compilers, "_has_ziglang", lambda: False)
        path = library.export_library(tmp_path / "model.so")
    executor = runtime.GraphModule(runtime.load_module(path)["default"](tvm.cpu()))
    np.testing.assert_allclose(executor.infer(x=X)["output_0"], expected, rtol=1e-5, atol=1e-6)


def test_a_library_without_code_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compilers, "_has_ziglang", lambda: False)
    x = relay.var("x", shape=(2, 3))
    library = relay.build(tvm.IRModule.from_expr(relay.Function([x], x)), "llvm")
    path = library.export_library(tmp_path / "same.so")
    executor = runtime.GraphModule(runtime.load_module(path)["default"](tvm.cpu()))
    values = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_array_equal(executor.infer(x=values)["output_0"], values)
