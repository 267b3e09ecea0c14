"""How much work an ONNX model is: floating-point operations of its matrix products, bytes of its weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import GraphProto, NodeProto, TensorProto, helper, shape_inference

# initializers above this become inputs before shape inference: it needs the values of small ones only
# (shapes, axes), and the large ones would be copied several times
LARGE_ELEMENTS = 1024


@dataclass(frozen=True)
class Work:
    """The work in one run.

    `flops`: two per multiply-add of convolutions, matrix products and recurrent cells; None where shapes are not known.
    `weight_bytes`: stored size of the weights, without tables that a Gather picks rows from.
    """

    flops: int | None
    weight_bytes: int


def count(path: Path) -> Work:
    """The work in one run of the ONNX model at `path`, whose input shapes are all known."""
    model = onnx.load(str(path))
    streamed = {name for node in model.graph.node for name in _read_whole(node)}
    weight_bytes = sum(_bytes(tensor) for tensor in model.graph.initializer if tensor.name in streamed)
    _drop_large_initializers(model.graph)
    inferred = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    shapes = _shapes(inferred.graph)
    flops = [_node_flops(node, shapes) for node in inferred.graph.node]
    return Work(None if None in flops else sum(n for n in flops if n is not None), weight_bytes)


def _read_whole(node: NodeProto) -> list[str]:
    """The inputs of which one run reads every element: all but the table that a Gather picks rows from."""
    return list(node.input[1:] if node.op_type == "Gather" else node.input)


def _bytes(tensor: TensorProto) -> int:
    return math.prod(tensor.dims) * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def _drop_large_initializers(graph: GraphProto) -> None:
    """Turn large initializers into graph inputs of the same type."""
    small = []
    declared = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if math.prod(tensor.dims) <= LARGE_ELEMENTS:
            small.append(tensor)
        elif tensor.name not in declared:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    del graph.initializer[:]
    graph.initializer.extend(small)


def _shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            shapes[value.name] = tuple(dim.dim_value for dim in dims)
    return shapes


def _node_flops(node: NodeProto, shapes: dict[str, tuple[int, ...]]) -> int | None:
    """The operations of one node; None where a shape is missing, which ONNX cannot infer for every operator."""
    if node.op_type not in {"Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM"}:
        return 0
    data, weight, result = (shapes.get(name) for name in (node.input[0], node.input[1], node.output[0]))
    if data is None or weight is None or (result is None and node.op_type not in {"ConvTranspose", "LSTM"}):
        return None
    if node.op_type == "ConvTranspose":
        return 2 * math.prod(data) * math.prod(weight[1:])  # every input element meets each filter of its channel once
    if node.op_type == "LSTM":
        steps, batch, features = data
        recurrent = shapes.get(node.input[2])
        if recurrent is None:
            return None
        directions, gates, hidden = recurrent
        return 2 * steps * batch * directions * gates * (features + hidden)
    assert result is not None
    if node.op_type == "Conv":
        return 2 * math.prod(result) * math.prod(weight[1:])
    transposed = any(item.name == "transA" and item.i for item in node.attribute)
    return 2 * math.prod(result) * data[-2 if transposed else -1]
