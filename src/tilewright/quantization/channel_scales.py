"""Scales of channels by data, as AWQ has them (Lin et al., 2023), folded into what makes the data.

Before::

    x = LayerNormalization(z, g, b)
    q, k = MatMul(x, wq), MatMul(x, wk)

after, for numbers s of the channels of x::

    x = LayerNormalization(z, g / s, b / s)
    q, k = MatMul(x, s * wq), MatMul(x, s * wk)

The float model computes the same. In few bits the weights of channels whose data are large are rounded less. For s are
tried powers of the root of the data's mean squares, from 0 on (no scales); those with the least squared error of all
products of the data are taken. Data may come from a norm, a product with constant weights and its bias, and from Relu
or a product with other data behind one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.quantization.block_codes import Form, quantized
from tilewright.quantization.graph import Array, Graph, attributes_of
from tilewright.quantization.plan import Layer, Plan

_POWERS = np.linspace(0.0, 0.95, 20)
_MOST_STEPS = 8

# The constants of a norm, by the numbers of its inputs, that its first result is a multiple of.
_NORMS = {
    "LayerNormalization": (1, 2),
    "RMSNormalization": (1,),
    "SimplifiedLayerNormalization": (1,),
    "SkipLayerNormalization": (2, 3),
    "SkipSimplifiedLayerNormalization": (2,),
}


@dataclass(frozen=True)
class _Part:
    """A constant, and its dimension that runs along channels."""

    name: str
    axis: int


def scale_channels(model: onnx.ModelProto, plan: Plan, form: Form, products: dict[str, Array]) -> None:
    """Scale channels in a float model whose matrices ``plan`` lists.

    Args:
        model: is changed; it computes the same in float.
        plan: of this model.
        form: of the codes that the matrices will have.
        products: x' x of the data of each layer, by the tensor's name; becomes that of the scaled data.
    """
    graph = Graph(model)
    groups: dict[str, list[Layer]] = {}
    for layer in plan.layers:
        groups.setdefault(layer.data, []).append(layer)
    changed: dict[str, Array] = {}
    for data, layers in groups.items():
        parts = _makers(graph, data, layers)
        if parts is None or any(len(graph.consumers[layer.weight]) != 1 for layer in layers):
            continue
        matrices = [_matrix(graph, layer, changed) for layer in layers]
        scales = _best(matrices, form, products[data])
        for part in parts:
            _multiply(graph, changed, part, 1 / scales)
        for layer in layers:
            _multiply(graph, changed, _Part(layer.weight, 1 - layer.axis), scales)
        products[data] = products[data] / np.outer(scales, scales)
    for tensor in model.graph.initializer:
        if tensor.name in changed:
            tensor.CopyFrom(numpy_helper.from_array(changed[tensor.name], tensor.name))


def _matrix(graph: Graph, layer: Layer, changed: dict[str, Array]) -> Array:
    """Return a layer's weights (outer, inner) as they are by now."""
    weight = changed.get(layer.weight)
    weight = graph.constant(layer.weight) if weight is None else weight
    return weight if layer.axis == 0 else np.ascontiguousarray(weight.T)


def _multiply(graph: Graph, changed: dict[str, Array], part: _Part, factors: Array) -> None:
    old = changed.get(part.name)
    array = graph.constant(part.name) if old is None else old
    spread = factors.reshape([-1 if i == part.axis % array.ndim else 1 for i in range(array.ndim)])
    changed[part.name] = (array * spread).astype("float32")


def _best(matrices: list[Array], form: Form, products: Array) -> Array:
    """Return the scales with the least squared error of the matrices' products with data."""
    size = np.sqrt(np.diagonal(products))
    least_size = max(float(size.max(initial=0)) * 1e-4, float(np.finfo("float32").tiny))
    size = np.maximum(size, least_size)
    best, least = np.ones(len(size)), np.inf
    for power in _POWERS:
        scales = size**power
        scales = (scales / np.sqrt(scales.max() * scales.min())).astype("float32")
        error = sum(_error(matrix, scales, form, products) for matrix in matrices)
        if error < least:
            best, least = scales, error
    return best


