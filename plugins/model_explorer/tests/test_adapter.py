"""The adapter as Model Explorer meets it: found in ``main``, told a file, asked for graphs that JSON can hold."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import types
from collections.abc import Iterator
from dataclasses import asdict, make_dataclass
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def adapter() -> Iterator[Any]:
    """The adapter, of Model Explorer's base class; where that is not installed, on a module with its names."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("model_explorer") is None:
            there = types.ModuleType("model_explorer")
            metadata = make_dataclass("AdapterMetadata", ["id", "name", "description", "fileExts"])
            vars(there).update(Adapter=object, AdapterMetadata=metadata, ModelExplorerGraphs=dict)
            patch.setitem(sys.modules, "model_explorer", there)
        yield importlib.import_module("tilewright_model_explorer.main").TilewrightAdapter()


def test_it_names_the_files_that_it_opens(adapter: Any) -> None:
    assert adapter.metadata.id == "tilewright"
    assert adapter.metadata.fileExts == ["so", "json", "relay", "onnx"]


def test_it_converts_a_graph_json(adapter: Any, tmp_path: Path) -> None:
    graph = {
        "nodes": [
            {"op": "null", "name": "x", "inputs": []},
            {"op": "tvm_op", "name": "tvmgen_default_fused_exp", "attrs": {"func_name": "f"}, "inputs": [[0, 0, 0]]},
        ],
        "arg_nodes": [0], "heads": [[1, 0, 0]], "node_row_ptr": [0, 1, 2],
        "attrs": {"shape": ["list_shape", [[2, 3], [2, 3]]], "dltype": ["list_str", ["float32", "float32"]]},
        "metadata": {"sources": {"tvmgen_default_fused_exp": ["encoder/exp"]}},
    }  # fmt: skip
    path = tmp_path / "net.json"
    path.write_text(json.dumps(graph))
    (made,) = adapter.convert(str(path), {})["graphs"]
    kernel, output = json.loads(json.dumps(asdict(made)))["nodes"][1:]
    assert (kernel["label"], kernel["namespace"], output["id"]) == ("fused_exp", "encoder", "output 0")
    assert kernel["incomingEdges"] == [{"sourceNodeId": "0", "sourceNodeOutputId": "0", "targetNodeInputId": "0"}]
    assert kernel["outputsMetadata"] == [{"id": "0", "attrs": [{"key": "tensor_shape", "value": "float32 2x3"}]}]


def test_it_converts_relay_text(adapter: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.relay"
    path.write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32]) { exp(%x) }\n')
    (made,) = adapter.convert(str(path), {})["graphs"]
    assert [node["label"] for node in json.loads(json.dumps(asdict(made)))["nodes"]] == ["%x", "exp"]
