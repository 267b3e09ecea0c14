"""The main graph of an ONNX model, with the questions that quantizing asks of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Array = np.ndarray[Any, Any]


class Graph:
    """An index of the main graph of ``model``: who makes a tensor, who reads it, which are constants.

    The index describes the model as it was when it was made.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.nodes: list[onnx.NodeProto] = list(model.graph.node)
        self.initializers: dict[str, onnx.TensorProto] = {t.name: t for t in model.graph.initializer}
        self.inputs = [v.name for v in model.graph.input if v.name not in self.initializers]
        self.outputs = {v.name for v in model.graph.output}
        self.producers = {name: node for node in self.nodes for name in node.output if name}
        self.consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        self.captured: set[str] = set()
        for node in self.nodes:
            for name in dict.fromkeys(filter(None, node.input)):
                self.consumers[name].append(node)
            for inner in subgraphs(node):
                self.captured |= names_read(inner)

    def array(self, name: str) -> Array | None:
        """Return a constant's elements; None where ``name`` is no constant."""
        tensor = self.initializers.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def constant(self, name: str) -> Array:
        """Return the elements of a constant that is known to be one."""
        return numpy_helper.to_array(self.initializers[name])

    def is_float_constant(self, name: str) -> bool:
        """Return whether ``name`` is a constant of float32."""
        tensor = self.initializers.get(name)
        return tensor is not None and tensor.data_type == onnx.TensorProto.FLOAT

    def only_consumer(self, name: str) -> onnx.NodeProto | None:
        """Return the node that alone reads a tensor; None where there is none or the graph gives the tensor out."""
        readers = self.consumers[name]
        if len(readers) != 1 or name in self.outputs or name in self.captured:
            return None
        return readers[0]


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs in a node's attributes: branches and bodies of loops."""
    for attribute in node.attribute:
        yield from [attribute.g] if attribute.HasField("g") else attribute.graphs


def names_read(graph: onnx.GraphProto) -> set[str]:
    """Return every name that a graph's nodes, or the graphs inside them, read or give out."""
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(filter(None, node.input))
        for inner in subgraphs(node):
            names |= names_read(inner)
    return names


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes as Python values."""
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


class Names:
    """New names for tensors and nodes of a graph."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._taken = {v.name for v in (*graph.input, *graph.output)} | {t.name for t in graph.initializer}
        for node in graph.node:
            self._taken.update((node.name, *node.input, *node.output))
            for inner in subgraphs(node):
                self._taken |= names_read(inner)

    def new(self, wanted: str) -> str:
        """Return ``wanted``, or where that is taken the first of ``wanted_1``, ``wanted_2``, ... that is not."""
        name, count = wanted, 0
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name


def replace_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Give a graph these nodes in place of its own."""
    kept = [_copied(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def replace_initializers(graph: onnx.GraphProto, tensors: Mapping[str, onnx.TensorProto]) -> None:
    """Give a graph these constants in place of its own, without those that nothing reads."""
    read = names_read(graph)
    kept = [t for name, t in tensors.items() if name in read]
    dropped = {t.name for t in graph.initializer} - {t.name for t in kept}
    values = [v for v in graph.input if v.name not in dropped]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(kept)
    graph.input.extend(values)


def _copied(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy
