"""Part of ResNet-18 on a device whose memory the host cannot touch (examples/plugins/guarded_device)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.plugins.conftest import PLUGINS
from tests.relay.backend.random_placement import random_network

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.contrib import graph_executor

FOLDER = PLUGINS / "guarded_device"


@pytest.fixture(scope="session")
def guarded_target(guarded: runtime.Device) -> Iterator[str]:
    """The target kind of the device, registered as its package's entry points do."""
    paths = [str(FOLDER / "src"), str(FOLDER)]
    sys.path[:0] = paths
    from tilewright_guarded import target

    target.register_target()
    target.register_module()
    yield "guarded"
    for path in paths:
        sys.path.remove(path)


def test_the_example_gives_the_same_answer(guarded_target: str, capsys: pytest.CaptureFixture[str]) -> None:
    import resnet18

    resnet18.main()
    told = capsys.readouterr().out
    assert "copies between the devices" in told and "largest difference" in told


@pytest.mark.parametrize("seed", range(6))
def test_random_placements_keep_to_the_memory_of_their_devices(
    guarded_target: str, guarded: runtime.Device, seed: int
) -> None:
    network = random_network(seed + 100, [1, guarded.device_type])
    lib = relay.build(network.mod, {"cpu": "llvm", "guarded": guarded_target})
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu(), guarded))
    executor.run(**network.inputs)
    for i, expected in enumerate(network.expected):
        np.testing.assert_allclose(executor.get_output(i).numpy(), expected, rtol=1e-5, atol=1e-5)


def small_network() -> tuple[tvm.IRModule, dict[str, Any], np.ndarray[Any, Any]]:
    """A dense layer on the device, between operators on the CPU."""
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(3, 7))
    weight = rng.standard_normal((5, 7)).astype("float32")
    before = relay.annotation.on_device(relay.tanh(x), "cpu")
    there = relay.annotation.on_device(relay.nn.softmax(relay.nn.dense(before, relay.const(weight))), "guarded")
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.concatenate([there, there], axis=0)))
    value = rng.standard_normal((3, 7)).astype("float32")
    logits = np.tanh(value.astype("float64")) @ weight.T
    exps = np.exp(logits - logits.max(1, keepdims=True))
    return mod, {"x": value}, np.tile(exps / exps.sum(1, keepdims=True), (2, 1))


def test_code_for_the_device_travels_in_a_library(guarded_target: str, guarded: runtime.Device, tmp_path: Path) -> None:
    mod, inputs, expected = small_network()
    built = relay.build(mod, {"cpu": "llvm", "guarded": guarded_target})
    assert [m.type_key for m in built.get_lib().imported_modules] == ["guarded"]
    loaded = runtime.load_module(built.export_library(tmp_path / "network.so"))
    for lib in (built, loaded):
        executor = graph_executor.GraphModule(lib["default"](tvm.cpu(), guarded))
        for _ in range(2):
            executor.run(**inputs)
            np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-5)


def test_a_device_that_is_not_given_is_asked_for(guarded_target: str) -> None:
    mod, _, _ = small_network()
    built = relay.build(mod, {"cpu": "llvm", "guarded": guarded_target})
    with pytest.raises(tvm.TVMError, match="guarded"):
        built["default"](tvm.cpu())


def test_a_network_alone_on_the_device(guarded_target: str, guarded: runtime.Device) -> None:
    x = relay.var("x", shape=(4, 5))
    built = relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))), guarded_target)
    assert set(json.loads(built.get_graph_json())["attrs"]["device_index"][1]) == {guarded.device_type}
    executor = graph_executor.GraphModule(built["default"](guarded))
    value = np.linspace(-1, 1, 20, dtype="float32").reshape(4, 5)
    executor.run(x=value)
    assert executor.get_output(0).device == guarded
    np.testing.assert_allclose(executor.get_output(0).numpy(), np.exp(value), rtol=1e-6)
