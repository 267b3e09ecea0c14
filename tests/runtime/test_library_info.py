"""What a library tells of itself, read from its file."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.kernels import chain_json

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.runtime import library_info
from tilewright.runtime.checksum import SIZE
from tilewright.runtime.library_info import library_graph

WEIGHT = np.arange(20000, dtype="float32").reshape(4, 5000)


def build(target: str, path: Path, **options: object) -> Path:
    """exp(x + w) and its row sums."""
    x, w = relay.var("x", shape=(4, 5000)), relay.var("w", shape=(4, 5000))
    body = relay.exp(relay.add(x, w))
    func = relay.Function([x, w], relay.Tuple([body, relay.sum(body, axis=1)]))
    module = tvm.IRModule.from_expr(func).with_attr("output_names", ["all", "rows"])
    relay.build(module, target, params={"w": WEIGHT}).export_library(str(path), **options)
    return path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(
        "llvm -mcpu=x86-64" if os.uname().machine == "x86_64" else "llvm", tmp_path_factory.mktemp("i") / "n.so"
    )


def test_a_library_tells_what_it_is(library: Path) -> None:
    info = library_info(library)
    assert {n: (t.shape, t.dtype) for n, t in info.inputs.items()} == {"x": ((4, 5000), "float32")}
    assert {n: (t.shape, t.dtype) for n, t in info.outputs.items()} == {
        "all": ((4, 5000), "float32"),
        "rows": ((4,), "float32"),
    }
    assert info.parameter_bytes == WEIGHT.nbytes == sum(p.nbytes for p in info.parameters.values())
    assert info.file_bytes == library.stat().st_size > info.parameter_bytes + info.code_bytes
    assert info.made_by == f"Tilewright {tvm.__version__}" and info.target.startswith("llvm")
    assert info.name == "default" and info.machine == os.uname().machine
    assert info.activation_bytes >= WEIGHT.nbytes and info.code_bytes > 0 and info.kernel_calls >= 1


def test_it_is_what_the_executor_says(library: Path) -> None:
    info = library_info(library)
    executor = runtime.GraphModule(runtime.load_module(library)["default"](tvm.cpu(0)))
    shapes, dtypes = executor.get_output_info()
    assert {n: (t.shape, t.dtype) for n, t in info.outputs.items()} == {n: (shapes[n], dtypes[n]) for n in shapes}
    assert list(info.inputs) == executor.get_input_names()


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_it_names_the_features_that_loading_checks(target: str, tmp_path: Path) -> None:
    features = library_info(build(target, tmp_path / "n.so")).cpu_features
    assert set(features) <= set(runtime.host_cpu_features())
    assert features or target == "c"


def test_libraries_from_before_names_are_described(compiled: runtime.Module, tmp_path: Path) -> None:
    params = {"w": np.zeros((3, 5), "float32")}
    made = runtime.GraphExecutorFactoryModule(None, None, "graph", chain_json(2), compiled, "other", params)
    info = library_info(made.export_library(tmp_path / "n.so"))
    assert info.name == "other" and info.made_by == info.target == "" and info.cpu_features == ()
    assert list(info.inputs) == ["x"] and list(info.outputs) == ["output_0", "output_1"]
    assert dataclasses.asdict(info.inputs["x"]) == {"shape": (3, 5), "dtype": "float32"}
    assert info.kernel_calls == 3 and info.activation_bytes == 2 * 60 and info.prepared_bytes == 0


def test_weights_that_loading_prepares_are_no_activations(compiled: runtime.Module, tmp_path: Path) -> None:
    graph = json.loads(chain_json(2))
    graph["nodes"][2]["attrs"]["run_once"] = "1"
    graph["attrs"]["storage_id"][1] = [0, 1, 2, 3, 4]
    params = {"w": np.zeros((3, 5), "float32")}
    made = runtime.GraphExecutorFactoryModule(None, None, "graph", json.dumps(graph), compiled, "other", params)
    info = library_info(made.export_library(tmp_path / "n.so"))
    assert (info.prepared_bytes, info.activation_bytes, info.kernel_calls) == (60, 2 * 60, 2)


def test_its_graph_is_what_netron_takes_for_one_of_tvm(library: Path) -> None:
    graph = json.loads(library_graph(library))
    assert {node["op"] for node in graph["nodes"]} == {"null", "tvm_op"}
    assert all(isinstance(graph[key], list) for key in ("nodes", "arg_nodes", "heads"))


def test_libraries_cut_short_are_refused(library: Path, tmp_path: Path) -> None:
    data, cut = library.read_bytes(), tmp_path / "cut.so"
    for size in (*range(0, 1024, 16), *range(1024, len(data) - SIZE, len(data) // 50)):
        cut.write_bytes(data[:size])
        with pytest.raises(runtime.TVMError, match=r"cut\.so: not a library that Tilewright wrote, or damaged"):
            library_info(cut)


def test_what_is_no_network_is_refused(compiled: runtime.Module, tmp_path: Path) -> None:
    compiled.export_library(tmp_path / "code.so")
    with pytest.raises(runtime.TVMError, match="it has no symbol __tvm_dev_mblob"):
        library_info(tmp_path / "code.so")
    with pytest.raises(runtime.TVMError, match=r"none\.so: No such file"):
        library_info(tmp_path / "none.so")
