"""Recorded graphs: a plug-in records, this package only asks it to."""

from __future__ import annotations

import pytest
from tests.runtime.kernels import chain_json

from tilewright import runtime
from tilewright.contrib import graph_executor, nvcc
from tilewright.contrib.cuda_graph import cuda_graph_executor

CREATE = "tvm.graph_executor_cuda_graph.create"


def test_without_a_plug_in_nothing_is_recorded() -> None:
    assert not nvcc.have_cudagraph()
    with pytest.raises(ValueError, match=f"{CREATE} is not registered"):
        cuda_graph_executor.create(chain_json(1), runtime.system_lib(), runtime.cpu())


def test_the_first_run_is_recorded_and_further_ones_are_launched() -> None:
    calls: list[str] = []

    def create(graph: str, library: runtime.Module, device: runtime.Device) -> runtime.Module:
        made = graph_executor.create(
            """{"nodes": [{"op": "null", "name": "x", "inputs": []}], "arg_nodes": [0],
            "heads": [[0, 0, 0]], "node_row_ptr": [0, 1], "attrs": {"dltype": ["list_str", ["float32"]],
            "storage_id": ["list_int", [0]], "shape": ["list_shape", [[2]]]}}""",
            library,
            device,
        ).module
        own = {
            name: (lambda name=name: calls.append(name)) for name in ("start_capture", "end_capture", "run_cuda_graph")
        }
        own["run"] = lambda: calls.append("run")
        return runtime.create_module("recorder", lambda name: own.get(name) or made._find(name, False))

    runtime.register_func(CREATE, create)
    try:
        assert nvcc.have_cudagraph()
        executor = cuda_graph_executor.create("", runtime.system_lib(), runtime.cpu())
        executor.run(x=[1.0, 2.0])
        executor.run()
        assert calls == ["run", "start_capture", "run", "end_capture", "run_cuda_graph"]
        assert executor.get_output(0).numpy().tolist() == [1, 2]
        with pytest.raises(NotImplementedError, match="debug_executor"):
            executor.debug_get_output(0, executor.get_output(0))
    finally:
        runtime.remove_global_func(CREATE)
