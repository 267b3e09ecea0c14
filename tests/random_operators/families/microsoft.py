"""Operators of com.microsoft that optimizers and quantizers of ONNX Runtime write. ONNX Runtime is their one oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
from tests.random_operators.case import Graph, Tolerance
from tests.random_operators.draw import Draw
from tests.random_operators.families.linear import fitting, window
from tests.random_operators.families.microsoft_attention import ATTENTION

_DOMAIN = "com.microsoft"
_SIDES = (1, 2, 3, 5, 8, 17)
_CLOSE = Tolerance("close", 128)


def microsoft(g: Graph) -> Tolerance:
    """A case of one of the operators."""
    operator, inputs, attributes = g.draw.of(_conv, _gemm, _integers, _dynamic, _rotary, _few_bits, *ATTENTION)(g)
    outputs = 3 if "Attention" in operator and attributes.get("num_heads") and len(inputs) > 5 else 1
    for name in g.emit(inputs, outputs, operator=operator, domain=_DOMAIN, **attributes):
        g.declared[name] = TensorProto.FLOAT
    return _CLOSE


_Node = tuple[str, list[str], dict[str, Any]]

_ACTIVATIONS: dict[str, tuple[float, ...]] = {
    "Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": (0.25,), "HardSigmoid": (0.25, 0.5), "Clip": (-1.0, 2.0),
}  # fmt: skip


def _floats(g: Graph, *shape: int) -> str:
    return g.data("float32", shape, "mild")


def _conv(g: Graph) -> _Node:
    rank = g.draw.of(2, 1)
    attributes, group = window(g, rank, operator="Conv"), g.draw.of(1, 2)
    channels, outputs = group * g.draw.of(1, 3, 8), group * g.draw.of(1, 2, 8)
    data = (g.draw.of(1, 2), channels, *fitting(g, rank, attributes))
    inputs = [_floats(g, *data), _floats(g, outputs, channels // group, *attributes["kernel_shape"])]
    if g.draw.of(False, True):
        inputs.append(_floats(g, outputs))
    name = g.draw.of(*_ACTIVATIONS)
    attributes |= {"group": group, "activation": name}
    if _ACTIVATIONS[name]:
        attributes["activation_params"] = _ACTIVATIONS[name]
    return "FusedConv", inputs, attributes


def _gemm(g: Graph) -> _Node:
    rows, inner, columns = (g.draw.of(*_SIDES) for _ in range(3))
    attributes: dict[str, Any] = {name: g.draw.of(0, 1) for name in g.draw.some(("transA", "transB"))}
    attributes |= {name: g.draw.of(1.0, 0.5, -2.0) for name in g.draw.some(("alpha", "beta"))}
    left = (inner, rows) if attributes.get("transA") else (rows, inner)
    right = (columns, inner) if attributes.get("transB") else (inner, columns)
    inputs = [_floats(g, *left), _floats(g, *right)]
    if g.draw.of(False, True):
        inputs.append(_floats(g, *g.draw.of((rows, columns), (columns,), (1, columns), (rows, 1))))
    name = g.draw.of("Relu", "Tanh", "Sigmoid", "LeakyRelu")
    attributes["activation"] = name
    if name == "LeakyRelu":
        attributes["activation_alpha"] = 0.25
    return "FusedGemm", inputs, attributes


def _scales(draw: Draw, *shape: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(draw.below(1 << 16))
    return (2.0 ** rng.integers(-3, 3, shape)).astype("float32")


def _weight(g: Graph, inner: int, columns: int) -> tuple[list[str], list[str]]:
    """A quantized matrix with its scale; and its zero point, or the empty name."""
    dtype, each = g.draw.of("int8", "uint8"), g.draw.of((), (columns,))
    point = g.fixed(g.draw.array(dtype, each, "mild")) if g.draw.of(False, True) else ""
    return [g.fixed(g.draw.array(dtype, (inner, columns))), g.fixed(_scales(g.draw, *each))], [point]


def _integers(g: Graph) -> _Node:
    rows, inner, columns = (g.draw.of(*_SIDES) for _ in range(3))
    kind = g.draw.of("uint8", "int8")
    (weight, scale), points = _weight(g, inner, columns)
    batch = g.draw.of((), (2,))
    inputs = [g.data(kind, (*batch, rows, inner)), weight, g.input(_scales(g.draw)), scale]
    inputs += [g.input(g.draw.array(kind, (), "mild")) if g.draw.of(False, True) else "", *points]
    return "MatMulIntegerToFloat", [*inputs, _floats(g, columns) if g.draw.of(False, True) else ""], {}


def _dynamic(g: Graph) -> _Node:
    """Of whole numbers, so that what is rounded has one right answer."""
    rows, inner, columns = (g.draw.of(*_SIDES) for _ in range(3))
    low, high = g.draw.of((-40, 60), (0, 60), (-40, 0), (0, 1))
    weight, points = _weight(g, inner, columns)
    inputs = [g.input(g.draw.integers("float32", (rows, inner), low, high)), *weight, *points]
    return "DynamicQuantizeMatMul", [*inputs, _floats(g, columns) if g.draw.of(False, True) else ""], {}


def _rotary(g: Graph) -> _Node:
    batch, length, heads = g.draw.of(1, 2, 3), g.draw.of(1, 2, 5), g.draw.of(1, 2, 3)
    size, longest = g.draw.of(2, 4, 8, 16), 8
    attributes: dict[str, Any] = {"interleaved": g.draw.of(0, 1)}
    shape: tuple[int, ...] = (batch, heads, length, size)
    if g.draw.of(False, True):
        shape, attributes["num_heads"] = (batch, length, heads * size), heads
    angles = np.random.default_rng(g.draw.below(1 << 16)).uniform(0, 6, (longest, size // 2))
    places = np.array([g.draw.below(longest - length + 1)])
    if g.draw.of(False, True):
        places = g.draw.integers("int64", (batch, length), 0, longest)
    tables = [g.input(table.astype("float32")) for table in (np.cos(angles), np.sin(angles))]
    # A table of one head size says how wide the heads are; with num_heads that is told twice.
    return "RotaryEmbedding", [_floats(g, *shape), g.input(places.astype("int64")), *tables], attributes


def _few_bits(g: Graph) -> _Node:
    """Weights of 4 or 8 bits in blocks, with zero points or without, in float arithmetic."""
    bits, block = g.draw.of(4, 8), g.draw.of(16, 32, 64)
    inner, columns = g.draw.of(16, 31, 64, 96), g.draw.of(1, 3, 8, 17)
    blocks = -(-inner // block)
    codes = g.fixed(g.draw.integers("uint8", (columns, blocks, block * bits // 8), 0, 256))
    inputs = [
        _floats(g, *g.draw.of((), (2,)), g.draw.of(1, 2, 7), inner),
        codes,
        g.fixed(_scales(g.draw, columns * blocks)),
    ]
    if g.draw.of(False, True):
        inputs.append(g.fixed(g.draw.integers("uint8", (columns * -(-blocks * bits // 8),), 0, 256)))
    return "MatMulNBits", inputs, {"K": inner, "N": columns, "bits": bits, "block_size": block}
