"""Targets and files of systems that nothing is made for are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright as tvm
from tilewright import te
from tilewright.driver.options import check_is_library
from tilewright.ir.errors import UnsupportedError


def build(target: str) -> object:
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="y")
    return tvm.build(te.create_schedule(y.op), [x, y], target)


@pytest.mark.parametrize("triple", ["x86_64-pc-windows-msvc", "aarch64-w64-windows-gnu", "i686-pc-win32"])
def test_triples_of_windows(triple: str) -> None:
    with pytest.raises(UnsupportedError, match=f"the triple {triple}: of Windows there is x86_64-pc-windows-gnu alone"):
        build(f"llvm -mtriple={triple}")


def test_riscv_without_features_says_which_to_give() -> None:
    with pytest.raises(UnsupportedError, match=r"give -mattr=\+m,\+a,\+f,\+d,\+c \(-mabi=lp64d\)"):
        build("llvm -mtriple=riscv64-linux-gnu")


def test_an_abi_that_the_features_give_is_taken_and_another_refused() -> None:
    assert build("llvm -mtriple=riscv64-linux-gnu -mattr=+m,+a,+f,+d,+c -mabi=lp64d")
    with pytest.raises(UnsupportedError, match=r"-mabi=lp64d .* give lp64; change -mattr"):
        build("llvm -mtriple=riscv64-linux-gnu -mattr=+m,+a -mabi=lp64d")


@pytest.mark.parametrize("name", ["q.lib", "q.dylib", "q.EXE"])
def test_libraries_of_other_systems(name: str) -> None:
    with pytest.raises(tvm.TVMError, match=f"{name}: libraries are made for Linux"):
        check_is_library(Path(name))
