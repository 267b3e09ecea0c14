"""Of a product of which one row is read only that row is computed, where how many rows there are has a name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from tests.relay.frontend.dynamic_models import machine_of, outputs_of

from tilewright import relay
from tilewright.relay import transform

HEAD = """<ir_version: 8, opset_import: ["" : 17]> head (float[batch, length, 6] x) => (float[a, b, c] y)
<float[6, 9] w, int64[1] last = {-1}, int64[1] end = {9223372036854775807}, int64[1] axis = {1}, int64 place = {-1},
int64[1] front = {0}, float cap = {2.0}> {"""
PRODUCT = "h = Relu(x) all = MatMul(h, w)"
READS = {
    "a slice": "y = Slice(all, last, end, axis)",
    "an entry": "y = Gather<axis = 1>(all, place)",
    "a list of one": "y = Gather<axis = 1>(all, last)",
    "behind a cap": "s = Div(all, cap) t = Tanh(s) u = Mul(t, cap) y = Slice(u, last, end, axis)",
    "computed": "n = Shape(x) m = Gather(n, axis) i = Add(m, last) y = Gather<axis = 1>(all, i)",
}
STAYS = {
    "columns": "two = Constant<value_ints = [2]>() y = Slice(all, last, end, two)",
    "several rows": "y = Slice(all, front, last, axis)",
}


def model_of(body: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"{HEAD} {PRODUCT} {body} }}")
    weight = np.random.default_rng(0).standard_normal((6, 9)).astype("float32")
    kept = [t for t in model.graph.initializer if t.name != "w"]
    del model.graph.initializer[:]
    model.graph.initializer.extend([*kept, onnx.numpy_helper.from_array(weight, "w")])
    return model


def rows_of(model: onnx.ModelProto) -> str:
    """Return how many rows the product has."""
    mod = transform.InferType()(relay.frontend.from_onnx(model)[0])
    found: list[str] = []

    def visit(node: object) -> None:
        if isinstance(node, relay.Call) and getattr(node.op, "name", "") == "nn.dense":
            found.append(str(node.checked_type.shape[0]))

    relay.analysis.post_order_visit(mod["main"], visit)
    (rows,) = found
    return rows


@pytest.mark.parametrize("read", READS)
def test_one_row_of_each_sequence_is_multiplied(read: str) -> None:
    model = model_of(READS[read])
    assert "length" not in rows_of(model)
    machine, reference = machine_of(model), ReferenceEvaluator(model)
    for shape in ((1, 1, 6), (3, 5, 6)):
        x = np.random.default_rng(1).standard_normal(shape).astype("float32")
        (found,), (wanted,) = outputs_of(machine, {"x": x}), reference.run(None, {"x": x})
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("read", STAYS)
def test_all_rows_are_multiplied_for_others(read: str) -> None:
    assert "length" in rows_of(model_of(STAYS[read]))
