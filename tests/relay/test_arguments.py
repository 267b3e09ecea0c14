"""What ``from_onnx``, ``PassContext`` and ``relay.build`` are given is checked, and the message says what they take."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tvm
from tilewright import relay
from tilewright.relay.build_module import optimize


def relu_model() -> onnx.ModelProto:
    """x -> Relu -> y, of the shape (batch, 3)."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("level", ["3", 2.5, 3.0, -1, 5, 10**30, True, None, np.float32(2)])
def test_opt_level_is_a_whole_number_in_range(level: Any) -> None:
    with pytest.raises(tvm.TVMError, match="opt_level is a whole number from 0 to 4, not "):
        tvm.transform.PassContext(opt_level=level)


@pytest.mark.parametrize("level", [0, 4, np.int64(3)])
def test_opt_levels_in_range_are_taken(level: Any) -> None:
    assert tvm.transform.PassContext(opt_level=level).opt_level == level


@pytest.mark.parametrize("argument", ["required_pass", "disabled_pass"])
@pytest.mark.parametrize("names", ["FuseOps", [1], [b"FuseOps"]])
def test_passes_are_named_in_a_list(argument: str, names: Any) -> None:
    with pytest.raises(tvm.TVMError, match=f"{argument} is a list of names"):
        tvm.transform.PassContext(**{argument: names})


def test_config_is_a_mapping() -> None:
    with pytest.raises(tvm.TVMError, match="config is a mapping"):
        tvm.transform.PassContext(config=["relay.FuseOps.max_depth"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "shape", [(1, 3), [("x", (1, 3))], "x:1,3", {"x": 3}, {"x": "1,3"}, {"x": (1.5, 3)}, {"x": (True, 3)}, {"x": None}]
)
def test_shapes_are_a_mapping_of_sequences_of_whole_numbers(shape: Any) -> None:
    with pytest.raises(tvm.TVMError, match=r"shape is a mapping|the shape of 'x' is a sequence of whole numbers"):
        relay.frontend.from_onnx(relu_model(), shape)


@pytest.mark.parametrize("shape", [{"x": (2, 3)}, {"x": [np.int64(2), 3]}, {"x": np.zeros((2, 3)).shape}])
def test_shapes_of_any_whole_numbers_are_taken(shape: Any) -> None:
    mod, _ = relay.frontend.from_onnx(relu_model(), shape)
    assert "Tensor[(2, 3), float32]" in str(mod)


def test_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.onnx", str(tmp_path / "none.onnx")):
        with pytest.raises(tvm.TVMError, match=r"none\.onnx: no such file"):
            relay.frontend.from_onnx(path)
    with pytest.raises(tvm.TVMError, match="is a directory"):
        relay.frontend.from_onnx(tmp_path)


def test_what_is_no_model_is_refused_with_a_remedy() -> None:
    model = relu_model()
    for given, words in (
        (model.SerializeToString(), "load_model_from_string"),
        (model.graph, "make_model"),
        (None, "NoneType"),
        (3, "builtins.int"),
    ):
        with pytest.raises(tvm.TVMError, match=f"takes an onnx.ModelProto or the path of a file, not .*{words}"):
            relay.frontend.from_onnx(given)  # type: ignore[arg-type]


def test_a_torch_module_is_to_be_exported_first() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(tvm.TVMError, match=r"not torch\..*torch.onnx.export"):
        relay.frontend.from_onnx(torch.nn.Linear(2, 3))


def dense() -> tvm.IRModule:
    x, weight = relay.var("x", shape=(1, 4)), relay.var("weight", shape=(3, 4))
    return tvm.IRModule.from_expr(relay.Function([x, weight], relay.nn.dense(x, weight)))


@pytest.mark.parametrize("params", [[("weight", np.ones((3, 4), "float32"))], "weight", {1, 2}, 7])
def test_params_are_a_mapping(params: Any) -> None:
    with pytest.raises(tvm.TVMError, match="params is a mapping of names to arrays"):
        relay.build(dense(), "llvm", params=params)


def test_unknown_params_are_warned_of_once_with_the_name_that_was_meant() -> None:
    array = np.ones((3, 4), "float32")
    with pytest.warns(UserWarning, match=r"'wieght' \(did you mean 'weight'\?\), 'q'") as caught:
        optimize(dense(), "llvm", {"wieght": array, "q": array})
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="'e' and 15 more"):
        optimize(dense(), "llvm", {chr(97 + i): array for i in range(20)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimize(dense(), "llvm", {"weight": array})


def test_the_dtype_of_a_constant_may_be_a_scalar_type() -> None:
    for const in (relay.const, relay.op.const):
        assert const(1, relay.scalar_type("int8")).tensor_type == relay.TensorType((), "int8")
