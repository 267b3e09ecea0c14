"""A float model in the form that quantizing reads: plain weights, no batch normalization, a name for every node."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.version_converter
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from tilewright.ir.errors import UnsupportedError
from tilewright.quantization.graph import (
    Array,
    Graph,
    Names,
    attributes_of,
    replace_initializers,
    replace_nodes,
)

LEAST_OPSET = 13
"""From here on QuantizeLinear and DequantizeLinear have an axis."""

_LEAST_IR_VERSION = 8  # initializers need not be inputs from 4 on

_QUANTIZED = frozenset({
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger",
    "ConvInteger", "QGemm", "QLinearAdd", "QAttention", "DynamicQuantizeMatMul", "MatMulNBits",
})  # fmt: skip
_FOLDED = frozenset({"Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Cast"})


def prepared(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a float model for quantizing.

    Functions are written out, constants are initializers, batch normalization is part of the convolution before it,
    nodes have names of their own, factors of Gemm are part of its constants, and the opset is 13 or newer.

    Raises:
        UnsupportedError: the model is quantized already, or ONNX cannot bring it to opset 13.
    """
    _check_is_float(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if copy.functions:
        copy = onnx.inliner.inline_local_functions(copy, True)
    copy = _at_least_opset(copy)
    _name_nodes(copy.graph)
    copy.ir_version = max(copy.ir_version, _LEAST_IR_VERSION)
    _fold_constants(copy)
    _fold_batch_norms(copy)
    _plain_gemms(copy)
    return copy


def _check_is_float(model: onnx.ModelProto) -> None:
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    for node in nodes:
        if node.op_type in _QUANTIZED:
            raise UnsupportedError(
                f"the model is quantized already: node {node.name or node.output[0]!r} is a {node.op_type}. "
                "Give the float32 model that it was made of"
            )


def _at_least_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    version = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=LEAST_OPSET)
    if version >= LEAST_OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(model, LEAST_OPSET)
    except Exception as error:
        raise UnsupportedError(
            f"the model uses ONNX opset {version}, and quantized weights of channels need {LEAST_OPSET}; ONNX's "
            f"converter cannot bring it there ({str(error).splitlines()[0]}). Export the model anew"
        ) from None


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Give nodes that have no name, or that of another, one of their own."""
    seen: set[str] = set()
    names = Names(graph)
    for node in graph.node:
        if not node.name or node.name in seen:
            node.name = names.new(f"{node.op_type}_{next(filter(None, node.output), 'node')}")
        seen.add(node.name)


def _fold_constants(model: onnx.ModelProto) -> None:
    """Make initializers of Constant nodes, and of what only rearranges constants."""
    graph = Graph(model)
    known = dict(graph.initializers)
    opset = [o for o in model.opset_import if o.domain in ("", "ai.onnx")]
    kept = []
    for node in graph.nodes:
        value = _constant_value(node, known, opset) if not (set(node.output) & graph.outputs) else None
        if value is None:
            kept.append(node)
        else:
            known[node.output[0]] = numpy_helper.from_array(value, node.output[0])
    replace_nodes(model.graph, kept)
    replace_initializers(model.graph, known)


def _constant_value(node: onnx.NodeProto, known: dict[str, onnx.TensorProto], opset: list[Any]) -> Array | None:
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Constant":
        return _plain_constant(node)
    if node.op_type not in _FOLDED or not all(name in known for name in node.input):
        return None
    arrays = [numpy_helper.to_array(known[name]) for name in node.input]
    if any(a.dtype.kind not in "fiub" for a in arrays):
        return None
    values = [onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in (known[n] for n in node.input)]
    out = onnx.helper.make_empty_tensor_value_info(node.output[0])
    body = onnx.helper.make_graph([node], "constant", values, [out])
    evaluator = ReferenceEvaluator(onnx.helper.make_model(body, opset_imports=opset))
    (result,) = evaluator.run(None, dict(zip(node.input, arrays, strict=True)))
    return np.ascontiguousarray(result)


def _plain_constant(node: onnx.NodeProto) -> Array | None:
    """Return a Constant node's value where it is a dense tensor of numbers."""
    ((name, value),) = attributes_of(node).items()
    if name == "value":
        array = numpy_helper.to_array(value)
        return array if array.dtype.kind in "fiub" else None
    if name in ("value_float", "value_floats"):
        return np.array(value, "float32")
    return np.array(value, "int64") if name in ("value_int", "value_ints") else None


