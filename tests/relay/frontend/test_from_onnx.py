"""What ``from_onnx`` gives: parameters, shapes, constants worked out, branches and functions taken apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import UnsupportedError
from tilewright.relay.analysis import post_order_visit
from tilewright.relay.expr import Call

FLOAT = TensorProto.FLOAT


def make_model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple],
    outputs: dict[str, int],
    weights: dict[str, np.ndarray] | None = None,
    functions: tuple[onnx.FunctionProto, ...] = (),
) -> onnx.ModelProto:
    """A model; ``outputs`` are ranks by name."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, [None] * rank) for name, rank in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", 18), *(helper.make_opsetid("local", 1) for _ in functions[:1])]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=functions)


def operators(module: tvm.IRModule) -> list[str]:
    """Names of the operators that the module calls, arguments first."""
    found: list[str] = []
    post_order_visit(module["main"], lambda e: found.append(e.op.name) if isinstance(e, Call) else None)
    return found


def run(module: tvm.IRModule, params: dict, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    executor = graph_executor.GraphModule(relay.build(module, "llvm", params=params)["default"](tvm.cpu(0)))
    for name, value in inputs.items():
        executor.set_input(name, value)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def assert_right(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> tvm.IRModule:
    """The compiled model gives what ONNX's reference evaluator gives."""
    module, params = relay.frontend.from_onnx(model, {name: value.shape for name, value in inputs.items()})
    expected = ReferenceEvaluator(model).run(None, inputs)
    for found, wanted in zip(run(module, params, inputs), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    return module


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def linear() -> onnx.ModelProto:
    weights = {"w": np.arange(6, dtype="float32").reshape(2, 3), "unused": np.ones(2, "float32")}
    return make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("n", 2)}, {"y": 2}, weights)


def test_weights_are_parameters_after_the_inputs() -> None:
    module, params = relay.frontend.from_onnx(linear(), {"x": (4, 2)})
    assert [p.name_hint for p in module["main"].params] == ["x", "w"]
    assert list(params) == ["w"]
    np.testing.assert_array_equal(params["w"].numpy(), np.arange(6, dtype="float32").reshape(2, 3))


def test_frozen_weights_are_constants() -> None:
    module, params = relay.frontend.from_onnx(linear(), {"x": (4, 2)}, freeze_params=True)
    assert [p.name_hint for p in module["main"].params] == ["x"]
    assert params == {}
    x = np.ones((4, 2), "float32")
    np.testing.assert_allclose(run(module, params, {"x": x})[0], x @ np.arange(6, dtype="float32").reshape(2, 3))


def test_weights_that_are_also_inputs_stay_weights() -> None:
    model = linear()
    model.graph.input.append(helper.make_tensor_value_info("w", FLOAT, (2, 3)))
    module, params = relay.frontend.from_onnx(model, {"x": (1, 2)})
    assert [p.name_hint for p in module["main"].params] == ["x", "w"]
    assert list(params) == ["w"]


def test_batch_of_the_model_may_be_changed() -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, 3)}, {"y": 2})
    module, _ = relay.frontend.from_onnx(model, {"x": (5, 3)})
    assert module["main"].params[0].type_annotation.concrete_shape == (5, 3)


