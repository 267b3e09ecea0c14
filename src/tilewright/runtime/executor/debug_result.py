"""Results of ``GraphModuleDebug``: files and table in TVM 0.8's names and formats."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..ndarray import NDArray
from ..params import save_param_dict

GRAPH_DUMP_FILE_NAME = "_tvmdbg_graph_dump.json"
CHROME_TRACE_FILE_NAME = "_tvmdbg_execution_trace.json"
TENSORS_FILE_NAME = "output_tensors.params"
_HEADER = ("Node Name", "Ops", "Time(us)", "Time(%)", "Shape", "Inputs", "Outputs")


class ChromeTraceEvent(NamedTuple):
    """The begin ("B") or end ("E") of a node, ``ts`` microseconds after the run's begin."""

    ts: float
    tid: int
    pid: int
    name: str
    ph: str


class DebugResult:
    """A graph, the seconds of its nodes and their outputs; writes the graph to ``dump_path`` at once.

    Args:
        graph_json: the graph.
        dump_path: the folder for files.
    """

    def __init__(self, graph_json: str, dump_path: str | Path) -> None:
        self._dump_path = Path(dump_path)
        self._output_tensor_list: list[NDArray] = []
        self._time_list: list[list[float]] = []
        graph = json.loads(graph_json)
        self._shapes_list: list[Any] = graph["attrs"]["shape"]
        self._dtype_list: list[Any] = graph["attrs"]["dltype"]
        self._nodes_list: list[dict[str, Any]] = graph["nodes"]
        self._describe_nodes(graph["node_row_ptr"])
        (self._dump_path / GRAPH_DUMP_FILE_NAME).write_text(json.dumps(graph, indent=4))

    def _describe_nodes(self, first_entries: Sequence[int]) -> None:
        """Set each node's inputs, its function as ``op``, and its first output's type and shape."""
        names = [node["name"] for node in self._nodes_list]
        for node, entry in zip(self._nodes_list, first_entries, strict=False):
            node["inputs"] = [names[source[0]] for source in node["inputs"]]
            node["op"] = node["attrs"]["func_name"] if "attrs" in node else "param"
            node["attrs"] = {**node.get("attrs", {}), "T": f"type: {self._dtype_list[1][entry]}"}
            node["shape"] = self._shapes_list[1][entry]

    def get_graph_nodes(self) -> list[dict[str, Any]]:
        """Return the nodes."""
        return self._nodes_list

    def get_graph_node_shapes(self) -> list[Any]:
        """Return the shapes of all outputs of all nodes, as the graph JSON has them."""
        return self._shapes_list

    def get_graph_node_dtypes(self) -> list[Any]:
        """Return the data types of all outputs of all nodes, as the graph JSON has them."""
        return self._dtype_list

    def get_graph_node_output_num(self, node: dict[str, Any]) -> int:
        """Return how many outputs a node has."""
        return 1 if node["op"] == "param" else int(node["attrs"]["num_outputs"])

    def set_times(self, seconds: Sequence[float]) -> None:
        """Record the time of each node's call."""
        self._time_list = [[float(spent)] for spent in seconds]

    def update_output_tensors(self, tensors: Sequence[NDArray]) -> None:
        """Record the outputs of all nodes, in order, replacing those of the previous run."""
        self._output_tensor_list = list(tensors)

    def _outputs(self) -> Iterator[tuple[dict[str, Any], int, NDArray]]:
        tensors = iter(self._output_tensor_list)
        for node in self._nodes_list:
            for index in range(self.get_graph_node_output_num(node)):
                yield node, index, next(tensors)

    def get_output_tensors(self) -> dict[str, NDArray]:
        """Return the outputs of all nodes, by the node's name, ``_`` and the output's number."""
        return {f"{node['name']}_{index}": tensor for node, index, tensor in self._outputs()}

    def dump_output_tensor(self) -> None:
        """Write the outputs of all nodes, named ``NODE____NUMBER``, as ``load_param_dict`` reads them."""
        tensors = {f"{node['name']}____{index}": tensor for node, index, tensor in self._outputs()}
        (self._dump_path / TENSORS_FILE_NAME).write_bytes(save_param_dict(tensors))

    def dump_chrome_trace(self) -> None:
        """Write the times for ``chrome://tracing``, one node after the other."""
        ends = np.cumsum([0.0, *(spent for (spent,) in self._time_list)]) * 1e6
        events = [
            ChromeTraceEvent(float(at), 1, 1, node["name"], mark)._asdict()
            for i, node in enumerate(self._nodes_list)
            for mark, at in (("B", ends[i]), ("E", ends[i + 1]))
        ]
        document = {"displayTimeUnit": "ns", "traceEvents": events}
        (self._dump_path / CHROME_TRACE_FILE_NAME).write_text(json.dumps(document))

    def get_debug_result(self, sort_by_time: bool = True) -> str:
        """Return a table of the operators: time, share of the whole, shape, numbers of inputs and outputs.

        Args:
            sort_by_time: whether the longest comes first, with the sum in a last line.
        """
        seconds = {id(node): spent for node, (spent,) in zip(self._nodes_list, self._time_list, strict=True)}
        total = sum(seconds.values())
        rows: list[list[Any]] = []
        for node, _, tensor in self._outputs():
            if node["op"] == "param":
                continue
            spent = seconds[id(node)]
            share = round(100 * spent / total, 3) if total else 0.0
            counts = [node["attrs"]["num_inputs"], node["attrs"]["num_outputs"]]
            rows.append([node["name"], node["op"], round(spent * 1e6, 3), share, str(tensor.shape), *counts])
        if sort_by_time:
            rows.sort(key=lambda row: -row[2])
            rows.append(["Total_time", "-", round(total * 1e6, 3), *"-" * 4])
        return _table([_HEADER, ["-" * len(name) for name in _HEADER], *rows])

    def display_debug_result(self, sort_by_time: bool = True) -> None:
        """Print the table."""
        print(self.get_debug_result(sort_by_time))


def _table(rows: Sequence[Sequence[Any]]) -> str:
    widths = [max(len(str(row[i])) for row in rows) + 2 for i in range(len(rows[0]))]
    return "\n".join("".join(str(c).ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows)
