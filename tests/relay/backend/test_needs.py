"""What a build takes of memory and disk is said before it, when that is more than there is."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tvm
from tilewright import relay
from tilewright.driver.compile import CompileOptions, build_library
from tilewright.ir.budget import available_memory
from tilewright.relay.backend import needs
from tilewright.relay.backend.needs import Needs
from tilewright.runtime.error import ExportError

MB = 10**6


def _needs(bits: bool, precision: str = "float32") -> Needs:
    """Return the needs of a product with 8 MB of float32, or of codes and 1 MB of scales."""
    x = relay.var("x", shape=(1, 1000))
    if not bits:
        params = {"w": np.zeros((2000, 1000), "float32")}
        body = relay.nn.dense(x, relay.var("w", shape=(2000, 1000)))
    else:
        params = {"codes": np.zeros((8000, 50, 20), "uint8"), "scales": np.zeros((8000, 50), "float16")}
        body = relay.nn.matmul_nbits(
            x,
            relay.var("codes", shape=(8000, 50, 20), dtype="uint8"),
            relay.var("scales", shape=(8000, 50), dtype="float16"),
            block_size=20,
            bits=8,
        )
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    return Needs(mod, params, precision)


def test_weights_that_stay_where_they_lie_take_disk_alone() -> None:
    found = _needs(bits=False)
    assert (found.library, found.computed) == (8 * MB, 0)
    assert found.memory() == needs._COMPILER and found.memory(in_process=True) == needs._COMPILER + 8 * MB


def test_codes_of_few_bits_and_other_precisions_are_computed() -> None:
    assert _needs(bits=True).computed == 8.8 * MB
    halves = _needs(bits=False, precision="bf16")
    assert (halves.library, halves.computed, halves.largest) == (4 * MB, 4 * MB, 8 * MB)
    assert halves.memory() == needs._COMPILER + 20 * MB


def test_weights_that_no_disk_takes_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "IN_MEMORY", MB)
    assert _needs(bits=True).memory() == needs._COMPILER + 16 * MB + MB
    monkeypatch.setattr(needs, "folder_of_weights", lambda: None)
    assert _needs(bits=True).memory() == needs._COMPILER + 16 * MB + 8.8 * MB


def test_too_little_memory_is_a_warning_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "available_memory", lambda: 50 * MB)
    with pytest.warns(UserWarning, match="takes about 218 MB of memory, and 50 MB are available"):
        _needs(bits=False).warn_of_memory(in_process=True)
    monkeypatch.setattr(needs, "available_memory", lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _needs(bits=False).warn_of_memory()


def test_the_system_tells_how_much_memory_there_is() -> None:
    found = available_memory()
    assert found is None or found > 0


@pytest.fixture
def model(tmp_path: Path) -> Path:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "xy"]
    weight = numpy_helper.from_array(np.eye(64, dtype="float32"), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "m", ends[:1], ends[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("apart", [False, True])
def test_a_disk_without_room_is_an_error_before_the_build(
    apart: bool, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = model.with_name("w.bin") if apart else None
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**9, free=1000))
        patch.setattr("tilewright.relay.build_module.build", None)
        where = "w.bin" if apart else "m.so"
        with pytest.raises(ExportError, match=rf"cannot write .*{where}: its weights take 0 MB, and 0 MB are free"):
            build_library(CompileOptions(model, model.with_suffix(".so"), weights=weights), quiet=True)
    assert [file.name for file in model.parent.iterdir()] == ["m.onnx"]


def test_weights_that_a_file_has_already_need_no_disk(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = CompileOptions(model, model.with_suffix(".so"), weights=model.with_name("w.bin"))
    build_library(options, quiet=True)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**9, free=1000))
    build_library(options, quiet=True)
