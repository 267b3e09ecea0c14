"""Numbers in a model that no operator can do with: an error names the node, the number, and what is expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype

from tilewright import relay
from tilewright.relay.frontend.onnx.context import OnnxImportError, ValueNeededError

Array = np.ndarray[Any, Any]
X = np.zeros((3, 4), "float32")
SIGNAL, IMAGE = np.zeros((1, 32, 1), "float32"), np.zeros((1, 1, 4, 4), "float32")
MEL = {"bins": 8, "length": 16, "rate": 8000, "low": np.float32(0), "high": np.float32(4000)}


def model(op_type: str, data: dict[str, Array], known: dict[str, Any], order: list[str], **attrs: Any) -> Any:
    """A node "it" of inputs ``data`` and initializers ``known``."""

    def described(name: str, array: Any) -> Any:
        return helper.make_tensor_value_info(name, np_dtype_to_tensor_dtype(array.dtype), array.shape)

    node = helper.make_node(op_type, order, ["y"], name="it", **attrs)
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in known.items()]
    result = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], "g", [described(*item) for item in data.items()], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize(
    ("op_type", "data", "order", "name", "value", "message"),
    [
        ("DFT", SIGNAL, "x n", "n", 0, r"the length \(input 1, 'n'\) is 0: expected 1 to"),
        ("DFT", SIGNAL, "x n", "n", 10**12, r"the length \(input 1, 'n'\) is 1000000000000: expected 1 to"),
        ("STFT", SIGNAL, "x n  size", "n", 0, r"the step \(input 1, 'n'\) is 0: expected 1 to"),
        ("STFT", SIGNAL, "x step  n", "n", 40, "a frame has 40 elements: expected at most 32"),
        ("CumSum", X, "x n", "n", -3, "axis -3 is out of range for a tensor of rank 2"),
        ("Pad", X, "x n", "n", [-9, 0, 0, 0], r"the pads \[-9, 0, 0, 0\] cut more than data of shape \(3, 4\) have"),
        ("Resize", IMAGE, "x   n", "n", [1, 1, -2, 4], r"the sizes are \[1, 1, -2, 4\]: expected numbers of 0"),
        ("Resize", IMAGE, "x  n", "n", np.float32([1, 1, np.nan, 2]), r"scales are \[1.0, 1.0, nan, 2.0\]: expected"),
        ("ConstantOfShape", None, "n", "n", [-1, 2], r"the shape \(-1, 2\): expected extents of 0 and more"),
        ("AffineGrid", np.zeros((1, 2, 3), "float32"), "x n", "n", [2, 1, 2, 3], "2 images: expected 1, as many as"),
        ("MelWeightMatrix", None, "n length rate low high", "n", 0, r"the number of bins \(input 0, 'n'\) is 0"),
        ("MelWeightMatrix", None, "bins length rate low n", "n", np.float32(9e9), "expected 0 to 4000.0, half of the"),
        ("MelWeightMatrix", None, "bins length rate n high", "n", np.float32(np.nan), "edges are nan and 4000.0 Hz"),
    ],
)  # fmt: skip
def test_a_number_that_cannot_be_is_told(
    op_type: str, data: Array | None, order: str, name: str, value: Any, message: str
) -> None:
    known = {k: v for k, v in {**MEL, "step": 4, "size": 8}.items() if k in order.split()} | {name: np.array(value)}
    wrong = model(op_type, {} if data is None else {"x": data}, known, order.split(" "))
    with pytest.raises(OnnxImportError, match=rf"ONNX node 'it' \({op_type}\): .*{message}"):
        relay.frontend.from_onnx(wrong)


@pytest.mark.parametrize(
    ("op_type", "data", "known", "order", "what"),
    [
        ("CumSum", X, {}, "x n", "the axis (input 1, 'n')"),
        ("DFT", SIGNAL, {}, "x n", "the length (input 1, 'n')"),
        ("STFT", SIGNAL, {"size": 8}, "x n  size", "the step (input 1, 'n')"),
        ("Dropout", X, {"r": np.float32(0.5)}, "x r n", "the training mode (input 2, 'n')"),
    ],
)
def test_a_number_that_must_be_known_is_told_with_its_input(
    op_type: str, data: Array, known: dict[str, Any], order: str, what: str
) -> None:
    number = np.array(0, "bool" if op_type == "Dropout" else "int64")
    late = model(op_type, {"x": data, "n": number}, known, order.split(" "))
    with pytest.raises(ValueNeededError) as error:
        relay.frontend.from_onnx(late)
    expected = (
        f"ONNX node 'it' ({op_type}): {what} must be a constant when the model is compiled, but is computed from "
    )
    assert str(error.value) == f"{expected}the model's input 'n'; store its value in the model, as an initializer"


def test_a_definition_by_other_operators_takes_constants() -> None:
    cropped = model("CenterCropPad", {"x": X}, {"n": np.array([5, 2])}, ["x", "n"])
    mod, _ = relay.frontend.from_onnx(cropped)
    assert relay.transform.InferType()(mod)["main"].ret_type.concrete_shape == (5, 2)
