"""The graph executor with eyes: the time of each operator, and the tensors between them."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..device import Device
from ..error import TVMError
from ..module import Module
from ..ndarray import NDArray
from ..profiling import Report, Value
from .debug_result import DebugResult
from .graph import GraphModule, as_devices, creator

_DUMP_ROOT_PREFIX = "tvmdbg_"
_DUMP_PATH_PREFIX = "_tvmdbg_device_"
_WARM_UP = 3


def create(
    graph_json_str: str, libmod: Module, device: Device | Sequence[Device], dump_root: str | None = None
) -> GraphModuleDebug:
    """Return an executor whose operators can be inspected and timed.

    Args:
        graph_json_str: the graph of ``relay.build`` (text, or an object with ``get_graph_json()``).
        libmod: the compiled functions.
        device: where to run.
        dump_root: the folder for files; a new temporary one by default.

    Raises:
        TVMError: the text is no graph, or the module lacks functions that it calls.
    """
    text = graph_json_str if isinstance(graph_json_str, str) else graph_json_str.get_graph_json()
    devices = as_devices(device)
    library = libmod if isinstance(libmod, Module) else libmod.module
    module = creator("tvm.graph_executor_debug.create", devices)(text, library, *devices)
    return GraphModuleDebug(module, devices, text, dump_root)


class GraphModuleDebug(GraphModule):
    """A graph executor that reports the time of each operator, and every tensor.

    ``GraphModuleDebug(lib["debug_create"]("default", dev), [dev], lib.get_graph_json(), None)`` wraps the executor that
    a library makes.

    Args:
        module: the executor module.
        device: the devices that it runs on.
        graph_json_str: the graph.
        dump_root: the folder for files; by default a new temporary one, which goes with this object unless ``run`` has
            put results there. ``exit`` removes either.
    """

    def __init__(
        self,
        module: Module,
        device: Device | Sequence[Device],
        graph_json_str: str,
        dump_root: str | Path | None = None,
    ) -> None:
        super().__init__(module)
        self._devices = as_devices(device)
        self._graph = json.loads(graph_json_str)
        self._dump_root = str(dump_root) if dump_root else tempfile.mkdtemp(prefix=_DUMP_ROOT_PREFIX)
        self._without_results = weakref.finalize(self, shutil.rmtree, self._dump_root, ignore_errors=True)
        if dump_root:
            self._without_results.detach()
        folder = _DUMP_PATH_PREFIX + str(self._devices[0]).upper().replace("(", "_").replace(")", "")
        self._dump_path = str(Path(self._dump_root) / folder)
        Path(self._dump_path).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.debug_datum = DebugResult(graph_json_str, self._dump_path)

    def run(self, **input_dict: Any) -> None:
        """Run operator by operator: measure each, keep all tensors, write the files and print the table.

        The files, under the dump root: the graph, all tensors (``output_tensors.params``), and the times for
        ``chrome://tracing``.
        """
        if input_dict:
            self.set_input(**input_dict)
        self.debug_datum.set_times(self.run_individual(10, 1, 1))
        outputs = (
            self._execute_next_node(node, output)
            for node in range(len(self._graph["nodes"]))
            for output in range(self._num_outputs_of(node))
        )
        self._without_results.detach()
        self.debug_datum.update_output_tensors(list(outputs))
        self.debug_datum.dump_output_tensor()
        self.debug_datum.dump_chrome_trace()
        self.debug_datum.display_debug_result()

    def _execute_next_node(self, node: int, output: int) -> NDArray:
        self.execute_node(node)
        return self.get_node_output(node, output)

    def _num_outputs_of(self, node: int) -> int:
        first = self._graph["node_row_ptr"]
        return int(first[node + 1] - first[node])

    def run_individual(self, number: int, repeat: int = 1, min_repeat_ms: int = 0) -> list[float]:
        """Return the mean seconds of each node (0 for inputs and views), of the last repetition.

        Args:
            number: runs of the graph a repetition.
            repeat: how many repetitions; one more run before them is not counted.
            min_repeat_ms: a repetition is prolonged until it takes as many milliseconds.
        """
        self._look_for_unset()
        text = self.module["run_individual"](number, repeat, min_repeat_ms)
        return [float(spent) for spent in text.split(",") if spent]

    def execute_node(self, node: int | str) -> None:
        """Run up to a node (by index or name), continuing after the last call if that ended before it."""
        self.module["execute_node"](node)

    def get_node_output(self, node: int | str, output: int = 0) -> NDArray:
        """Return a copy of an output of the node that was just executed, or of an input.

        Raises:
            TVMError: another node has run since: its tensors may lie in the same memory.
        """
        return self.module["get_node_output"](node, output)

    def debug_get_output(self, node: int | str, out: NDArray | None = None) -> NDArray:
        """Run up to a node (by index or name) and return its first output, copied to ``out`` if passed."""
        if out is not None:
            return super().debug_get_output(node, out)
        self.execute_node(node)
        return self.get_node_output(node)

    def profile(self, collectors: Sequence[Any] | None = None, **input_dict: Any) -> Report:
        """Run once, after three runs that do not count, and report the time of each call and of all.

        Args:
            collectors: TVM's collectors of further metrics; there are none here.
            input_dict: inputs by name.
        """
        if collectors:
            raise TVMError("profile takes no collectors: it measures time alone")
        if input_dict:
            self.set_input(**input_dict)
        self._look_for_unset()
        for _ in range(_WARM_UP):
            self._run()
        seconds = np.frombuffer(self.module["time_nodes"](1))
        total = float(seconds.sum())
        calls = tuple(self._call(i, float(spent), total) for i, spent in enumerate(seconds) if spent > 0)
        name = _device_name(self._devices[0])
        return Report(calls, {name: {"Duration (us)": total * 1e6, "Percent": 100.0}})

    def _call(self, index: int, spent: float, total: float) -> dict[str, Value]:
        """Return a report's entry of a node."""
        node = self._graph["nodes"][index]
        attrs: dict[str, str] = node["attrs"]
        first = self._graph["node_row_ptr"]
        entries = [first[source[0]] + source[1] for source in node["inputs"]] + [*range(first[index], first[index + 1])]
        shapes, dtypes = self._graph["attrs"]["shape"][1], self._graph["attrs"]["dltype"][1]
        call: dict[str, Value] = {
            "Name": attrs["func_name"],
            "Duration (us)": spent * 1e6,
            "Percent": 100 * spent / total,
            "Device": _device_name(self._devices[0]),
            "Count": 1,
            "Argument Shapes": ", ".join(f"{dtypes[e]}[{', '.join(map(str, shapes[e]))}]" for e in entries),
        }
        sources = self._graph.get("metadata", {}).get("sources", {}).get(node["name"])
        call |= {"Sources": ", ".join(sources)} if sources else {}
        call |= {"Hash": attrs["hash"]} if "hash" in attrs else {}
        return call | {key: value for key, value in attrs.items() if "layout" in key}

    def exit(self) -> None:
        """Remove the files."""
        shutil.rmtree(self._dump_root, ignore_errors=True)


def _device_name(device: Device) -> str:
    return str(device).replace("(", "").replace(")", "")
