"""Compilers and temporary folders under TVM's names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.runtime.kernels import HandWrittenCode, compile_kernels

from tilewright import runtime
from tilewright.contrib import cc, utils
from tilewright.runtime.compilers import find_compiler


def test_cross_compiler_is_used_for_all_parts(tmp_path: Path) -> None:
    wrapper = tmp_path / "other-cc"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec gcc "$@"\n')
    wrapper.chmod(0o755)
    code = HandWrittenCode(compile_kernels(tmp_path / "k.o", "-c"), compile_kernels(tmp_path / "k.so", "-shared"))
    module = runtime.create_module("holder", {}.get, save=lambda: b"")
    module.import_module(runtime.from_compiled(code, "llvm"))
    module.export_library(tmp_path / "out.so", cc.cross_compiler(str(wrapper), options=["-s"]))
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 1
    assert "-s" in calls[0].split()
    assert (tmp_path / "out.so").exists()


def test_create_shared_links_objects(tmp_path: Path) -> None:
    obj = compile_kernels(tmp_path / "k.o", "-c")
    cc.create_shared(str(tmp_path / "k.so"), str(obj))
    assert runtime.load_module(tmp_path / "k.so").implements_function("add_one")
    with pytest.raises(runtime.ExportError, match="failed"):
        cc.create_shared(str(tmp_path / "k2.so"), [str(tmp_path / "missing.o")])


def test_code_for_another_machine_takes_its_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = HandWrittenCode(compile_kernels(tmp_path / "k.o", "-c"), compile_kernels(tmp_path / "k.so", "-shared"))
    code.other_machine = "riscv64-unknown-linux-gnu"  # type: ignore[attr-defined]
    module = runtime.from_compiled(code, "llvm")
    with pytest.raises(runtime.ExportError, match=r"standalone.*for riscv64-unknown-linux-gnu"):
        module.export_library(tmp_path / "out.so", cc="gcc", standalone=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tilewright.runtime.compilers._has_ziglang", lambda: False)
    tried = "riscv64-unknown-linux-gnu-gcc, riscv64-linux-gnu-gcc"
    with pytest.raises(runtime.ExportError, match=rf"{tried}.*apt install gcc-riscv64-linux-gnu"):
        module.export_library(tmp_path / "out.so")
    compiler = tmp_path / "riscv64-linux-gnu-gcc"
    compiler.write_text('#!/bin/sh\nexec /usr/bin/env -S PATH=/usr/bin:/bin gcc "$@"\n')
    compiler.chmod(0o755)
    module.export_library(tmp_path / "out.so")
    assert (tmp_path / "out.so").exists()


def test_target_triple_is_asked_of_the_compiler() -> None:
    assert cc.get_cc() is not None
    assert "-" in cc.cross_compiler("gcc").get_target_triple()


def test_tempdir_is_removed() -> None:
    with utils.tempdir() as folder:
        Path(folder.relpath("x")).touch()
        assert folder.listdir() == ["x"]
        path = folder.path
        assert (path / "x").is_file()
    assert not os.path.exists(path)


def test_a_compiler_in_the_environment_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    with pytest.raises(runtime.ExportError, match="variable CC names 'no-such-compiler -O2', and there is no such"):
        find_compiler()