def _error(matrix: Array, scales: Array, form: Form, products: Array) -> float:
    rounded = quantized(matrix * scales, form, "rtn").matrix(matrix.shape[1]) / scales
    difference = (rounded - matrix).astype("float32")
    return float((difference @ products.astype("float32") * difference).sum(dtype="float64"))


def _makers(graph: Graph, data: str, layers: list[Layer]) -> list[_Part] | None:
    """Return the constants that data are a multiple of; None where there are none, or others read the data."""
    readers = {layer.node.name for layer in layers}
    if not _is_read_by(graph, data, readers):
        return None
    parts: list[_Part] = []
    channels = graph.initializers[layers[0].weight].dims[1 - layers[0].axis]
    return parts if _follow(graph, data, channels, parts, _MOST_STEPS) else None


def _is_read_by(graph: Graph, name: str, readers: set[str]) -> bool:
    found = {node.name for node in graph.consumers[name]}
    return found == readers and name not in graph.outputs and name not in graph.captured


def _follow(graph: Graph, name: str, channels: int, parts: list[_Part], steps: int) -> bool:
    """Add the constants that a tensor is a multiple of; return whether there are such."""
    node = graph.producers.get(name)
    if node is None or steps == 0:
        return False
    if node.op_type in _NORMS:
        return node.output[0] == name and _of_norm(graph, node, channels, parts)
    if node.domain not in ("", "ai.onnx"):
        return False
    constants = [i for i in node.input if i in graph.initializers]
    computed = [i for i in node.input if i and i not in constants]
    if node.op_type in ("MatMul", "Gemm"):
        return _of_product(graph, node, channels, parts)
    if node.op_type not in ("Mul", "Add", "Relu", "Identity"):
        return False
    if constants and not all(_is_row(graph, c, channels) for c in constants):
        return False
    if node.op_type == "Mul" and constants:
        parts += [_Part(c, -1) for c in constants]
        return True
    if node.op_type == "Add":
        if len(constants) != 1:
            return False
        parts.append(_Part(constants[0], -1))
    return any(_goes_on(graph, other, node, channels, parts, steps) for other in computed)


def _goes_on(graph: Graph, name: str, reader: onnx.NodeProto, channels: int, parts: list[_Part], steps: int) -> bool:
    """Follow an operand that ``reader`` alone reads; leave no trace where that leads nowhere."""
    before = len(parts)
    once = list(reader.input).count(name) == 1
    if once and _is_read_by(graph, name, {reader.name}) and _follow(graph, name, channels, parts, steps - 1):
        return True
    del parts[before:]
    return False


def _is_row(graph: Graph, name: str, channels: int) -> bool:
    """Return whether a constant has a number for each channel, and one node reads it."""
    dims = list(graph.initializers[name].dims)
    plain = graph.is_float_constant(name) and len(graph.consumers[name]) == 1 and name not in graph.captured
    return plain and len(dims) > 0 and dims[-1] == channels and all(n == 1 for n in dims[:-1])


def _of_norm(graph: Graph, node: onnx.NodeProto, channels: int, parts: list[_Part]) -> bool:
    names = [node.input[i] for i in _NORMS[node.op_type] if i < len(node.input) and node.input[i]]
    if not names or not all(name in graph.initializers and _is_row(graph, name, channels) for name in names):
        return False
    parts += [_Part(name, -1) for name in names]
    return True


def _of_product(graph: Graph, node: onnx.NodeProto, channels: int, parts: list[_Part]) -> bool:
    """Add a product's weights by their outer dimension, and its bias."""
    weight, bias = node.input[1], node.input[2] if len(node.input) > 2 else ""
    if not graph.is_float_constant(weight) or len(graph.consumers[weight]) != 1 or weight in graph.captured:
        return False
    axis = 0 if node.op_type == "Gemm" and attributes_of(node).get("transB", 0) else 1
    dims = graph.initializers[weight].dims
    if (
        len(dims) != 2
        or dims[axis] != channels
        or (bias and not (bias in graph.initializers and _is_row(graph, bias, channels)))
    ):
        return False
    parts += [_Part(weight, axis), *([_Part(bias, -1)] if bias else [])]
    return True
