"""The nine real graphs that the ``onnx`` package carries with constant weights, as stored and with random weights.

The files (``onnx/backend/test/data/light``) are published networks of the ONNX model zoo whose weights were replaced by
`ConstantOfShape`, with an output stored beside each. Constant weights make all classes equal (every stored value of
eight of them is 0.001), so a compiler that confuses channels passes. `with_random_weights` returns the same graphs with
weights under which every element matters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

LOGITS_DEVIATION = 2.0
SHAPE_CHANGES = frozenset({"Unsqueeze", "Reshape"})


def directory() -> Path:
    """The folder of the installed ``onnx`` package that holds the graphs."""
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def names() -> list[str]:
    """Return the graphs' names, such as ``resnet50``, sorted."""
    return sorted(path.stem.removeprefix("light_") for path in directory().glob("light_*.onnx"))


def load(name: str) -> ModelProto:
    """The graph as stored, weights constant."""
    return onnx.load(str(directory() / f"light_{name}.onnx"))


def stored_output(name: str) -> np.ndarray:
    """The output that the ``onnx`` package stores for the graph on `stored_input`."""
    return numpy_helper.to_array(onnx.load_tensor(str(directory() / f"light_{name}_output_0.pb")))


def input_name(model: ModelProto) -> str:
    """The name of the graph's only input that is not a weight."""
    weights = {tensor.name for tensor in model.graph.initializer}
    (name,) = (value.name for value in model.graph.input if value.name not in weights)
    return name


def stored_input(model: ModelProto) -> np.ndarray:
    """The input that the stored output belongs to: element i of n is i / n, as in the ``onnx`` package's runner."""
    (value,) = (value for value in model.graph.input if value.name == input_name(model))
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    count = math.prod(shape)
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


def random_input(model: ModelProto) -> np.ndarray:
    """Normal numbers of the input's shape, the same on every call."""
    return np.random.default_rng(1).standard_normal(stored_input(model).shape, np.float32)


def with_random_weights(name: str) -> ModelProto:
    """Return the graph with random weights instead of constant ones, the same on every call.

    Convolutions and dense layers get normal weights of variance 2 / fan-in (He et al. 2015), batch norms positive
    scales and variances. The last layer is scaled so that what enters the softmax has a standard deviation of 2 on
    `random_input`: neither uniform nor saturated. Needs onnxruntime.
    """
    model = load(name)
    graph = model.graph
    generator = np.random.default_rng(0)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    roles = _roles(graph.node)
    kept, drawn = [], {}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = tuple(int(extent) for extent in shapes[node.input[0]])
            drawn[node.output[0]] = _draw(roles[node.output[0]], shape, generator)
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
    _scale_last_layer(model, drawn)
    _add_weights(model, drawn)
    return model


def _add_weights(model: ModelProto, weights: Mapping[str, np.ndarray]) -> None:
    """Store `weights` in the graph, and list them as inputs: a file of IR version 3 must."""
    for name, value in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(value, name))
        model.graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, value.shape))


def _roles(nodes: list[NodeProto]) -> dict[str, tuple[str, int]]:
    """Return, for each value, its consumer and input number, looking through changes of shape."""
    roles: dict[str, tuple[str, int]] = {}
    for node in reversed(nodes):
        for index, name in enumerate(node.input):
            looked_through = roles.get(node.output[0]) if node.op_type in SHAPE_CHANGES else None
            roles[name] = looked_through or (node.op_type, index)
    return roles


def _draw(role: tuple[str, int], shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Random values for a weight of this role."""
    operator, index = role
    if operator in {"Conv", "Gemm"} and index == 1:
        # the files' Gemm weights are (outputs, inputs), transposed by the operator
        fan_in = math.prod(shape[1:])
        return generator.standard_normal(shape, np.float32) * np.float32(math.sqrt(2 / fan_in))
    if operator == "Mul" or (operator == "BatchNormalization" and index in {1, 4}):
        return generator.uniform(0.7, 1.3, shape).astype(np.float32)
    return generator.standard_normal(shape, np.float32) * np.float32(0.1)


def _scale_last_layer(model: ModelProto, weights: Mapping[str, np.ndarray]) -> None:
    """Scale the last layer's weight and bias in place so that its output's deviation is `LOGITS_DEVIATION`."""
    import onnxruntime

    last = next(node for node in reversed(model.graph.node) if node.op_type in {"Conv", "Gemm"})
    probe = ModelProto()
    probe.CopyFrom(model)
    _add_weights(probe, weights)
    del probe.graph.output[:]
    probe.graph.output.append(helper.make_tensor_value_info(last.output[0], onnx.TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {input_name(model): random_input(model)})
    stored_as = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type in SHAPE_CHANGES}
    for name in last.input[1:]:
        weights[stored_as.get(name, name)][...] *= LOGITS_DEVIATION / float(np.std(logits))
