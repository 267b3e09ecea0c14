"""Graphs from what users have: a GraphDef, the file of one, a SavedModel folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.relay.frontend.tensorflow.frames import FRAME_OPERATORS, Frames
from tilewright.relay.frontend.tensorflow.graph import Graph, Node, read_graph
from tilewright.relay.frontend.tensorflow.proto import TensorflowImportError, parsed

_NO_VALUE = ("NoOp", "Const", "Assert", "PrintV2")


@dataclass(frozen=True)
class Source:
    """A graph, its outputs as "node:0" where they are stated, and names for inputs and outputs."""

    graph: Graph
    outputs: Sequence[str]
    names: Mapping[str, str] = field(default_factory=dict)


def read(source: Any) -> Source:
    """Return the graph of a ``GraphDef``, its bytes, a file, or a SavedModel folder; of a graph the last node is its
    output.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        return _saved_model(path) if os.path.isdir(path) else _file(path)
    if isinstance(source, bytes):
        graph = read_graph(source, "the graph")
    elif hasattr(source, "as_graph_def"):
        graph = read_graph(source.as_graph_def(add_shapes=True).SerializeToString(), "the graph")
    elif hasattr(source, "SerializeToString") and hasattr(source, "node"):
        graph = read_graph(source.SerializeToString(), "the graph")
    else:
        raise TensorflowImportError(
            f"expected a GraphDef, a frozen .pb file or a SavedModel folder, not a {type(source).__name__}"
        )
    return Source(graph, last_node(graph))


def _file(path: str) -> Source:
    if not os.path.isfile(path):
        raise TensorflowImportError(f"{path}: there is no such file or folder")
    with open(path, "rb") as file:
        data = file.read()
    if os.path.basename(path) == "saved_model.pb":
        return _saved_model(os.path.dirname(path) or ".")
    graph = read_graph(data, path)
    return Source(graph, ends(graph))


def last_node(graph: Graph) -> list[str]:
    """Return the last node; of a loop of TensorFlow 1 all results."""
    last = list(graph.nodes.values())[-1]
    if last.op != "Exit":
        return [last.name]
    frames = Frames(graph)
    frame = frames.of(last.inputs[0].name)
    variables = frames.loop(frame)[0] if frame is not None else []
    return [name for variable in variables for name in variable.exits] or [last.name]


def ends(graph: Graph) -> list[str]:
    """Return the nodes that no other one reads, without what control flow leaves over."""
    read_ = {ref.name for node in graph.nodes.values() for ref in node.inputs}
    found = [n for n in graph.nodes.values() if n.name not in read_ and n.op not in _NO_VALUE]
    found = [n for n in found if n.op in ("Exit", "Merge") or not _is_control(graph, n)]
    return [n.name for n in found] or last_node(graph)


def _is_control(graph: Graph, node: Node) -> bool:
    source = graph.nodes.get(node.inputs[0].name) if node.op == "Identity" and node.inputs else None
    return node.op in FRAME_OPERATORS or (source is not None and source.op in FRAME_OPERATORS and source.op != "Merge")


def _saved_model(path: str) -> Source:
    """Return the serving function of a SavedModel, with its variables as constants: TensorFlow itself freezes it."""
    _check_saved_model(path)
    try:
        import tensorflow as tf
        from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
    except ImportError as error:
        raise TensorflowImportError(
            f"{path}: a SavedModel keeps its variables in a checkpoint, which TensorFlow reads; install it "
            f"(pip install tensorflow-cpu), or give a frozen .pb file ({error})"
        ) from None
    try:
        loaded = tf.saved_model.load(path)
    except Exception as error:
        raise TensorflowImportError(f"{path}: no SavedModel, or cut off: {_first_line(error)}") from error
    signatures = dict(getattr(loaded, "signatures", {}))
    if not signatures:
        raise TensorflowImportError(f"{path}: the SavedModel has no signature; save it with one (signatures=)")
    name = "serving_default" if "serving_default" in signatures else sorted(signatures)[0]
    return frozen(convert_variables_to_constants_v2(signatures[name]), signatures[name])


def frozen(function: Any, signature: Any = None) -> Source:
    """Return the graph of a function whose variables are constants, with the names of a signature."""
    graph = read_graph(function.graph.as_graph_def(add_shapes=True).SerializeToString(), "the graph")
    names: dict[str, str] = {}
    outputs = [tensor.name for tensor in function.outputs]
    structured = getattr(signature, "structured_outputs", None)
    if isinstance(structured, Mapping) and len(structured) == len(outputs):
        names = dict(zip(outputs, sorted(structured), strict=True))
    for tensor in function.inputs:
        plain = tensor.name.split(":")[0]
        names[plain] = plain
    return Source(graph, outputs, names)


def _check_saved_model(path: str) -> None:
    file = os.path.join(path, "saved_model.pb")
    if not os.path.isfile(file):
        raise TensorflowImportError(f"{path}: a SavedModel folder holds saved_model.pb, which is not there")
    with open(file, "rb") as stream:
        message = parsed("SavedModel", stream.read(), file)
    if not message.meta_graphs:
        raise TensorflowImportError(f"{file}: no SavedModel of TensorFlow, or cut off: it holds no graph")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
