"""The executor that a program needs: by ``relay.build(executor="auto")`` and on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import tilewright as tvm
from tilewright import relay
from tilewright.driver.cli import app
from tilewright.ir.errors import UnsupportedError
from tilewright.relay.backend.executor_choice import needed_executor
from tilewright.runtime.vm import Executable, VirtualMachine

X = np.float32([1, -2, 3])


def tensor(name: str, dtype: int = TensorProto.FLOAT, shape: tuple[int, ...] = (3,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def branching() -> onnx.ModelProto:
    """``-x if c else relu(x)``"""
    branches = {
        f"{key}_branch": helper.make_graph([helper.make_node(op, ["x"], [key])], key, [], [tensor(key)])
        for key, op in (("then", "Neg"), ("else", "Relu"))
    }
    node = helper.make_node("If", ["c"], ["y"], **branches)
    return model([node], [tensor("c", TensorProto.BOOL, ()), tensor("x")])


def looping() -> onnx.ModelProto:
    """``x * 2 ** rounds``"""
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["state", "state"], ["next"])]
    given = [tensor("i", TensorProto.INT64, ()), tensor("go", TensorProto.BOOL, ()), tensor("state")]
    body = helper.make_graph(nodes, "body", given, [tensor("on", TensorProto.BOOL, ()), tensor("next")])
    node = helper.make_node("Loop", ["rounds", "", "x"], ["y"], body=body)
    return model([node], [tensor("rounds", TensorProto.INT64, ()), tensor("x")])


def model(nodes: list[Any], inputs: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, [tensor("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)


CASES = [
    (branching, {"c": np.array(True), "x": X}, -X),
    (branching, {"c": np.array(False), "x": X}, np.maximum(X, 0)),
    (looping, {"rounds": np.array(3), "x": X}, 8 * X),
]


def test_branches_and_loops_over_known_shapes_run_on_the_machine() -> None:
    for make, inputs, expected in CASES:
        mod, params = relay.frontend.from_onnx(make())
        built = relay.build(mod, "llvm", params=params, executor="auto")
        assert isinstance(built, Executable)
        np.testing.assert_array_equal(VirtualMachine(built, tvm.cpu()).run(**inputs).numpy(), expected)


def test_branches_and_loops_run_from_the_command_line(tmp_path: Path) -> None:
    for make, inputs, expected in CASES[1:]:
        onnx.save(make(), tmp_path / "m.onnx")
        np.savez(tmp_path / "in.npz", **inputs)
        runner = CliRunner()
        library, result = str(tmp_path / "m.so"), str(tmp_path / "y.npz")
        done = runner.invoke(app, ["compile", "-q", str(tmp_path / "m.onnx"), "-o", library])
        assert done.exit_code == 0, done.output
        done = runner.invoke(app, ["run", library, "--inputs", str(tmp_path / "in.npz"), "-o", result])
        assert done.exit_code == 0, done.output
        with np.load(result) as found:
            np.testing.assert_array_equal(found["y"], expected)


@pytest.mark.parametrize("make", [branching, looping])
def test_the_graph_executor_says_what_runs_branches_and_loops(make: Any) -> None:
    mod, params = relay.frontend.from_onnx(make())
    with pytest.raises(UnsupportedError, match=r"data flow only.*executor=\"auto\".*--executor auto"):
        relay.build(mod, "llvm", params=params)


def executor_of(text: str) -> str:
    return needed_executor(tvm.parser.fromtext(f'#[version = "0.0.5"]\n{text}'))


def test_data_flow_with_lets_and_functions_stays_with_the_graph_executor() -> None:
    assert executor_of("def @main(%x: Tensor[(2), float32]) { let %f = fn (%a) { exp(%a) }; %f(%x) }") == "graph"
    assert executor_of("def @main(%x: Tensor[(2), float32]) { (%x, exp(%x)) }") == "graph"


def test_shapes_in_the_data_need_the_machine_also_inside() -> None:
    assert executor_of("def @main(%x: Tensor[(?), float32]) { exp(%x) }") == "vm"
    stop = relay.var("stop", shape=(), dtype="float32")
    counted = relay.sum(relay.arange(stop))
    assert needed_executor(tvm.IRModule.from_expr(relay.Function([stop], counted))) == "vm"
    assert executor_of("def @main(%x: float32) { ref_read(ref(%x)) }") == "vm"


@pytest.mark.parametrize("executor", ["graph", "vm"])
def test_the_executor_of_the_target_is_taken_where_it_is_chosen_automatically(executor: str) -> None:
    x = relay.var("x", shape=(3,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    target = f"llvm -executor={executor}"
    for built in (relay.build(mod, target, executor="auto"), relay.build(mod, target)):
        assert isinstance(built, Executable) == (executor == "vm")
    called = tvm.compile(mod, target=target)
    assert (called.module.type_key == "VMExecutable") == (executor == "vm")
    np.testing.assert_allclose(called(X), np.exp(X), rtol=1e-6)
