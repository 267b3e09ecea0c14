"""Recorded graphs where nothing records; tests/runtime/test_cuda.py records them on a stand-in for the driver."""

from __future__ import annotations

import pytest

from tilewright import runtime
from tilewright.contrib import nvcc
from tilewright.contrib.cuda_graph import cuda_graph_executor

INPUT_ONLY = """{"nodes": [{"op": "null", "name": "x", "inputs": []}], "arg_nodes": [0], "heads": [[0, 0, 0]],
"node_row_ptr": [0, 1], "attrs": {"dltype": ["list_str", ["float32"]], "storage_id": ["list_int", [0]],
"shape": ["list_shape", [[2]]]}}"""


def test_only_cuda_devices_record() -> None:
    with pytest.raises(
        runtime.TVMError, match=r"CUDA records runs on its own devices; the executor was given cpu\(0\)"
    ):
        cuda_graph_executor.create(INPUT_ONLY, runtime.system_lib(), runtime.cpu())


def test_graphs_can_be_recorded_where_there_is_a_device() -> None:
    assert nvcc.have_cudagraph() == runtime.cuda().exist
