"""``tilewright.compile(path, cache_dir=...)``: compiling the same model again opens its library."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright import relay
from tilewright.model.key import model_key
from tilewright.runtime.error import TVMError
from tilewright.target.generic_func import GenericFunc

ONES = np.ones((2, 4), "float32")


def network(scale: float = 1.0) -> onnx.ModelProto:
    weight = scale * np.arange(12, dtype="float32").reshape(4, 3)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(network(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture
def as_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the operators that other tests of this process have registered."""
    monkeypatch.setattr("tilewright.model.key._is_as_shipped", lambda target: True)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Models that were compiled."""
    from tilewright.model import build as model_build

    found: list[Any] = []
    real: Callable[..., Any] = model_build.build_model

    def counted(model: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(model)
        return real(model, *args, **kwargs)

    monkeypatch.setattr(model_build, "build_model", counted)
    return found


@pytest.mark.usefixtures("as_shipped")
def test_the_same_model_is_opened(path: Path, compilations: list[Any]) -> None:
    folder = path.parent / "kept"
    for _ in range(2):
        model = tw.compile(path, cache_dir=folder)
        np.testing.assert_array_equal(model(ONES), ONES @ np.arange(12, dtype="float32").reshape(4, 3))
    assert len(compilations) == 1
    (library,) = folder.iterdir()
    assert library.stat().st_mode & 0o022 == 0

    library.unlink()  # the process goes on with the one that it has mapped
    library.write_bytes(b"no library")
    tw.compile(path, cache_dir=folder)
    assert len(compilations) == 2 and library.read_bytes() != b"no library"


@pytest.mark.usefixtures("as_shipped")
def test_the_compiler_is_not_imported_to_open_a_library(path: Path) -> None:
    tw.compile(path, cache_dir=path.parent)
    program = (
        "import sys, tilewright; model = tilewright.compile(sys.argv[1], cache_dir=sys.argv[2]); "
        "print(sorted(name for name in ('tilewright.relay', 'tilewright.te', 'onnx') if name in sys.modules))"
    )
    command = [sys.executable, "-c", program, str(path), str(path.parent)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.usefixtures("as_shipped")
def test_a_key_depends_on_the_content_the_target_and_the_options(path: Path) -> None:
    def key(target: Any = "llvm", **options: Any) -> str | None:
        return model_key(path, target, None, options)

    first = key()
    assert first == key() and first == model_key(network().SerializeToString(), "llvm", None, {})
    others = {key(opt_level=2), key("llvm -mcpu=x86-64"), key(dims={"n": (1, 4)})}
    onnx.save(network(2.0), path)
    others.add(key())
    assert len({first, *others}) == 5 and None not in others


@pytest.mark.usefixtures("as_shipped")
def test_data_beside_the_file_is_part_of_the_key(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(), path, save_as_external_data=True, location="weights", size_threshold=0)
    first = model_key(path, "llvm", None, {})
    content = bytearray((tmp_path / "weights").read_bytes())
    content[-1] ^= 1
    (tmp_path / "weights").write_bytes(content)
    assert first is not None and model_key(path, "llvm", None, {}) not in (first, None)


@pytest.mark.usefixtures("as_shipped")
def test_files_of_a_folder_and_tuning_records_are_part_of_the_key(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"a")
    found = [model_key(tmp_path / "model", "llvm", None, {})]
    (tmp_path / "model" / "variables").write_bytes(b"b")
    found.append(model_key(tmp_path / "model", "llvm", None, {}))
    (tmp_path / "log").write_bytes(b"")
    found.append(model_key(tmp_path / "model", "llvm", tmp_path / "log", {}))
    assert len(set(found)) == 3 and None not in found


def test_somebody_elses_operators_and_schedules_have_no_key(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(relay.op.get("nn.relu").attrs, "FTVMCompute", (lambda *_: [], 20))
        assert model_key(path, "llvm", None, {}) is None
    monkeypatch.setattr(GenericFunc, "foreign_keys", {"cpu"})
    assert model_key(path, "llvm", None, {}) is None


def test_what_has_no_text_has_no_key(path: Path) -> None:
    assert model_key(path, "llvm", None, {"config": {"tir.add_lower_pass": [(0, lambda f: f)]}}) is None
    assert model_key(path, {"cpu": "llvm"}, None, {}) is None
    assert model_key(path.parent / "absent.onnx", "llvm", None, {}) is None


@pytest.mark.parametrize("model", [network(), torch.nn.Linear(4, 3), relay.Function([], relay.const(1.0))])
def test_only_files_are_kept(model: Any, tmp_path: Path) -> None:
    with pytest.raises(TVMError, match=r"takes a path or bytes, not a .*; save the compiled model instead"):
        tw.compile(model, cache_dir=tmp_path)


@pytest.mark.usefixtures("as_shipped")
def test_a_full_disk_is_a_warning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("tilewright.runtime.module.Module.export_library", full)
    with pytest.warns(RuntimeWarning, match=r"the library is not kept: .*No space"):
        model = tw.compile(path, cache_dir=path.parent)
    assert model(ONES).shape == (2, 3)
