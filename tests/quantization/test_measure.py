"""The table of layers: what one layer costs, beside the same layer quantized alone by the reference evaluator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.quantization.networks import network, residual, samples

import tilewright
from tilewright.ir.errors import TilewrightError
from tilewright.quantization.measure import Costs, measure
from tilewright.quantization.static import Quantized
from tilewright.quantization.write import Scale


def silent(stage: str, done: int, total: int) -> None:
    assert stage and done >= 0 and total >= 0


@pytest.fixture(scope="module")
def measured() -> tuple[onnx.ModelProto, Quantized, Costs]:
    model = residual()
    made = tilewright.quantize(model, samples(model))
    return model, made, measure(made, silent, 1e9)


def test_every_layer_has_a_row_those_with_the_largest_error_first(
    measured: tuple[onnx.ModelProto, Quantized, Costs],
) -> None:
    _, _, costs = measured
    assert {c.node for c in costs.layers} == {"Conv_a", "Conv_c", "Gemm_y"}
    errors = [c.error for c in costs.layers]
    assert errors == sorted(errors, reverse=True) and min(errors) > 0
    assert costs.samples == costs.layer_samples == 4


def test_a_layers_error_is_that_of_a_model_with_it_alone_quantized(
    measured: tuple[onnx.ModelProto, Quantized, Costs],
) -> None:
    model, made, costs = measured
    data = samples(model)
    weight = numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == "w2"))
    steps = np.abs(weight).max((1, 2, 3), keepdims=True) / 127
    alone = onnx.ModelProto()
    alone.CopyFrom(model)
    next(t for t in alone.graph.initializer if t.name == "w2").CopyFrom(
        numpy_helper.from_array((np.rint(weight / steps) * steps).astype("float32"), "w2")
    )
    conv = next(i for i, node in enumerate(alone.graph.node) if node.op_type == "Conv" and node.output[0] == "c")
    for place, name in ((conv + 1, "c"), (conv, "p")):
        insert_pair(alone.graph, place, name, made.scales[name], within="c" if name == "p" else "s")
    exact, found = ReferenceEvaluator(model), ReferenceEvaluator(alone)
    expected = np.stack([exact.run(None, one)[0] for one in data])
    apart = np.stack([found.run(None, one)[0] for one in data]) - expected
    row = next(c for c in costs.layers if c.node == "Conv_c")
    assert row.error == pytest.approx(float(np.sqrt((apart**2).sum() / (expected**2).sum())), rel=0.02)


def insert_pair(graph: onnx.GraphProto, place: int, name: str, scale: Scale, within: str) -> None:
    """Quantize and dequantize a tensor for the node that makes ``within``."""
    graph.initializer.append(numpy_helper.from_array(np.array(scale.scale), f"{name} scale"))
    graph.initializer.append(numpy_helper.from_array(np.array(scale.zero, scale.dtype), f"{name} zero"))
    rest = [f"{name} scale", f"{name} zero"]
    for node in graph.node:
        if within in node.output:
            node.input[:] = [f"{name} back" if read == name else read for read in node.input]
    graph.node.insert(place, onnx.helper.make_node("DequantizeLinear", [f"{name} whole", *rest], [f"{name} back"]))
    graph.node.insert(place, onnx.helper.make_node("QuantizeLinear", [name, *rest], [f"{name} whole"]))


def test_times_are_of_the_layers_own_kernels(measured: tuple[onnx.ModelProto, Quantized, Costs]) -> None:
    _, _, costs = measured
    for row in costs.layers:
        assert row.float_us is not None and row.int8_us is not None and row.saved_us == row.float_us - row.int8_us
    assert sum(row.float_us or 0 for row in costs.layers) <= costs.times[0] * 1.0001


def test_accuracy_is_told_where_labels_are() -> None:
    model = residual()
    data = samples(model)
    exact = ReferenceEvaluator(model)
    labels = [int(exact.run(None, one)[0].argmax()) for one in data]
    labels[0] = (labels[0] + 1) % 10
    costs = measure(tilewright.quantize(model, data, labels=labels), silent)
    assert costs.accuracy is not None and costs.accuracy[0] == 0.75
    assert all(c.accuracy_loss is not None for c in costs.layers)


def test_layers_of_a_model_with_named_dimensions_are_measured() -> None:
    model = network(
        "f (float[batch, 7] x) => (float[batch, 3] y) { h = MatMul(x, w) r = Relu(h) y = MatMul(r, v) }",
        w=(7, 9), v=(9, 3),
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal((40, 7)).astype("float32")
    made = tilewright.quantize(model, {"x": x}, labels=np.arange(40) % 3)
    costs = measure(made, silent, 1e9)
    assert costs.samples == costs.layer_samples == 3 and costs.accuracy is not None
    assert all(c.float_us is not None and c.int8_us is not None for c in costs.layers)
    assert all(0 < c.error < 0.05 for c in costs.layers)


def test_labels_of_another_number_are_refused() -> None:
    model = residual()
    made = tilewright.quantize(model, samples(model), labels=[1, 2, 3])
    with pytest.raises(TilewrightError, match="there are 3 labels, and the model gave 4 answers"):
        measure(made, silent)
