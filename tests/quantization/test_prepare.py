"""A model made ready for quantizing computes what it did, in a form with plain weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.quantization.networks import network, samples

import tilewright
from tilewright.quantization.prepare import prepared


def same(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the prepared model, which gives what the model gives."""
    made = prepared(model)
    onnx.checker.check_model(made)
    data = samples(model, 1)[0]
    for found, expected in zip(
        ReferenceEvaluator(made).run(None, data), ReferenceEvaluator(model).run(None, data), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    return made


@pytest.mark.parametrize("attributes", ["alpha=0.5", "beta=2.0", "alpha=3.0, beta=0.25, transB=1"])
@pytest.mark.parametrize("bias", [(1, 5), (5,)])
def test_factors_of_gemm_are_in_its_constants(attributes: str, bias: tuple[int, ...]) -> None:
    weight = (5, 6) if "transB" in attributes else (6, 5)
    model = network(f"f (float[2, 6] x) => (float[2, 5] y) {{ y = Gemm<{attributes}>(x, w, b) }}", w=weight, b=bias)
    made = same(model)
    assert len(tilewright.quantize(model, samples(model)).plan.layers) == 1
    assert all(a.name not in ("alpha",) for a in made.graph.node[0].attribute)


def test_a_bias_of_every_element_stays_as_it_is() -> None:
    model = network("f (float[2, 6] x) => (float[2, 5] y) { y = Gemm<beta=2.0>(x, w, b) }", w=(6, 5), b=(2, 5))
    same(model)


def test_constants_are_initializers_and_what_rearranges_them_is_done() -> None:
    model = network(
        """f (float[2, 6] x) => (float[2, 5] y) {
          t = Transpose(w)
          one = Constant<value_float=1.0>()
          a = MatMul(x, t)
          y = Add(a, one)
        }""",
        w=(5, 6),
    )  # fmt: skip
    made = same(model)
    assert [node.op_type for node in made.graph.node] == ["MatMul", "Add"]


def test_old_opsets_and_weights_that_are_inputs_too_are_brought_up() -> None:
    model = network("f (float[1, 6] x) => (float[1, 5] y) { y = Gemm(x, w, b) }", w=(6, 5), b=(5,))
    data = samples(model)
    model.graph.input.extend(
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in {"w": [6, 5], "b": [5]}.items()
    )
    model.ir_version, model.opset_import[0].version = 3, 9
    made = tilewright.quantize(model, data)
    onnx.checker.check_model(made.model)
    assert [v.name for v in made.model.graph.input] == ["x"]
    (exact,) = ReferenceEvaluator(model).run(
        None, {**data[0], **{t.name: numpy_helper.to_array(t) for t in model.graph.initializer}}
    )
    assert np.abs(tilewright.compile(made.model)(**data[0]) - exact).max() < 0.03 * np.abs(exact).max()


def test_nodes_without_names_get_one_each() -> None:
    model = network("f (float[1, 6] x) => (float[1, 6] y) { a = Relu(x) b = Neg(a) y = Relu(b) }")
    model.graph.node[0].name = model.graph.node[2].name = "same"
    names = [node.name for node in same(model).graph.node]
    assert len(set(names)) == 3 and names[0] == "same"
