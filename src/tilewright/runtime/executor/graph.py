"""The graph executor: runs a compiled graph through the native runtime."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..device import Device, cpu
from ..error import TVMError
from ..module import BenchmarkResult, Module
from ..ndarray import NDArray, numpy_dtype, numpyasarray
from ..packed_func import PackedFunc
from ..registry import need_global_func
from .access import Output, access_to


def create(graph_json_str: str, libmod: Module, device: Device | Sequence[Device]) -> GraphModule:
    """Return an executor for a graph whose operators are functions of a module.

    Args:
        graph_json_str: the graph of ``relay.build`` (text, or an object with ``get_graph_json()``).
        libmod: the compiled functions.
        device: where to run; several for a graph whose tensors live on several, one of each type.

    Raises:
        TVMError: the text is no graph, the module lacks functions that it calls, or a device is missing.
    """
    text = graph_json_str if isinstance(graph_json_str, str) else graph_json_str.get_graph_json()
    devices = as_devices(device)
    library = libmod if isinstance(libmod, Module) else libmod.module
    return GraphModule(creator("tvm.graph_executor.create", devices)(text, library, *devices))


def creator(name: str, devices: Sequence[Device]) -> Callable[..., Any]:
    """Return the global function of that name on the devices' machine: this one, or that of their RPC session."""
    session = getattr(devices[0], "session", None) if devices else None
    found: Callable[..., Any] = need_global_func(name) if session is None else session.get_function(name)
    return found


def as_devices(device: Device | Sequence[Device]) -> list[Device]:
    """A device, or several, as a list."""
    devices = [device] if isinstance(device, Device) else list(device)
    if not all(isinstance(item, Device) for item in devices):
        raise TypeError(f"an executor runs on devices, such as tvm.cpu(0); not on {device!r}")
    return devices


def _kind(value: Any) -> str:
    """A value's type, as messages name it."""
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _shared(value: Any) -> Any:
    """Return a value's memory for a packed function."""
    return numpyasarray(value) if isinstance(value, np.ndarray) else value


