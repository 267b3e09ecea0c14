"""What of a quantized network is computed on integers, and the reason of each operator that is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tvm
from tilewright import relay
from tilewright.relay.qnn.decisions import Decision, collecting, summary
from tilewright.relay.qnn.transform import CanonicalizeOps

PARAMETERS = {"s": np.float32(0.1), "z": np.uint8(3), "wz": np.int8(0), "z16": np.uint16(9)}
PARAMETERS |= {"w": np.ones((4, 4), "int8"), "steps": np.full(4, 0.1, "float32"), "zeros": np.zeros(4, "uint8")}
node = helper.make_node


def decided(*nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",), **more: Any) -> list[Decision]:
    """What becomes of a network of inputs x (uint8), f (float32) and h (uint16)."""
    kinds = {"x": TensorProto.UINT8, "f": TensorProto.FLOAT, "h": TensorProto.UINT16}
    used = {name for n in nodes for name in n.input}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, kind, (2, 4)) for name, kind in kinds.items() if name in used],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(v, k) for k, v in (PARAMETERS | more).items() if k in used],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with collecting() as found:
        CanonicalizeOps()(relay.frontend.from_onnx(model, freeze_params=True)[0])
    return found


X = node("DequantizeLinear", ["x", "s", "z"], ["d"])
W = node("DequantizeLinear", ["w", "s", "wz"], ["v"])
PRODUCT = node("MatMul", ["d", "v"], ["p"], name="layer")


def test_a_product_between_quantizers_is_on_integers() -> None:
    assert decided(X, W, PRODUCT, node("QuantizeLinear", ["p", "s", "z"], ["y"])) == [Decision("layer", "nn.dense")]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([X, node("Erf", ["d"], ["y"], name="layer")], "its result is not quantized"),
        (
            [X, node("Sigmoid", ["d"], ["p"], name="layer"), node("QuantizeLinear", ["p", "s", "z16"], ["y"])],
            "its result is uint16",
        ),
        (
            [node("DequantizeLinear", ["h", "s", "z16"], ["d"]), node("Sigmoid", ["d"], ["p"], name="layer"),
             node("QuantizeLinear", ["p", "s", "z"], ["y"])],
            "its data are uint16, and sums of products are exact of 8 bits",
        ),
        (
            [node("DequantizeLinear", ["x", "steps", "zeros"], ["d"], axis=1), node("Tanh", ["d"], ["p"], name="layer"),
             node("QuantizeLinear", ["p", "s", "z"], ["y"])],
            "its data have a scale for each entry of an axis",
        ),
        (
            [W, node("MatMul", ["f", "v"], ["p"], name="layer"), node("QuantizeLinear", ["p", "s", "z"], ["y"])],
            "one of its operands is not quantized",
        ),
        (
            [X, node("CumSum", ["d", "axis"], ["p"], name="layer"), node("QuantizeLinear", ["p", "s", "z"], ["y"])],
            "cumsum has no form on integers",
        ),
    ],
)  # fmt: skip
def test_each_operator_in_float32_has_its_reason(nodes: list[onnx.NodeProto], reason: str) -> None:
    (found,) = decided(*nodes, axis=np.int64(1))
    assert (found.node, found.reason) == ("layer", reason)


def test_a_result_that_is_read_in_float32_too() -> None:
    nodes = [X, node("Sigmoid", ["d"], ["p"], name="layer"), node("QuantizeLinear", ["p", "s", "z"], ["y"])]
    (found,) = decided(*nodes, outputs=("y", "p"))
    assert found.reason == "its result is read in float32 too"


def test_the_summary_counts_by_kind_and_names_the_first() -> None:
    decisions = [Decision("a", "nn.conv2d"), Decision("b", "nn.conv2d", "of this"), Decision("c", "nn.dense")]
    decisions += [Decision(f"e{i}", "cumsum", "of that") for i in range(4)]
    assert summary(decisions, 2) == [
        "1 of 2 convolutions, 1 of 1 matrix products, 0 of 4 others on integers",
        "b (nn.conv2d) computes in float32: of this",
        "e0 (cumsum) computes in float32: of that",
        "and 3 more in float32",
    ]
    assert summary([]) == []


def test_a_model_reports_what_was_quantized() -> None:
    x = relay.var("x", shape=(2, 4), dtype="uint8")
    scale, zero = relay.const(np.float32(0.1)), relay.const(np.uint8(3))
    numbers = relay.qnn.op.dequantize(x, scale, zero)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.cumsum(numbers, axis=1)))
    assert "cumsum (cumsum) computes in float32: its result is not quantized" in tvm.compile(mod).report()