def test_path_of_a_file_is_imported(tmp_path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(linear(), str(path))
    module, _ = relay.frontend.from_onnx(path, {"x": (4, 2)})
    assert "dense" in operators(module)[-1]


def test_several_outputs_are_a_tuple_in_order(random: np.random.Generator) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
    assert_right(
        make_model(nodes, {"x": (3,)}, {"b": 1, "a": 1, "x": 1}), {"x": random.standard_normal(3).astype("float32")}
    )


def test_arithmetic_on_shapes_is_worked_out(random: np.random.Generator) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Mul", ["n", "two"], ["m"]),
        helper.make_node("Unsqueeze", ["m", "axes"], ["u"]),
        helper.make_node("Concat", ["u", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    weights = {"zero": np.array(0), "two": np.array(2), "axes": np.array([0]), "rest": np.array([-1])}
    model = make_model(nodes, {"x": ("n", 6)}, {"y": 2}, weights)
    module = assert_right(model, {"x": random.standard_normal((5, 6)).astype("float32")})
    assert operators(module) == ["reshape"]


def branch(name: str, operator: str) -> onnx.GraphProto:
    """A branch that applies ``operator`` to the outer value x."""
    out = helper.make_tensor_value_info("out", FLOAT, [None])
    return helper.make_graph([helper.make_node(operator, ["x"], ["out"])], name, [], [out])


BRANCHES = {"then_branch": branch("t", "Exp"), "else_branch": branch("e", "Neg")}


@pytest.mark.parametrize(("condition", "taken"), [(True, "exp"), (False, "negative")])
def test_if_with_a_known_condition_is_the_branch_taken(condition: bool, taken: str) -> None:
    node = helper.make_node("If", ["c"], ["y"], **BRANCHES)
    model = make_model([node], {"x": (3,)}, {"y": 1}, {"c": np.array(condition)})
    assert operators(assert_right(model, {"x": np.array([1, -2, 3], "float32")})) == [taken]


def test_unsupported_operators_in_branches_are_named_too() -> None:
    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("t", "StringNormalizer"), else_branch=branch("e", "Neg")
    )
    model = make_model([node], {"x": (3,)}, {"y": 1}, {"c": np.array(False)})
    with pytest.raises(UnsupportedError, match="StringNormalizer"):
        relay.frontend.from_onnx(model)


def test_functions_of_the_model_are_written_out() -> None:
    body = [helper.make_node("Mul", ["a", "a"], ["s"]), helper.make_node("Add", ["s", "a"], ["b"])]
    function = helper.make_function("local", "SquarePlus", ["a"], ["b"], body, [helper.make_opsetid("", 18)])
    nodes = [
        helper.make_node("SquarePlus", ["x"], ["t"], domain="local"),
        helper.make_node("SquarePlus", ["t"], ["y"], domain="local"),
    ]
    model = make_model(nodes, {"x": (3,)}, {"y": 1}, functions=(function,))
    module = assert_right(model, {"x": np.array([1, -2, 3], "float32")})
    assert operators(module) == ["multiply", "add"] * 2


def test_operator_that_onnx_defines_by_others_uses_its_default_attributes(random: np.random.Generator) -> None:
    model = make_model([helper.make_node("MeanVarianceNormalization", ["x"], ["y"])], {"x": (2, 3, 4, 4)}, {"y": 4})
    assert_right(model, {"x": random.standard_normal((2, 3, 4, 4)).astype("float32")})


def test_expressions_carry_the_names_of_their_nodes() -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"], name="layer1/relu")], {"x": (3,)}, {"y": 1})
    module, _ = relay.frontend.from_onnx(model)
    assert module["main"].body.span.source_name.name == "layer1/relu"


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 13, 18])
def test_layers_of_old_and_new_opsets_agree_with_onnx_runtime(opset: int, random: np.random.Generator) -> None:
    """Softmax, Clip, Slice, Squeeze and ReduceSum changed their form between opsets."""
    nodes, weights = [], {"w": random.standard_normal((4, 3, 3, 3)).astype("float32")}
    nodes.append(helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]))
    if opset < 11:
        nodes.append(helper.make_node("Clip", ["c"], ["k"], min=0.0, max=1.5))
    else:
        weights |= {"low": np.array(0.0, "float32"), "high": np.array(1.5, "float32")}
        nodes.append(helper.make_node("Clip", ["c", "low", "high"], ["k"]))
    if opset < 10:
        nodes.append(helper.make_node("Slice", ["k"], ["s"], starts=[1, 0], ends=[3, -1], axes=[1, 2]))
    else:
        weights |= {"starts": np.array([1, 0]), "ends": np.array([3, -1]), "axes": np.array([1, 2])}
        nodes.append(helper.make_node("Slice", ["k", "starts", "ends", "axes"], ["s"]))
    if opset < 13:
        nodes.append(helper.make_node("ReduceSum", ["s"], ["r"], axes=[3], keepdims=1))
        nodes.append(helper.make_node("Squeeze", ["r"], ["q"], axes=[3]))
    else:
        weights["last"] = np.array([3])
        nodes.append(helper.make_node("ReduceSum", ["s", "last"], ["r"], keepdims=1))
        nodes.append(helper.make_node("Squeeze", ["r", "last"], ["q"]))
    nodes.append(helper.make_node("Softmax", ["q"], ["y"], axis=1))
    model = make_model(nodes, {"x": (2, 3, 8, 8)}, {"y": 3}, weights)
    model.opset_import[0].version = opset
    inputs = {"x": random.standard_normal((2, 3, 8, 8)).astype("float32")}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = run(*relay.frontend.from_onnx(model), inputs)
    np.testing.assert_allclose(found[0], session.run(None, inputs)[0], rtol=1e-4, atol=1e-6)


def test_the_models_output_names_reach_the_library(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["logits"]), helper.make_node("Softmax", ["logits"], ["probs"])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("probs", "logits")]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph(nodes, "names", inputs, outputs)
    mod, params = relay.frontend.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    relay.build(mod, "llvm", params=params).export_library(str(tmp_path / "named.so"))
    executor = tvm.runtime.GraphModule(tvm.runtime.load_module(tmp_path / "named.so")["default"](tvm.cpu(0)))
    x = np.array([[0, 1, 2], [-1, 5, 3]], "float32")
    found = executor.infer({"x": x})
    assert list(found) == ["probs", "logits"]
    np.testing.assert_array_equal(found["logits"], np.maximum(x, 0))
    np.testing.assert_allclose(found["probs"].sum(axis=1), 1, rtol=1e-6)
    assert executor.get_output_info()[0] == {"probs": (2, 3), "logits": (2, 3)}
