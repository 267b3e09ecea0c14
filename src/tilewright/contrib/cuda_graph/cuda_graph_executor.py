"""Graph executors that a CUDA plug-in records as one launch: its module has ``start_capture`` and ``end_capture``.

This package drives no CUDA device itself; ``create`` says so where no plug-in registers what it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.runtime.device import Device
from tilewright.runtime.executor.graph import GraphModule, as_devices
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import NDArray
from tilewright.runtime.registry import get_global_func

_CREATE = "tvm.graph_executor_cuda_graph.create"


def create(graph_json_str: str, libmod: Module, device: Device | Sequence[Device]) -> GraphModuleCudaGraph:
    """Return an executor of a graph that is recorded by its first run.

    Raises:
        ValueError: nobody registers the global function tvm.graph_executor_cuda_graph.create.
    """
    make = get_global_func(_CREATE, allow_missing=True)
    if make is None:
        raise ValueError(f"no plug-in records CUDA graphs here: the global function {_CREATE} is not registered")
    return GraphModuleCudaGraph(make(graph_json_str, libmod, *as_devices(device)))


class GraphModuleCudaGraph(GraphModule):
    """An executor whose first run is recorded, and whose further runs launch the recording."""

    def __init__(self, module: Module) -> None:
        """Wrap an executor module of a plug-in that records."""
        super().__init__(module)
        self._start_capture, self._end_capture = module["start_capture"], module["end_capture"]
        self._run_cuda_graph = module["run_cuda_graph"]
        self._captured = False

    def capture_cuda_graph(self) -> None:
        """Record a run, after one that loads the code."""
        self._run()
        self._start_capture()
        self._run()
        self._end_capture()
        self._captured = True

    def run_cuda_graph(self) -> None:
        """Launch what was recorded."""
        self._run_cuda_graph()

    def run(self, **input_dict: Any) -> None:
        """Run the graph, after setting inputs by name."""
        self.set_input(**input_dict)
        if self._captured:
            self._run_cuda_graph()
        else:
            self.capture_cuda_graph()

    def debug_get_output(self, node: int | str, out: NDArray) -> NDArray:
        """A recording has no nodes; ``contrib.debugger.debug_executor`` makes executors that are looked into."""
        raise NotImplementedError("a recorded graph has no nodes to stop at; use contrib.debugger.debug_executor")
