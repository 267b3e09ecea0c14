"""Graphs for Model Explorer: nodes, edges and folders of libraries, graph JSON and Relay programs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.runtime.library_info import library_graph
from tilewright_model_explorer.graphs import Graph, read_graph

PROGRAM = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32]) {
  %0 = exp(%x);
  add(%0, %x)
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "net.so"
    x, w = relay.var("x", shape=(2, 3)), relay.const(np.ones((2, 3), "float32"))
    span = relay.Span(relay.SourceName("encoder/layer0/exp"), 0, 0, 0, 0)
    body = relay.Call(relay.op.get("exp"), [relay.add(x, w)], span=span)
    relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), "llvm").export_library(path)
    return path


def edges(graph: Graph) -> list[tuple[str, str]]:
    by_id = {node.id: node.label for node in graph.nodes}
    return [(by_id[edge.sourceNodeId], node.label) for node in graph.nodes for edge in node.incomingEdges]


def test_kernels_of_a_library_stand_in_the_folders_of_the_model(library: Path) -> None:
    graph = read_graph(library)
    kernel = next(node for node in graph.nodes if "exp" in node.label)
    assert kernel.namespace == "encoder/layer0" and asdict(kernel)["outputsMetadata"][0]["attrs"] == [
        {"key": "tensor_shape", "value": "float32 2x3"}
    ]
    assert ("x", kernel.label) in edges(graph) and (kernel.label, "output 0") in edges(graph)


def test_its_graph_json_is_the_same_graph(library: Path, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text(library_graph(library))
    assert read_graph(tmp_path / "net.json") == read_graph(library)


def test_relay_text_and_json_show_operators(tmp_path: Path) -> None:
    (tmp_path / "net.relay").write_text(PROGRAM)
    (tmp_path / "net.json").write_text(tvm.ir.save_json(relay.fromtext(PROGRAM)))
    graph = read_graph(tmp_path / "net.relay")
    assert read_graph(tmp_path / "net.json") == graph
    assert [(node.label, node.namespace) for node in graph.nodes] == [("%x", ""), ("exp", ""), ("add", "")]
    assert edges(graph) == [("%x", "exp"), ("exp", "add"), ("%x", "add")]
    assert graph.nodes[2].outputsMetadata[0].attrs[0].value == "[(2, 3), float32]"
