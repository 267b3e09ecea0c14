"""Stages of a model: parts that are compiled and parts that run on the host, in turns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference

from tilewright.relay.frontend.onnx.host import on_host
from tilewright.relay.frontend.onnx.strings import is_text


@dataclass(frozen=True)
class Stage:
    """Nodes of one kind, with the values that they read from other stages, and their values that other stages read."""

    host: bool
    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def element_kinds(model: onnx.ModelProto) -> dict[str, int]:
    """Return ONNX's element types of the tensors, as far as inference knows them."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:
        graph = model.graph
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
    return kinds | {t.name: t.data_type for t in graph.initializer}


def stages(model: onnx.ModelProto, of_data: Collection[str] = ()) -> list[Stage]:
    """Return the stages in the order in which they run; none where the whole model is compiled."""
    kinds = element_kinds(model)
    hosts = [on_host(node, kinds, of_data) for node in model.graph.node]
    if not any(hosts):
        return []
    level: dict[str, int] = {}  # even ones are compiled, odd ones run on the host
    parts: dict[int, list[onnx.NodeProto]] = {}
    for node, host in zip(model.graph.node, hosts, strict=True):
        at = max((level.get(name, 0) for name in _reads(node)), default=0)
        at += at % 2 != host
        parts.setdefault(at, []).append(node)
        level |= dict.fromkeys(node.output, at)
    weights = {tensor.name for tensor in model.graph.initializer}
    wanted = {value.name for value in model.graph.output}
    found = []
    for at, nodes in sorted(parts.items(), reverse=True):
        given = {name for node in nodes for name in node.output if name}
        reads = dict.fromkeys(name for node in nodes for name in _reads(node) if name not in given)
        outputs = tuple(name for node in nodes for name in node.output if name in wanted)
        wanted |= set(reads)
        host = at % 2 == 1
        inputs = tuple(name for name in reads if host or name not in weights)
        found.append(Stage(host, tuple(nodes), inputs, outputs))
    return found[::-1]


def _reads(node: onnx.NodeProto) -> list[str]:
    """Return the values that a node and the graphs in its attributes read from around it."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        own = {value.name for value in (*attribute.g.input, *attribute.g.initializer)}
        for inner in attribute.g.node:
            found.extend(name for name in _reads(inner) if name not in own)
            own |= set(inner.output)
        found.extend(value.name for value in attribute.g.output if value.name not in own)
    return found


def model_of(stage: Stage, model: onnx.ModelProto, given: Mapping[str, Any]) -> onnx.ModelProto:
    """Return a compiled stage as a model of its own, for inputs of the element types in ``given``."""
    reads = {name for node in stage.nodes for name in _reads(node)}
    kinds = element_kinds(model)
    weights = [t for t in model.graph.initializer if t.name in reads]
    inputs = [onnx.helper.make_value_info(name, _type_of(given[name])) for name in stage.inputs]
    declared = {value.name: value.type for value in model.graph.output}
    outputs = [
        onnx.helper.make_value_info(name, declared.get(name) or _tensor_type(kinds.get(name) or 1))
        for name in stage.outputs
    ]
    part = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    part.graph.CopyFrom(onnx.helper.make_graph(stage.nodes, "part", inputs, outputs, weights))
    return part


def _tensor_type(kind: int) -> onnx.TypeProto:
    return onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor(elem_type=kind))


def _type_of(value: Any) -> onnx.TypeProto:
    if value is None:
        return onnx.helper.make_optional_type_proto(_tensor_type(1))
    if isinstance(value, Sequence):
        return onnx.helper.make_sequence_type_proto(_type_of(value[0]) if value else _tensor_type(1))
    if is_text(value):
        return _tensor_type(onnx.TensorProto.STRING)
    return _tensor_type(onnx.helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype))
