"""Networks in WebAssembly, run by Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.micro.wasm import export_wasm
from tilewright.relay import testing
from tilewright.runtime.error import TVMError

needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("clang", "wasm-ld", "node"))), reason="clang, wasm-ld or node is not installed"
)

RUN = """
import {Model} from "./model.mjs";
const ARRAYS = {float32: Float32Array, int64: BigInt64Array};
const model = await Model.load();
const value = ({dtype, values}) => ARRAYS[dtype].from(values, dtype === "int64" ? BigInt : Number);
for (const inputs of GIVEN) {
  try {
    const map = (all, change) => Object.fromEntries(Object.entries(all).map(([name, each]) => [name, change(each)]));
    console.log(JSON.stringify(map(model.run(map(inputs, value)), (found) => Array.from(found, Number))));
  } catch (error) {
    console.log(JSON.stringify({error: error.message}));
  }
}
"""


def given(array: np.ndarray) -> dict[str, Any]:
    return {"dtype": str(array.dtype), "values": array.reshape(-1).tolist()}


def answers(folder: Path, *inputs: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return what Node prints for each set of inputs."""
    rows = [{name: given(array) for name, array in each.items()} for each in inputs]
    (folder / "run.mjs").write_text(RUN.replace("GIVEN", json.dumps(rows)))
    done = subprocess.run(["node", folder / "run.mjs"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def built(func: relay.Function) -> Any:
    return relay.build(tvm.IRModule.from_expr(func), "c -runtime=c", executor="aot", mod_name="model")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, relay.Function]:
    """A folder, and its network: a row of a table, a convolution, and functions that JavaScript has or has not."""
    rng = np.random.default_rng(0)
    x, row = relay.var("x", shape=(1, 3, 7, 5)), relay.var("row", shape=(1,), dtype="int64")
    convolved = relay.nn.conv2d(
        x, relay.const(rng.random((4, 3, 3, 3), "float32")), padding=1, channels=4, kernel_size=3
    )
    pooled = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(convolved))
    looked_up = relay.take(relay.const(rng.random((6, 4), "float32")), row, axis=0)
    mixed = relay.erf(relay.tanh(pooled) * looked_up) + relay.log(relay.exp(looked_up) + relay.sqrt(looked_up))
    func = relay.Function([x, row], relay.Tuple([relay.nn.softmax(mixed), relay.round(mixed * relay.const(3.0))]))
    folder = tmp_path_factory.mktemp("wasm")
    export_wasm(built(func), folder)
    return folder, func


@needs_tools
def test_answers_are_those_of_this_machine(network: tuple[Path, relay.Function]) -> None:
    folder, func = network
    rng = np.random.default_rng(1)
    inputs = [{"x": rng.random((1, 3, 7, 5), "float32"), "row": np.array([row])} for row in (0, 5)]
    run = relay.create_executor("graph", tvm.IRModule.from_expr(func)).evaluate()
    for each, found in zip(inputs, answers(folder, *inputs), strict=True):
        for value, expected in zip(found.values(), run(**each), strict=True):
            np.testing.assert_allclose(value, expected.numpy().reshape(-1), rtol=2e-6, atol=1e-6)


@needs_tools
@pytest.mark.full
def test_resnet_18_has_the_bits_of_the_same_program_here(tmp_path: Path) -> None:
    module, params = testing.resnet.get_workload(num_layers=18, batch_size=1, image_shape=(3, 64, 64))
    factory = relay.build(module, "c -runtime=c", params=params, executor="aot", mod_name="model")
    export_wasm(factory, tmp_path)
    x = np.random.default_rng(0).random((1, 3, 64, 64), "float32")
    (found,) = answers(tmp_path, {"data": x})
    executor = factory.create_executor(tvm.cpu())
    executor.run(data=x)
    expected = executor.get_output(0).numpy().reshape(-1)
    np.testing.assert_allclose(next(iter(found.values())), expected, rtol=1e-6)  # of exp in JavaScript


@needs_tools
def test_wrong_inputs_are_errors_in_words(network: tuple[Path, relay.Function]) -> None:
    folder, _ = network
    x, row = np.zeros((1, 3, 7, 5), "float32"), np.zeros(1, "int64")
    wrong = [{"x": x}, {"x": x[0, 0], "row": row}, {"x": x, "row": row.astype("float32")}, {"x": x, "row": row, "z": x}]
    texts = [found["error"] for found in answers(folder, *wrong)]
    assert "input row has no value" in texts[0]
    assert "input x is a Float32Array of 35 elements; expected a Float32Array of 105 elements" in texts[1]
    assert "input row is a Float32Array of 1 elements; expected a BigInt64Array" in texts[2]
    assert "no input z; the inputs are x, row" in texts[3]


@needs_tools
def test_integers_have_the_same_bits(tmp_path: Path) -> None:
    x = relay.var("x", shape=(5,), dtype="int64")
    func = relay.Function([x], x * relay.const(3, "int64") - relay.const(1 << 40, "int64"))
    export_wasm(built(func), tmp_path)
    value = np.array([0, 1, -7, 1 << 33, -(1 << 35)])
    (found,) = answers(tmp_path, {"x": value})
    np.testing.assert_array_equal(next(iter(found.values())), value * 3 - (1 << 40))


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = relay.var("x", shape=(5,))
    factory = built(relay.Function([x], x + x))
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    with pytest.raises(TVMError, match="needs clang and wasm-ld: on Debian, apt install clang lld"):
        export_wasm(factory, tmp_path)
    with pytest.raises(TVMError, match=r'made of relay.build\(mod, "c -runtime=c", executor="aot"\)'):
        export_wasm(relay.build(tvm.IRModule.from_expr(relay.Function([x], x)), "llvm"), tmp_path)
    assert not list(tmp_path.iterdir())
