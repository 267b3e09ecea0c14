"""Objects that are written without a compiler or linker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.runtime import compilers
from tilewright.runtime.elf_objects import data_object, join_objects

X = np.arange(24, dtype="float32").reshape(3, 8)


def _library(rows: int, target: str = "llvm") -> tuple[runtime.GraphExecutorFactoryModule, np.ndarray]:
    """A dense layer of ``rows`` rows and its softmax: two kernels and a weight; and what it gives for X."""
    weight = np.random.default_rng(0).standard_normal((rows, 8)).astype("float32")
    x, w = relay.var("x", shape=X.shape), relay.var("w", shape=weight.shape)
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.softmax(relay.nn.dense(x, w))))
    exact = np.exp(X.astype("float64") @ weight.T)
    return relay.build(mod, target, params={"w": weight}), exact / exact.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("rows", [5, 1024], ids=["a small table", "a large table"])
@pytest.mark.parametrize("suffix", [".o", ".tar"])
def test_an_object_needs_no_compiler(rows: int, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, expected = _library(rows)
    with monkeypatch.context() as empty:
        empty.setenv("PATH", "")
        empty.delenv("CC", raising=False)
        empty.setattr(compilers, "_has_ziglang", lambda: False)
        path = library.export_library(tmp_path / f"model{suffix}")
    executor = runtime.GraphModule(runtime.load_module(path)["default"](tvm.cpu()))
    np.testing.assert_allclose(executor.infer(x=X)["output_0"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("triple", ["aarch64-linux-gnu", "riscv64-linux-gnu -mattr=+m,+a,+f,+d,+c"])
def test_objects_of_other_machines_need_no_compiler(
    triple: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compilers, "_has_ziglang", lambda: False)
    path = Path(_library(5, f"llvm -mtriple={triple}")[0].export_library(tmp_path / "model.o"))
    machine = {"aarch64": 183, "riscv64": 243}[triple.split("-")[0]]
    assert int.from_bytes(path.read_bytes()[18:20], "little") == machine


def test_a_compiler_that_is_asked_for_has_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, _ = _library(5)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(runtime.ExportError, match="nosuch"):
        library.export_library(tmp_path / "model.o", cc="nosuch")
    monkeypatch.setenv("CC", "nosuch")
    with pytest.raises(runtime.ExportError, match="environment variable CC names 'nosuch'"):
        library.export_library(tmp_path / "model.o")


def test_what_cannot_be_joined_is_said() -> None:
    library, _ = _library(5)
    mine = library.lib.compiled_code.objects()[0]
    other = _library(5, "llvm -mtriple=aarch64-linux-gnu")[0].lib.compiled_code.objects()[0]
    data = data_object(mine, "numbers", b"1234", ".rodata", "a")
    assert b"1234" in join_objects([mine, data])
    with pytest.raises(tvm.TVMError, match="for different machines"):
        join_objects([mine, other])
    with pytest.raises(tvm.TVMError, match="the symbol numbers is defined by two objects"):
        join_objects([data, data])
    with pytest.raises(tvm.TVMError, match="no little-endian ELF object"):
        join_objects([b"text"])
