"""Graphs of libraries and Relay programs in Model Explorer's form: names of fields are those of its JSON.

https://github.com/google-ai-edge/model-explorer/wiki/4.-API-Guide
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.driver.opt import read_module
from tilewright.ir.module import IRModule
from tilewright.pictures.relay_graph import draw_module
from tilewright.relay.transform.infer_type import InferType
from tilewright.runtime.library_info import library_graph

SUFFIXES = (".so", ".json", ".relay", ".onnx")
_PREFIX = "tvmgen_default_"


@dataclass
class KeyValue:
    """An attribute."""

    key: str
    value: str


@dataclass
class MetadataItem:
    """Attributes of an output, by its number."""

    id: str
    attrs: list[KeyValue]


@dataclass
class IncomingEdge:
    """An edge from an output of a node to an input, both by number."""

    sourceNodeId: str
    sourceNodeOutputId: str
    targetNodeInputId: str


@dataclass
class GraphNode:
    """A node, in the folder ``namespace`` of the model."""

    id: str
    label: str
    namespace: str = ""
    attrs: list[KeyValue] = field(default_factory=list)
    incomingEdges: list[IncomingEdge] = field(default_factory=list)
    outputsMetadata: list[MetadataItem] = field(default_factory=list)


@dataclass
class Graph:
    """A graph."""

    id: str
    nodes: list[GraphNode]


def read_graph(path: Path) -> Graph:
    """Return the graph of a library, a graph JSON, Relay text or JSON, or an ONNX model.

    Raises:
        TVMError, TilewrightError, ValueError: the file is none of these, or holds a program without a graph.
    """
    if path.suffix == ".so":
        return Graph(path.stem, list(_kernels(json.loads(library_graph(path)))))
    if path.suffix == ".json":
        found = json.loads(path.read_text())
        if isinstance(found, dict) and "node_row_ptr" in found:
            return Graph(path.stem, list(_kernels(found)))
    return Graph(path.stem, list(_operators(InferType()(read_module(path, None)))))


def _kernels(graph: Mapping[str, Any]) -> Iterable[GraphNode]:
    """Yield the nodes of a graph JSON, and one for each output."""
    rows, attrs = graph["node_row_ptr"], graph["attrs"]
    shapes, dtypes = attrs["shape"][1], attrs["dltype"][1]
    sources = (graph.get("metadata") or {}).get("sources", {})
    for number, node in enumerate(graph["nodes"]):
        names = sources.get(node["name"], [])
        known = {key: str(value) for key, value in node.get("attrs", {}).items() if value}
        types = [f"{dtypes[row]} {_extents(shapes[row])}" for row in range(rows[number], rows[number + 1])]
        yield GraphNode(
            id=str(number),
            label=node["name"].removeprefix(_PREFIX),
            namespace=_folder(names[0]) if names else "",
            attrs=[KeyValue(key, value) for key, value in known.items()]
            + [KeyValue("computes", ", ".join(names))] * bool(names),
            incomingEdges=[_edge(source, output, i) for i, (source, output, *_) in enumerate(node["inputs"])],
            outputsMetadata=_outputs(types),
        )
    for place, (source, output, *_) in enumerate(graph["heads"]):
        yield GraphNode(f"output {place}", f"output {place}", incomingEdges=[_edge(source, output, 0)])


def _operators(mod: IRModule) -> Iterable[GraphNode]:
    """Yield the operators of ``main`` and of what it calls."""
    drawing = draw_module(mod)
    edges: dict[int, list[IncomingEdge]] = {}
    for source, target in drawing.arrows:
        found = edges.setdefault(target, [])
        found.append(_edge(source, 0, len(found)))
    for number, box in enumerate(drawing.boxes):
        label, *types = box.lines
        yield GraphNode(
            id=str(number),
            label=label,
            namespace="/".join(filter(None, (box.group, _folder(box.source)))),
            attrs=[KeyValue("computes", box.source)] * bool(box.source),
            incomingEdges=edges.get(number, []),
            outputsMetadata=_outputs([text for text in types if text]),
        )


def _edge(source: int, output: int, place: int) -> IncomingEdge:
    return IncomingEdge(str(source), str(output), str(place))


def _outputs(types: Iterable[str]) -> list[MetadataItem]:
    return [MetadataItem(str(i), [KeyValue("tensor_shape", text)]) for i, text in enumerate(types)]


def _extents(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _folder(name: str) -> str:
    """Return the folder of a node's name: all but the last part of its path."""
    return "/".join(name.strip("/").split("/")[:-1])
