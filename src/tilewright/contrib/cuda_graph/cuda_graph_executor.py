"""Graph executors whose run is recorded as a CUDA graph, and launched as one (``native/src/gpu/cuda_graph.c``)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from tilewright.runtime import TVMError
from tilewright.runtime.device import Device
from tilewright.runtime.executor.graph import GraphModule, as_devices
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import NDArray
from tilewright.runtime.registry import need_global_func


def create(graph_json_str: str, libmod: Module, device: Device | Sequence[Device]) -> GraphModuleCudaGraph:
    """Return an executor of a graph that is recorded by its first run.

    Raises:
        TVMError: none of the devices is a CUDA device that is there.
    """
    make = need_global_func("tvm.graph_executor_cuda_graph.create")
    return GraphModuleCudaGraph(make(graph_json_str, libmod, *as_devices(device)))


class GraphModuleCudaGraph(GraphModule):
    """An executor whose first run is recorded, and whose further runs launch the recording.

    The graph is recorded again when a tensor has moved (:meth:`set_input_zero_copy`, a parameter that is set). A
    network that cannot be recorded, such as one with operators on the CPU, runs operator by operator, after a warning
    with the reason.
    """

    def __init__(self, module: Module) -> None:
        """Wrap the module of ``tvm.graph_executor_cuda_graph.create``."""
        super().__init__(module)
        self._record, self._run_cuda_graph = module["record"], module["run_cuda_graph"]
        self._tried = self._captured = False

    def capture_cuda_graph(self) -> None:
        """Run, which loads the code, and record a second run.

        Warns:
            RuntimeWarning: the run cannot be recorded.
        """
        self._tried = True
        try:
            self._record()
        except TVMError as error:
            warnings.warn(f"the network runs without a CUDA graph: {error}", RuntimeWarning, stacklevel=2)
        else:
            self._captured = True

    def run_cuda_graph(self) -> None:
        """Launch the recorded graph, recording it first if needed."""
        self._run_cuda_graph()

    def run(self, **input_dict: Any) -> None:
        """Run the graph, after setting inputs by name."""
        self.set_input(**input_dict)
        if not self._tried:
            self.capture_cuda_graph()
        if self._captured:
            self._run_cuda_graph()
        else:
            self._run()

    def debug_get_output(self, node: int | str, out: NDArray) -> NDArray:
        """A recording has no nodes; ``contrib.debugger.debug_executor`` makes executors that are looked into."""
        raise NotImplementedError("a recorded graph has no nodes to stop at; use contrib.debugger.debug_executor")
