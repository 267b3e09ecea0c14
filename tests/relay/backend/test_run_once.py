"""Weights that are made ready when a library is loaded: Winograd's, which are larger then."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

CHANNELS, EXTENT = 128, 28
RNG = np.random.default_rng(0)
DATA = RNG.standard_normal((1, CHANNELS, EXTENT, EXTENT)).astype("float32")
WEIGHTS = [(RNG.standard_normal((CHANNELS, CHANNELS, 3, 3)) / CHANNELS).astype("float32") for _ in range(2)]
WEIGHT_BYTES = sum(w.nbytes for w in WEIGHTS)
CPU = tvm.cpu(0)


def build(**options: bool) -> Any:
    """Two 3x3 convolutions, built with options of ``relay.graph``."""
    value = data = relay.var("x", shape=DATA.shape)
    for weight in WEIGHTS:
        value = relay.nn.relu(relay.nn.conv2d(value, relay.const(weight), padding=1, channels=CHANNELS, kernel_size=3))
    config = {f"relay.graph.{name}": setting for name, setting in options.items()}
    with tvm.transform.PassContext(opt_level=3, config=config):
        return relay.build(tvm.IRModule.from_expr(relay.Function([data], value)), "llvm")


@pytest.fixture(scope="module")
def at_load() -> Any:
    return build()


@pytest.fixture(scope="module")
def at_compile_time() -> Any:
    return build(run_once=False)


def result(module: Any) -> np.ndarray:
    module.run(x=DATA)
    return module.get_output(0).numpy()


def prepared_nodes(factory: Any) -> list[str]:
    nodes = json.loads(factory.get_graph_json())["nodes"]
    return [node["name"] for node in nodes if node.get("attrs", {}).get("run_once")]


def test_the_graph_says_which_nodes_run_once(at_load: Any, at_compile_time: Any) -> None:
    assert len(prepared_nodes(at_load)) == 2
    assert prepared_nodes(at_compile_time) == []
    report, other = at_load.build_report, at_compile_time.build_report
    assert report.parameter_bytes == WEIGHT_BYTES
    assert report.prepared_bytes == other.parameter_bytes == 4 * WEIGHT_BYTES
    assert other.prepared_bytes == 0
    assert report.activation_bytes == other.activation_bytes
    assert report.kernel_calls == other.kernel_calls


def test_the_result_is_the_same(at_load: Any, at_compile_time: Any) -> None:
    want = result(graph_executor.GraphModule(at_compile_time["default"](CPU)))
    found = result(graph_executor.GraphModule(at_load["default"](CPU)))
    assert np.abs(want).max() > 0.1
    # both transform in double precision and round once, and may break ties otherwise
    assert np.abs(found - want).max() < 1e-5 * np.abs(want).max()


def test_a_library_is_as_large_as_its_weights(at_load: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    at_load.export_library(str(path))
    assert path.stat().st_size < WEIGHT_BYTES + 2**20
    want = result(graph_executor.GraphModule(at_load["default"](CPU)))
    loaded = tvm.runtime.load_module(str(path))
    np.testing.assert_array_equal(result(graph_executor.GraphModule(loaded["default"](CPU))), want)


def test_a_parameter_that_changes_is_made_ready_again(at_load: Any) -> None:
    first, second = (graph_executor.GraphModule(at_load["default"](CPU)) for _ in range(2))
    want = result(first)
    (name, *_) = (name for name, value in at_load.get_params().items() if value.shape[2:4] == (3, 3))
    first.set_input(name, np.zeros(at_load.get_params()[name].shape, "float32"))
    assert np.all(result(first) == 0)
    np.testing.assert_array_equal(result(second), want)
    first.set_input(name, at_load.get_params()[name])
    np.testing.assert_array_equal(result(first), want)


@pytest.mark.parametrize("loaded", [False, True])
def test_executors_made_after_a_change_in_place_have_it(loaded: bool, tmp_path: Path) -> None:
    factory = build()
    if loaded:
        factory.export_library(str(tmp_path / "model.so"))
        library = tvm.runtime.load_module(str(tmp_path / "model.so"))
        get_param = library.get_function("get_param")
        params = [get_param(i) for i in range(library.get_function("get_num_params")())]
    else:
        library, params = factory, list(factory.get_params().values())
    assert np.any(result(graph_executor.GraphModule(library["default"](CPU))))
    for value in params:
        if value.shape[2:4] == (3, 3):
            value.copyfrom(np.zeros(value.shape, "float32"))
    assert np.all(result(graph_executor.GraphModule(library["default"](CPU))) == 0)


def test_a_parameter_changed_in_place_is_made_ready_again(at_load: Any) -> None:
    params = {name: tvm.nd.array(value.numpy()) for name, value in at_load.get_params().items()}
    module = graph_executor.create(at_load.get_graph_json(), at_load.get_lib(), CPU)
    module.load_params(tvm.runtime.save_param_dict(params))
    want = result(module)
    assert np.any(want)
    for name, value in params.items():
        if value.shape[2:4] == (3, 3):
            module.get_input(name).copyfrom(np.zeros(value.shape, "float32"))
    assert np.all(result(module) == 0)


def test_transforms_of_any_number_of_channels_agree_with_numpy() -> None:
    for channels in (1, 8, 13, 16, 48):
        shape = (1, channels, 9, 7)
        data, weight = RNG.standard_normal(shape).astype("float32"), RNG.standard_normal((channels, channels, 3, 3))
        x = relay.var("x", shape=shape)
        packed = relay.nn.contrib_conv2d_winograd_weight_transform(relay.const(weight.astype("float32")), 2)
        mod = tvm.IRModule.from_expr(relay.Function([x], relay.add(relay.sum(packed), relay.sum(x))))
        module = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](CPU))
        module.run(x=data)
        g = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
        want = np.einsum("ay,bx,oiyx->oabi", g, g, weight).sum() + data.astype("float64").sum()
        assert abs(module.get_output(0).numpy() - want) < 1e-3 * np.abs(weight).sum()