def _fold_batch_norms(model: onnx.ModelProto) -> None:
    """Make batch normalization after a convolution part of the convolution's weights and bias."""
    graph = Graph(model)
    known, names = dict(graph.initializers), Names(model.graph)
    kept: list[onnx.NodeProto] = []
    for node in graph.nodes:
        conv = graph.producers.get(node.input[0]) if node.op_type == "BatchNormalization" else None
        folded = None if conv is None else _folded(graph, conv, node)
        if conv is None or folded is None:
            kept.append(node)
            continue
        weight, bias = (names.new(f"{conv.name}_{what}_with_norm") for what in ("weight", "bias"))
        known[weight], known[bias] = (
            numpy_helper.from_array(array, name) for array, name in zip(folded, (weight, bias), strict=True)
        )
        conv.input[:] = [conv.input[0], weight, bias]
        conv.output[0] = node.output[0]
    replace_nodes(model.graph, kept)
    replace_initializers(model.graph, known)


def _folded(graph: Graph, conv: onnx.NodeProto, norm: onnx.NodeProto) -> tuple[Array, Array] | None:
    """Return weight and bias of a convolution with the normalization after it; None where that is not the same."""
    attrs = attributes_of(norm)
    training = attrs.get("training_mode", 0) or len([name for name in norm.output if name]) > 1
    alone = graph.only_consumer(conv.output[0]) is norm
    if conv.op_type != "Conv" or training or not alone:
        return None
    names = [conv.input[1], *norm.input[1:5], *(name for name in conv.input[2:] if name)]
    if not all(graph.is_float_constant(name) for name in names):
        return None
    weight, scale, shift, mean, variance, *bias = (graph.constant(name).astype("float64") for name in names)
    factor = scale / np.sqrt(variance + attrs.get("epsilon", 1e-5))
    start = bias[0] if bias else np.zeros_like(mean)
    weight = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
    return weight.astype("float32"), ((start - mean) * factor + shift).astype("float32")


def _plain_gemms(model: onnx.ModelProto) -> None:
    """Make ``alpha`` and ``beta`` of Gemm part of constant weights and bias, and a bias of one row a vector."""
    graph = Graph(model)
    known, names = dict(graph.initializers), Names(model.graph)

    def changed(name: str, factor: float, row: bool) -> str:
        array = graph.constant(name) * np.float32(factor)
        new = names.new(f"{name}_of_gemm")
        known[new] = numpy_helper.from_array(array.reshape(-1) if row else array, new)
        return new

    for node in graph.nodes:
        if node.op_type != "Gemm" or not all(graph.is_float_constant(name) for name in node.input[1:] if name):
            continue
        attrs = attributes_of(node)
        columns = graph.initializers[node.input[1]].dims[0 if attrs.get("transB", 0) else 1]
        if attrs.get("alpha", 1.0) != 1:
            node.input[1] = changed(node.input[1], attrs["alpha"], False)
        if len(node.input) > 2 and node.input[2]:
            dims = list(graph.initializers[node.input[2]].dims)
            if dims == [1, columns] or (dims == [columns] and attrs.get("beta", 1.0) != 1):
                node.input[2] = changed(node.input[2], attrs.get("beta", 1.0), True)
                attrs["beta"] = 1.0
        plain = [a for a in node.attribute if a.name not in ("alpha", "beta")]
        beta = onnx.helper.make_attribute("beta", float(attrs.get("beta", 1.0)))
        kept = [onnx.helper.make_attribute(a.name, onnx.helper.get_attribute_value(a)) for a in plain]
        del node.attribute[:]
        node.attribute.extend([*kept, beta])
    replace_nodes(model.graph, graph.nodes)
    replace_initializers(model.graph, known)
