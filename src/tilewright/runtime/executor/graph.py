"""The graph executor: runs a compiled graph through the native runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device import Device, cpu
from ..dtype import DataType
from ..module import BenchmarkResult, Module
from ..ndarray import NDArray, numpyasarray
from ..packed_func import PackedFunc
from ..registry import need_global_func


def create(graph_json_str: str, libmod: Module, device: Device | Sequence[Device]) -> GraphModule:
    """Return an executor for a graph whose operators are functions of a module.

    Args:
        graph_json_str: the graph, as ``relay.build`` gives it (text, or an object with ``get_graph_json()``).
        libmod: the compiled functions.
        device: where to run.

    Raises:
        TVMError: the text is no graph, or the module lacks functions that it calls.
    """
    text = graph_json_str if isinstance(graph_json_str, str) else graph_json_str.get_graph_json()
    make = need_global_func("tvm.graph_executor.create")
    library = libmod if isinstance(libmod, Module) else libmod.module
    return GraphModule(make(text, library, _single(device)))


def _single(device: Device | Sequence[Device]) -> Device:
    if isinstance(device, Device):
        return device
    devices = list(device)
    if len(devices) != 1:
        raise ValueError(f"a graph runs on one device; {len(devices)} were given")
    return devices[0]


class GraphModule:
    """A graph that is ready to run, with its inputs, parameters and outputs.

    ``GraphModule(lib["default"](dev))`` wraps the executor that an exported library makes.
    """

    def __init__(self, module: Module) -> None:
        """Wrap an executor module."""
        self.module = module
        self._set_input = module["set_input"]
        self._run = module["run"]
        self._get_output = module["get_output"]
        self._get_input = module["get_input"]
        self._get_num_outputs = module["get_num_outputs"]
        self._get_num_inputs = module["get_num_inputs"]
        self._get_input_index = module["get_input_index"]
        self._load_params = module["load_params"]
        self._share_params = module["share_params"]

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Copy values into inputs.

        Args:
            key: name or index of one input.
            value: its value: an NDArray, numpy array, nested lists, or anything with ``__dlpack__``; shape
                and dtype must be the input's.
            params: further inputs by name.

        Raises:
            TVMError: an input does not exist, or a shape or dtype differs.
        """
        if key is not None:
            self._set_input(key, self._tensor(key, value))
        for name, item in params.items():
            self._set_input(name, self._tensor(name, item))

    def _tensor(self, key: str | int, value: Any) -> Any:
        """Return a value as packed functions take it; Python numbers and lists get the input's dtype."""
        if isinstance(value, (NDArray, np.ndarray)) or hasattr(value, "__dlpack__"):
            return value
        if hasattr(value, "dtype"):
            return np.asarray(value)
        if isinstance(key, str) and self._get_input_index(key) < 0:
            return np.asarray(value)  # the executor names the inputs there are
        return np.asarray(value, DataType(self._get_input(key).dtype).to_numpy())

    def set_input_zero_copy(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Let inputs use the memory of arrays instead of copying them.

        The memory must be row-major without gaps and aligned to 64 bytes, as that of ``tvm.nd.empty`` is. It
        stays alive as long as the executor uses it.

        Args:
            key: name or index of one input.
            value: an NDArray, a numpy array, or anything with ``__dlpack__``.
            params: further inputs by name.
        """
        if key is not None:
            self._zero_copy(key, value)
        for name, item in params.items():
            self._zero_copy(name, item)

    def _zero_copy(self, key: str | int, value: Any) -> None:
        shared = numpyasarray(value) if isinstance(value, np.ndarray) else value
        self.module["set_input_zero_copy"](key, shared)

    def run(self, **input_dict: Any) -> None:
        """Run the graph, after setting inputs by name."""
        if input_dict:
            self.set_input(**input_dict)
        self._run()

    def get_num_outputs(self) -> int:
        """Return the number of outputs."""
        return int(self._get_num_outputs())

    def get_num_inputs(self) -> int:
        """Return the number of inputs, parameters included."""
        return int(self._get_num_inputs())

    def get_input(self, index: int | str, out: NDArray | None = None) -> NDArray:
        """Return an input's array by index or name, or copy it to ``out``."""
        array = self._get_input(index)
        return array.copyto(out) if out is not None else array

    def get_input_index(self, name: str) -> int:
        """Return the index of an input, or -1."""
        return int(self._get_input_index(name))

    def get_input_names(self) -> list[str]:
        """Return the names of all inputs, parameters included."""
        name_of = self.module["get_input_name"]
        return [name_of(index) for index in range(self.get_num_inputs())]

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """Return an output.

        Args:
            index: which one.
            out: an array to copy it to; without it the executor's own array is returned, which the next run
                changes.
        """
        if out is not None:
            self._get_output(index, out)
            return out
        return self._get_output(index)

    def debug_get_output(self, node: int | str, out: NDArray) -> NDArray:
        """Run up to a node (by index or name) and copy its first output to ``out``."""
        self.module["debug_get_output"](node, out)
        return out

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Set parameters from what ``save_param_dict`` returned."""
        self._load_params(bytes(params_bytes))

    def share_params(self, other: GraphModule, params_bytes: bytes | bytearray) -> None:
        """Use another executor's arrays for the parameters named in ``params_bytes``, without a copy."""
        self._share_params(other.module, bytes(params_bytes))

    def time_nodes(self, number: int = 10) -> list[tuple[str, float]]:
        """Run the graph and return name and mean seconds of each operator, in the order of execution.

        Args:
            number: how many runs to average over; one more before them is not counted.
        """
        self._run()
        seconds = np.frombuffer(self.module["time_nodes"](number))
        name_of = self.module["get_node_name"]
        return [(name_of(index), float(spent)) for index, spent in enumerate(seconds) if spent > 0]

    def __getitem__(self, key: str) -> PackedFunc:
        """Return a function of the executor by name."""
        return self.module[key]

    def benchmark(
        self,
        device: Device | None = None,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int = 0,
        end_to_end: bool = False,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Measure the time of a run.

        Args:
            device: where it runs; the CPU by default.
            func_name: which function of the executor.
            repeat: how many times to measure.
            number: runs a measurement.
            min_repeat_ms: a measurement is prolonged until it takes as many milliseconds.
            end_to_end: whether setting the inputs and copying the outputs out are part of a run.
            kwargs: inputs to set before measuring (with ``end_to_end``: in each run).
        """
        where = device if device is not None else cpu()
        if not end_to_end:
            self.set_input(**kwargs)
            return self.module.time_evaluator(func_name, where, number, repeat, min_repeat_ms)()
        return self._benchmark_end_to_end(func_name, repeat, number, min_repeat_ms, kwargs)

    def _benchmark_end_to_end(
        self, func_name: str, repeat: int, number: int, min_repeat_ms: int, inputs: dict[str, Any]
    ) -> BenchmarkResult:
        from time import perf_counter

        function = self.module[func_name]
        outputs = [self.get_output(index).copyto(cpu()) for index in range(self.get_num_outputs())]

        def once() -> None:
            self.set_input(**inputs)
            function()
            for index, out in enumerate(outputs):
                self._get_output(index, out)

        once()
        results = []
        for _ in range(repeat):
            runs, start = 0, perf_counter()
            while runs < number or perf_counter() - start < min_repeat_ms / 1000:
                once()
                runs += 1
            results.append((perf_counter() - start) / runs)
        return BenchmarkResult.of(tuple(results))