def real_array(key: str | int, value: Any, wanted: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return an input's value as an array of dtype ``wanted``; TypeError where it is no array of real numbers."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise TypeError(f"the value of input {key!r} is no array of numbers: {error}") from None
    if array.dtype == wanted:
        return array
    if array.dtype.kind not in "biufV" or (array.dtype.kind == "V" and array.dtype.names):
        raise TypeError(
            f"input {key!r} takes {wanted}; {_kind(value)} and dtype {array.dtype} is no array of real numbers"
        )
    return array.astype(wanted)


def _items(
    who: str, key: str | int | Mapping[str, Any] | None, value: Any, params: Mapping[str, Any]
) -> list[tuple[str | int, Any]]:
    """The inputs that a call sets, checked so far as no executor is needed for it."""
    items: list[tuple[str | int, Any]]
    if isinstance(key, Mapping):
        if value is not None:
            raise TypeError(f"{who} takes a mapping of names to values alone, or a name and a value")
        items = list(key.items())
    elif key is None and value is None:
        items = []
    else:
        items = [(key, value)]  # type: ignore[list-item]
    items += params.items()
    for name, item in items:
        if isinstance(name, bool) or not isinstance(name, (str, int, np.integer)):
            raise TypeError(
                f"{who} takes the name or the index of an input, or a mapping of names to values; not {_kind(name)}"
            )
        if item is None:
            raise TypeError(f"{who}: no value is given for input {name!r}")
    return items


class GraphModule:
    """A graph that is ready to run, with its inputs, parameters and outputs.

    ``GraphModule(lib["default"](dev))`` wraps the executor that an exported library makes, and
    ``lib["default"](dev0, dev1)`` one whose tensors live on several devices. ``infer`` may be called from any thread;
    everything else is for one thread at a time, and is an error while another thread uses the executor.

    Args:
        module: the executor module.
        strict: whether a run with inputs or parameters that nobody has set is an error. They are 0; without ``strict``
            the first such run warns and names them.
    """

    def __init__(self, module: Module, strict: bool = False) -> None:
        """Wrap an executor module."""
        self.module = module
        self.strict = strict
        self._may_be_unset = True
        self._input_dtypes: dict[str | int, np.dtype[Any]] = {}
        self._access = access_to(module)
        self._run = self._access.run
        self._get_output = self._access.get_output
        self._get_input = self._access.get_input
        self._get_num_outputs = module["get_num_outputs"]
        self._get_num_inputs = module["get_num_inputs"]
        self._get_input_index = module["get_input_index"]
        self._load_params = module["load_params"]
        self._share_params = module["share_params"]

    def set_input(self, key: str | int | Mapping[str, Any] | None = None, value: Any = None, **params: Any) -> None:
        """Copy values into inputs.

        Args:
            key: name or index of one input, or a mapping of names to values.
            value: its value: an NDArray, numpy array, nested lists, or anything with ``__dlpack__``, of the input's
                shape. Elements of numpy arrays, numbers and lists are cast to the input's dtype, as TVM does; all else
                must have that dtype.
            params: further inputs by name. Names of no input are passed over, with a warning: compiling may have folded
                a parameter.

        Raises:
            TVMError: an input does not exist, or a shape or dtype differs.
            TypeError: the key is no name, index or mapping; or the value is no array of numbers.
        """
        for name, item in _items("set_input", key, value, self._known(params)):
            self._access.set_input(name, self._tensor(name, item))

    def _known(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return those of ``params`` that are inputs; warn of other names, which TVM ignores."""
        unknown = [name for name in params if self._get_input_index(name) < 0]
        if unknown:
            names = ", ".join(self.get_input_names())
            text = f"the graph has no inputs of these names, whose values have no effect: {', '.join(unknown)}; "
            warnings.warn(f"{text}its inputs are: {names}", RuntimeWarning, stacklevel=3)
        return {name: value for name, value in params.items() if name not in unknown}

    def _tensor(self, key: str | int, value: Any) -> Any:
        """Convert a value for a packed function: a numpy-compatible one gets the input's dtype."""
        if isinstance(value, NDArray) or (hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)):
            return value
        wanted = self._input_dtypes.get(key)
        if wanted is None:
            wanted = self._input_dtypes[key] = numpy_dtype(self._access.input_dtype(key))
        return real_array(key, value, wanted)

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Return the shapes and the dtypes of the inputs by name, without parameters."""
        return self._infos("describe_input", self.get_input_names())

    def get_output_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Return the shapes and the dtypes of the outputs by name."""
        return self._infos("describe_output", self.get_output_names())

    def _infos(self, function: str, names: Sequence[str]) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        infos = {name: self._access.describe(function, name) for name in names}
        return {name: shape for name, (shape, _) in infos.items()}, {name: dtype for name, (_, dtype) in infos.items()}

    def infer(self, inputs: Mapping[str, Any] | None = None, /, **more: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Set inputs, run, and return copies of all outputs, by name.

        Any thread may call this at any time: calls wait for one another. (To run at the same time, make an executor for
        each thread; those of one library share its weights.) Every input that is no parameter needs a value; values
        passed to a call hold for that call only.

        Args:
            inputs: values by name, as :meth:`set_input` takes them.
            more: further inputs by name.

        Raises:
            TVMError: an input has no value or does not exist, or a shape or dtype differs.
        """
        if inputs is not None and not isinstance(inputs, Mapping):
            raise TypeError(f"infer takes a mapping of input names to values, not {_kind(inputs)}")
        given = {**(inputs or {}), **more}
        values = {name: self._tensor(name, value) for name, value in given.items()}
        arrays = self._access.infer(values, self._outputs)
        return {name: array for (name, _, _), array in zip(self._outputs, arrays, strict=True)}

    @cached_property
    def _outputs(self) -> list[Output]:
        """Name, shape and numpy's dtype of each output."""
        infos = [self._access.describe("describe_output", index) for index in range(self.get_num_outputs())]
        return [(n, shape, numpy_dtype(t)) for n, (shape, t) in zip(self.get_output_names(), infos, strict=True)]

    def set_input_zero_copy(
        self, key: str | int | Mapping[str, Any] | None = None, value: Any = None, **params: Any
    ) -> None:
        """Let inputs use the memory of arrays instead of copying them.

        The memory must be row-major without gaps and aligned to 64 bytes, as that of ``tvm.nd.empty`` is. It
        stays alive as long as the executor uses it.

        Args:
            key: name or index of one input, or a mapping of names to values.
            value: an NDArray, a numpy array, or anything with ``__dlpack__``.
            params: further inputs by name.
        """
        for name, item in _items("set_input_zero_copy", key, value, params):
            self._zero_copy(name, item)

    def _zero_copy(self, key: str | int, value: Any) -> None:
        self.module["set_input_zero_copy"](key, _shared(value))

    def set_output_zero_copy(self, key: str | int, value: Any) -> None:
        """Let runs write an output into an array.

        An output that shares its memory with another tensor (an input, a part of a concatenation, another output) is
        copied there at the end of each run instead.

        Args:
            key: name or index of the output.
            value: an NDArray, a numpy array, or anything with ``__dlpack__``; of the output's shape and dtype, row-
                major without gaps and aligned to 64 bytes. It stays alive as long as the executor uses it.

        Raises:
            TVMError: the output does not exist, or the array is not of that kind.
        """
        self.module["set_output_zero_copy"](key, _shared(value))

    def run(self, **input_dict: Any) -> None:
        """Run the graph, after setting inputs by name."""
        if input_dict:
            self.set_input(**input_dict)
        if self._may_be_unset:
            self._look_for_unset()
        self._run()

    def run_from_inputs(self, device: Device | None = None, **inputs: Any) -> list[NDArray]:
        """Set inputs by name, run, and return copies of all outputs.

        Args:
            device: where the copies shall lie; the CPU by default.
            inputs: values, as :meth:`set_input` takes them.
        """
        self.run(**inputs)
        where = device if device is not None else cpu()
        return [self.get_output(index).copyto(where) for index in range(self.get_num_outputs())]

    def _look_for_unset(self) -> None:
        """Report inputs that nobody has set: once in a warning, or in an error if the module is strict."""
        unset = self._access.unset_inputs()
        if unset and self.strict:
            raise TVMError(f"nobody has set the inputs: {unset}")
        self._may_be_unset = False
        if unset:
            warnings.warn(f"the graph runs with inputs that nobody has set: {unset}", RuntimeWarning, stacklevel=3)

    @property
    def num_outputs(self) -> int:
        """The number of outputs."""
        return self.get_num_outputs()

    def get_num_outputs(self) -> int:
        """Return the number of outputs."""
        return int(self._get_num_outputs())

    def get_num_inputs(self) -> int:
        """Return the number of inputs, parameters included, as TVM counts them."""
        return int(self._get_num_inputs())

    def get_input(self, index: int | str, out: NDArray | None = None) -> NDArray:
        """Return an input's array by index or name, or copy it to ``out``.

        The array is the executor's memory: writing to it sets the input. For a parameter shared with other executors it
        is a read-only view; :meth:`set_input` makes this executor a copy of its own.
        """
        array = self._get_input(index)
        return array.copyto(out) if out is not None else array

    def get_input_index(self, name: str) -> int:
        """Return the index of an input, or -1."""
        return int(self._get_input_index(name))

    def get_input_names(self) -> list[str]:
        """Return the names of the inputs that are no parameters."""
        return self._access.input_names()

    def get_output_names(self) -> list[str]:
        """Return the names of the outputs: the model's, or output_0, output_1, ..."""
        name_of = self.module["get_output_name"]
        return [name_of(index) for index in range(self.get_num_outputs())]

    def get_output_index(self, name: str) -> int:
        """Return the index of an output, or -1."""
        return int(self.module["get_output_index"](name))

    def get_output(self, index: int | str, out: NDArray | None = None) -> NDArray:
        """Return an output.

        Args:
            index: which one, by index or name.
            out: an array to copy it to; without it a view of the executor's memory is returned, which may be written to
                and the next run changes. An output that is made of parameters alone is a copy.
        """
        if out is None:
            return self._get_output(index)
        self._access.copy_output(index, out)
        return out

    def debug_get_output(self, node: int | str, out: NDArray) -> NDArray:
        """Run up to a node (by index or name) and copy its first output to ``out``."""
        self.module["debug_get_output"](node, out)
        return out

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Set parameters from the bytes of ``save_param_dict``."""
        self._load_params(bytes(params_bytes))

    def share_params(self, other: GraphModule, params_bytes: bytes | bytearray) -> None:
        """Use another executor's arrays for the parameters named in ``params_bytes``, without a copy."""
        self._share_params(other.module, bytes(params_bytes))

    def time_nodes(self, number: int = 10, processor: bool = False) -> list[tuple[str, float]]:
        """Run the graph and return name and mean seconds of each operator, in the order of execution.

        Args:
            number: how many runs to average over; one more before them is not counted.
            processor: count the time that this thread has a processor, not what passes meanwhile; of several threads'
                work it is this thread's share.
        """
        self.run()
        seconds = np.frombuffer(self.module["time_nodes"](number, *([True] if processor else [])))
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
            end_to_end: whether setting the inputs and copying the outputs out are part of a run (``func_name`` is not
                used then).
            kwargs: inputs to set before measuring (with ``end_to_end``: in each run).
        """
        where = device if device is not None else cpu()
        inputs = self._known(kwargs)
        self.set_input(inputs)
        self._look_for_unset()
        if not end_to_end:
            return self.module.time_evaluator(func_name, where, number, repeat, min_repeat_ms)()
        pairs = [item for name, value in inputs.items() for item in (name, self._tensor(name, value))]
        return self.module.time_evaluator("run_from_inputs", where, number, repeat, min_repeat_ms)(where, *pairs)
