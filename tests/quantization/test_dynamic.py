"""Dynamic quantization: the file that it makes, beside ONNX Runtime and numpy."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from tests.quantization.networks import network, products, samples
from tests.saturating import narrowed_weights

import tilewright
from tilewright.ir.errors import TilewrightError
from tilewright.quantization.measure import measure


def by_hand(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """The network with each product's data rounded to its own range, and weights to their channels', in float64."""
    w1, b1, w2, b2 = (numpy_helper.to_array(t).astype("float64") for t in model.graph.initializer)

    def data(a: np.ndarray) -> np.ndarray:
        step = (max(a.max(), 0) - min(a.min(), 0)) / 255
        zero = np.rint(-min(a.min(), 0) / step)
        return (np.clip(np.rint(a / step) + zero, 0, 255) - zero) * step

    def weight(w: np.ndarray) -> np.ndarray:
        step = np.abs(w).max(0) / 127
        return np.rint(w / step) * step

    hidden = np.maximum(data(x) @ weight(w1) + b1, 0)
    return data(hidden) @ weight(w2.T) + b2


@pytest.mark.parametrize("per_channel", [True, False])
def test_the_file_runs_the_same_in_onnx_runtime(per_channel: bool) -> None:
    model = products(16, 32)
    made = tilewright.quantize(model, dynamic=True, per_channel=per_channel)
    onnx.checker.check_model(made.model, full_check=True)
    kinds = [node.op_type for node in made.model.graph.node]
    assert kinds.count("MatMulInteger") == kinds.count("DynamicQuantizeLinear") == 2 and "MatMul" not in kinds
    data = samples(model, 1)[0]
    comparable = narrowed_weights(made.model)
    session = onnxruntime.InferenceSession(comparable.SerializeToString(), providers=["CPUExecutionProvider"])
    found = tilewright.compile(comparable)(**data)
    np.testing.assert_allclose(found, session.run(None, data)[0], rtol=0, atol=1e-5)
    if per_channel:
        found = tilewright.compile(made.model)(**data)
        np.testing.assert_allclose(found, by_hand(model, data["x"]), rtol=0, atol=0.02)


def test_products_of_the_same_data_quantize_it_once() -> None:
    model = network(
        "f (float[2, 8] x) => (float[2, 8] a, float[2, 8] b) { a = MatMul(x, v) b = MatMul(x, w) }",
        v=(8, 8), w=(8, 8),
    )  # fmt: skip
    made = tilewright.quantize(model, dynamic=True)
    assert [node.op_type for node in made.model.graph.node].count("DynamicQuantizeLinear") == 1


def test_convolutions_stay_in_float_with_a_reason() -> None:
    model = network(
        "f (float[1, 2, 4, 4] x) => (float[1, 5] y) { c = Conv(x, w) f = Flatten(c) y = MatMul(f, v) }",
        w=(3, 2, 3, 3), v=(12, 5),
    )  # fmt: skip
    made = tilewright.quantize(model, dynamic=True)
    assert made.plan.float_nodes["Conv_c"] == "ranges that are found while it runs are for matrix products"
    only = network("f (float[1, 2, 4, 4] x) => (float[1, 3, 2, 2] y) { y = Conv(x, w) }", w=(3, 2, 3, 3))
    with pytest.raises(TilewrightError, match="nothing to quantize"):
        tilewright.quantize(only, dynamic=True)


def test_layers_are_measured_where_samples_are_given() -> None:
    model = products(16, 32)
    data = samples(model)
    made = tilewright.quantize(model, data, dynamic=True)
    costs = measure(made, lambda stage, done, total: None, 1e9)
    assert {c.node for c in costs.layers} == {"MatMul_h", "Gemm_y"}
    assert all(0 < c.error < 0.05 and c.decibels > 25 for c in costs.layers)
    assert all(c.int8_us is not None for c in costs.layers)
