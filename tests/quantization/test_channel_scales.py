"""Channels scaled by data: the float model computes the same, and few bits err less; beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from tests.quantization.networks import network

import tilewright
from tilewright.quantization import quantize_weights, weights

Array = np.ndarray[Any, Any]
WIDTH, INNER = 64, 96
SIZES = np.exp(1.2 * np.random.default_rng(9).standard_normal(WIDTH)).astype("float32")  # of channels behind norms

BODIES = {
    "a norm": "h = LayerNormalization(x, g, b)",
    "a norm without a bias": "h = LayerNormalization(x, g)",
    "a norm of ONNX Runtime": "h = SimplifiedLayerNormalization(x, g)",
    "a row": "t = Tanh(x)\n h = Mul(t, g)",
    "a norm in parts": "t = Tanh(x)\n m = Mul(t, g)\n h = Add(m, b)",
    "a product": "h = MatMul(x, w0)",
    "a product with a bias": "p = MatMul(x, w0)\n q = Add(p, b)\n h = Relu(q)",
    "a product of ONNX's other kind": "h = Gemm<transB = 1>(x, w0, b)",
    "a gate": "p = MatMul(x, w0)\n t = Sigmoid(x)\n h = Mul(t, p)",
}
STAYS = {
    "an input": "h = Identity(x)",
    "a function": "p = MatMul(x, w0)\n h = Tanh(p)",
    "data that others read": "h = LayerNormalization(x, g)\n z = Exp(h)",
    "a row that others read": "t = Tanh(x)\n h = Mul(t, g)\n z = Add(t, g)",
    "a sum": "p = MatMul(x, w0)\n h = Add(p, x)",
}


def model(body: str, outputs: str = "") -> onnx.ModelProto:
    """Two products of what a body makes, of channels of different sizes."""
    made = network(
        f"""f (float[5, {WIDTH}] x) => (float[5, {INNER}] y{outputs}) {{
          {body}
          k = MatMul(h, w1)
          v = Gemm<transB = 1>(h, w2, b2)
          y = Add(k, v)
        }}""",
        g=(WIDTH,), b=(WIDTH,), w0=(WIDTH, WIDTH), w1=(WIDTH, INNER), w2=(INNER, WIDTH), b2=(INNER,),
    )  # fmt: skip
    read = {name for node in made.graph.node for name in node.input}
    kept = [t for t in made.graph.initializer if t.name in read]
    del made.graph.initializer[:]
    for tensor in kept:
        array = numpy_helper.to_array(tensor)
        if tensor.name == "g":
            array = SIZES
        if tensor.name == "w0":
            array = array * (SIZES[:, None] if "Gemm<transB = 1>(x" in body else SIZES)
        made.graph.initializer.append(numpy_helper.from_array(array.astype("float32"), tensor.name))
    return made


def data(count: int, seed: int = 0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal((5, WIDTH)).astype("float32")} for _ in range(count)]


def run(made: onnx.ModelProto, values: dict[str, Array]) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(["y"], values)[0]


def error(made: onnx.ModelProto, of: onnx.ModelProto) -> float:
    pairs = [(run(made, v), run(of, v)) for v in data(20, seed=1)]
    return float(np.mean([np.square(a - b).mean() for a, b in pairs]) ** 0.5)


def constants(made: onnx.ModelProto) -> dict[str, Array]:
    return {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}


def in_float(made: onnx.ModelProto) -> list[str]:
    """The product that makes the data, whose own error is none of scaling."""
    return [f"{node.op_type}_{node.output[0]}" for node in made.graph.node if "w0" in node.input]


@pytest.mark.parametrize("name", BODIES)
def test_scales_are_folded_into_what_makes_the_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = model(BODIES[name])
    options: dict[str, Any] = {"block": 16, "method": "awq", "accuracy_level": 1, "exclude": in_float(original)}
    made = quantize_weights(original, "int4", data(30), **options)
    for values in data(3, seed=2):
        wanted = run(original, values)
        np.testing.assert_allclose(run(made.float_model, values), wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
        wanted = run(made.model, values)
        found = tilewright.compile(made.model)(**values)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
    monkeypatch.setattr(weights, "scale_channels", lambda *unused: None)
    clipped = quantize_weights(original, "int4", data(30), **options)
    assert error(made.model, original) < 0.9 * error(clipped.model, original)


@pytest.mark.parametrize("name", STAYS)
def test_what_cannot_be_scaled_stays(name: str) -> None:
    original = model(STAYS[name], ", z" if "z =" in STAYS[name] else "")
    made = quantize_weights(original, "int4", data(5), block=16, method="awq")
    for key, array in constants(original).items():
        np.testing.assert_array_equal(constants(made.float_model)[key], array, err_msg=key)


def test_weights_that_two_products_share_stay() -> None:
    original = model("h = LayerNormalization(x, g)\n z = MatMul(x, w1)", ", z")
    made = quantize_weights(original, "int4", data(5), block=16, method="awq")
    np.testing.assert_array_equal(constants(made.float_model)["g"], SIZES)
