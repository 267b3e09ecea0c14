"""Operators on int8 in cuBLASLt's orders give what their definition in numpy gives; ONNX Runtime has them on GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tests.relay.frontend.test_onnx_quantized import integers, message_of, model_of, scale

from tilewright.relay.frontend.onnx import backend

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(19)
COLUMNS, ROWS, BLOCKS = range(3)


def run(operator: str, inputs: list[Array | None], kind: int = TensorProto.INT8, **options: Any) -> Array:
    model, feeds = model_of(operator, inputs, **options)
    model.graph.output[0].type.tensor_type.elem_type = kind
    (found,) = backend.prepare(model).run(feeds)
    return np.asarray(found)


def steps(numbers: Array, unit: float) -> Array:
    return np.clip(np.rint(numbers / np.float32(unit)), -128, 127).astype("int8")


def laid(data: Array, order: int) -> Array:
    """Matrices in an order, with the shape that they have."""
    *batch, rows, columns = data.shape
    if order == COLUMNS:
        return np.ascontiguousarray(data.swapaxes(-1, -2)).reshape(data.shape)
    if order == BLOCKS:
        blocks = data.reshape(*batch, rows, columns // 32, 32).swapaxes(-2, -3)
        return np.ascontiguousarray(blocks).reshape(data.shape)
    return data


def near(have: Array, want: Array) -> None:
    assert have.shape == want.shape and have.dtype == want.dtype
    assert np.abs(have.astype(int) - want.astype(int)).max(initial=0) <= 1


@pytest.mark.parametrize("source", [COLUMNS, ROWS, BLOCKS])
@pytest.mark.parametrize("target", [COLUMNS, ROWS, BLOCKS])
def test_orders_of_matrices(source: int, target: int) -> None:
    data = integers("int8", 2, 5, 64)
    orders = {"order_input": source, "order_output": target}
    numbers = data.astype("float32") * np.float32(0.25)
    have = run("QuantizeWithOrder", [laid(numbers, source), scale(0.25)], **orders)
    np.testing.assert_array_equal(have, laid(data, target))
    found = run("DequantizeWithOrder", [laid(data, source), scale(0.25)], TensorProto.FLOAT, to=1, **orders)
    np.testing.assert_array_equal(found, laid(numbers, target))


def test_orders_of_half_precision() -> None:
    data = integers("int8", 3, 7)
    orders = {"order_input": ROWS, "order_output": COLUMNS}
    found = run("DequantizeWithOrder", [data, scale(0.5)], TensorProto.FLOAT16, to=10, **orders)
    np.testing.assert_array_equal(found, laid(data.astype("float16") * np.float16(0.5), COLUMNS))


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("more", [False, True])
def test_products(batch: tuple[int, ...], each: bool, more: bool) -> None:
    a, b = integers("int8", *batch, 3, 6), integers("int8", 6, 5)
    b_scale = RNG.uniform(0.01, 0.02, 5).astype("float32") if each else scale(0.015)
    bias, c = RNG.uniform(-9, 9, 5).astype("float32"), integers("int8", *batch, 3, 5)
    inputs = [a, scale(0.02), laid(b, COLUMNS), b_scale, scale(0.4), *([bias, c, scale(0.1)] if more else [])]
    total = (a.astype(int) @ b.astype(int)) * (np.float32(0.02) * b_scale)
    total = total + (bias * np.float32(0.4) + c * np.float32(0.1) if more else 0)
    near(run("QOrderedMatMul", inputs, order_A=ROWS, order_B=COLUMNS, order_Y=ROWS), steps(total, 0.4))


def test_gelu() -> None:
    from scipy.special import erf

    data = np.arange(-128, 128).astype("int8").reshape(4, 64)
    x = data.astype("float64") * np.float32(0.05)
    want = steps(x * (1 + erf(x / np.sqrt(2))) / 2, 0.04)
    near(run("QOrderedGelu", [data, scale(0.05), scale(0.04)]), want)


@pytest.mark.parametrize("order", [ROWS, BLOCKS])
@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_layer_normalization(order: int, kind: str) -> None:
    data = integers("int8", 2, 3, 32)
    gamma, beta = (RNG.standard_normal(32).astype(kind) for _ in range(2))
    x = data.astype("float64") * np.float32(0.05)
    wide = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    inputs = [laid(data, order), scale(0.05), gamma, beta, scale(0.03)]
    have = run("QOrderedLayerNormalization", inputs, order_X=order, order_Y=order, epsilon=1e-5)
    near(have, laid(steps(wide * gamma + beta, 0.03), order))


@pytest.mark.parametrize("masked", [False, True])
def test_attention(masked: bool) -> None:
    batch, length, width, heads = 2, 4, 6, 2
    units = {"x": 0.02, "q": 0.05, "k": 0.05, "v": 0.05, "w": 0.01, "s": 0.2, "p": 1 / 127, "y": 0.03}
    data, weights = integers("int8", batch, length, width), [integers("int8", width, width) for _ in "qkv"]
    biases = [RNG.uniform(-1, 1, width).astype("float32") for _ in "qkv"]
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], "int32") if masked else np.ones((2, 4), "int32")
    inputs = [data, scale(units["x"]), *(scale(units[n]) for n in "qkv"), *(laid(w, COLUMNS) for w in weights)]
    inputs += [*[scale(units["w"])] * 3, *biases, scale(units["s"]), scale(units["p"]), scale(units["y"])]

    def rounded(value: Array, name: str) -> Array:
        return steps(value, units[name]).astype("float64") * np.float32(units[name])

    x, parts = data * np.float32(units["x"]), []
    for weight, bias, name in zip(weights, biases, "qkv", strict=True):
        part = rounded(x @ (weight * np.float32(units["w"])) + bias, name)
        parts.append(part.reshape(batch, length, heads, -1).swapaxes(1, 2))
    q, k, v = parts
    scores = rounded(q @ k.swapaxes(2, 3), "s") / np.sqrt(width // heads) + (mask[:, None, None] - 1) * 10000.0
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    found = rounded(powers / powers.sum(-1, keepdims=True), "p") @ v
    want = steps(found.swapaxes(1, 2).reshape(data.shape), units["y"])
    orders = {"order_input": ROWS, "order_weight": COLUMNS, "order_output": ROWS, "num_heads": heads}
    have = run("QOrderedAttention", [*inputs, *([mask] if masked else [])], **orders)
    assert np.abs(have.astype(int) - want.astype(int)).max() <= 2  # a step of the scores is several of the result


def test_orders_of_tensor_cores_are_refused() -> None:
    inputs = [integers("int8", 4, 32), scale(1), integers("int8", 32, 8), scale(1), scale(1)]
    model, _ = model_of("QOrderedMatMul", inputs, order_A=2, order_B=3, order_Y=2)
    assert "attribute 'order_A' is 2; supported: 1" in message_of(model)
    model, _ = model_of("QuantizeWithOrder", [np.ones((2, 8), "float32"), scale(1)], order_input=1, order_output=2)
    assert "8 columns do not divide into the blocks of 32" in message_of(model)
