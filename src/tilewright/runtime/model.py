"""``Model``: a compiled model that is called with arrays, whichever executor runs it.

``tilewright.load(path)`` opens a library that ``tilewright compile`` or ``Model.save`` wrote; ``tilewright.compile``
makes one of a model file.
"""

from __future__ import annotations

import json
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakValueDictionary

import numpy as np

from .container import ADT
from .device import Device, cpu
from .error import TVMError
from .executor.graph import GraphModule, real_array
from .fork import forked_lock
from .interface import Interface, Limits, TensorInfo, fits
from .module import Module, load_module, set_num_threads
from .ndarray import NDArray, from_dlpack, numpy_dtype, numpy_view, share_memory
from .profiler_vm import VirtualMachineProfiler
from .profiling import Report
from .state import first_state, next_of
from .vm import Executable, VirtualMachine

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Array = np.ndarray[Any, Any]

_ASYNC_RUNS = 4  # calls of run_async that run at the same time


class Model:
    """A compiled model.

    Any number of threads may call one at the same time: each call runs in memory of its own, and all share the weights.

    Args:
        module: the library's module.
        device: where it runs; the device that it was compiled for by default.
        threads: how many threads the loops of this process use from now on; None leaves that as it is, 0 restores
            ``TVM_NUM_THREADS``, or the cores.
        max_steps: how many calls and jumps back a run may make before it ends with an error, of models with control
            flow or dimensions that have names; None for any number.
    """

    def __init__(
        self,
        module: Module,
        device: Device | None = None,
        *,
        threads: int | None = None,
        max_steps: int | None = None,
    ) -> None:
        if threads is not None:
            set_num_threads(threads)
        self.module = module
        self._library = _open(module, device, max_steps)
        self._lock = threading.Lock()
        self._first_state = {name: np.array(numpy_view(value)) for name, value in first_state(module).items()}
        self._state = dict(self._first_state)
        self._turn = threading.Lock()
        self._background: ThreadPoolExecutor | None = None
        self.build_report: Any = None  # what compiling did (``relay.backend.progress.BuildReport``), where it was here

    @property
    def kind(self) -> str:
        """The executor: "graph" or "virtual machine"."""
        return self._library.kind

    @property
    def interface(self) -> Interface:
        """Inputs, outputs and named dimensions."""
        return self._library.interface

    @property
    def inputs(self) -> dict[str, TensorInfo]:
        """Data type and shape of each input by name; a dimension is a number, or a name of :attr:`dimensions`."""
        return {name: info for name, info in self._library.interface.inputs.items() if name not in self._first_state}

    @property
    def outputs(self) -> dict[str, TensorInfo]:
        """Data type and shape of each output by name; a dimension that is known after a run alone is ``"?"``."""
        hidden = {next_of(name) for name in self._first_state}
        return {name: info for name, info in self._library.interface.outputs.items() if name not in hidden}

    @property
    def state(self) -> dict[str, Array]:
        """Values that the model keeps from call to call, by name: the buffers that a PyTorch module writes.

        A library has the first values, with which :func:`load` begins. What :attr:`state` gives can be kept, and
        given back to :meth:`resume`.
        """
        return dict(self._state)

    def reset(self) -> None:
        """Give the state its first values again."""
        with self._turn:
            self._state = dict(self._first_state)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Give the state other values, all or some by name, such as those of an earlier :attr:`state`.

        Raises:
            TVMError: the model keeps nothing of a name, or a shape or data type differs.
        """
        for name in state:
            if name not in self._first_state:
                kept = ", ".join(self._first_state) or "nothing"
                raise TVMError(f"the model keeps no {name!r} from call to call; it keeps {kept}")
        values = {name: np.array(value) for name, value in self._values(state).items()}
        with self._turn:
            self._state = self._state | values

    @property
    def dimensions(self) -> dict[str, Limits]:
        """For each named dimension its minimum, its maximum (None: unbounded), and its divisor."""
        return dict(self._library.interface.limits)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model: inputs in order or by name; return the output, or a tuple of several.

        Args:
            args: numpy arrays, nested lists, torch tensors, or anything with ``__dlpack__``. Elements of numpy arrays
                and lists are cast to the input's data type; all else must have it.
            kwargs: further inputs by name.

        Returns:
            numpy arrays; torch tensors where an input is one. They share memory with no input and no other result.

        Raises:
            TVMError: an input has no value or two, does not exist, or a shape or data type differs.
        """
        results = self._outputs(self._by_name(args, kwargs))
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run with inputs by name; return all outputs by name, as :meth:`__call__` does."""
        if not isinstance(inputs, Mapping):
            raise TypeError(f"run takes a mapping of input names to values, not a {type(inputs).__name__}")
        return dict(zip(self.outputs, self._outputs(self._by_name((), inputs)), strict=True))

    def run_async(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run in the background, as :meth:`__call__` would; ``result()`` of the returned future waits for it."""
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            if self._background is None:
                self._background = ThreadPoolExecutor(_ASYNC_RUNS, "tilewright-model")
        return self._background.submit(self, *args, **kwargs)

    def profile(self, *args: Any, **kwargs: Any) -> Report:
        """Run once, after runs that do not count; return the time of each kernel call. Inputs as for a call."""
        return self._library.profile(self._in_order(self._values(self._by_name(args, kwargs))))

    def save(self, path: str | Path, **kwargs: Any) -> str:
        """Write the model to one shared library, which :func:`load` reads; options as ``export_library`` takes them.

        Raises:
            TVMError: the model was loaded from a library, which has the file already.
        """
        return self.module.export_library(path, **kwargs)

    def report(self) -> str:
        """Return inputs, outputs, dimensions, the kind of executor and what was quantized as lines of text."""
        interface = self._library.interface
        rows = [("executor", self._library.kind)]
        rows += [("input", f"{name}: {info}") for name, info in self.inputs.items()]
        rows += [("state", f"{name}: {interface.inputs[name]}") for name in self._first_state]
        rows += [("output", f"{name}: {info}") for name, info in self.outputs.items()]
        rows += [("dimension", interface.described(name)) for name in interface.limits]
        if self.build_report is not None:
            rows += [("quantized", line) for line in self.build_report.quantization()]
        return "\n".join(f"{head:10} {text}" for head, text in rows)

    def __repr__(self) -> str:
        return f"Model({', '.join(self.inputs)} -> {', '.join(self.outputs)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Model is not pickled: write it with model.save(path) and open that with tilewright.load")

    def _by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for each input, in the order of the inputs."""
        inputs = self.inputs if self._first_state else self._library.interface.inputs
        names = list(inputs)
        if len(args) > len(names):
            raise TVMError(f"the model takes {len(names)} inputs ({', '.join(names)}), not {len(args)}")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in inputs:
                raise TVMError(f"the model has no input {name!r}; its inputs are: {', '.join(names)}")
            if name in given:
                raise TVMError(f"the input {name!r} has two values: one by its place and one by its name")
            given[name] = value
        missing = [f"{name} ({inputs[name]})" for name in names if given.get(name) is None]
        if missing:
            raise TVMError(f"no value is given for the inputs: {', '.join(missing)}")
        return {name: given[name] for name in names}

    def _values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _value(name, self._library.interface.inputs[name], value) for name, value in given.items()}

    def _outputs(self, given: Mapping[str, Any]) -> list[Any]:
        values = self._values(given)
        results = self._run_with_state(values) if self._first_state else self._run(values)
        return [_as_torch(r) for r in results] if any(map(_is_torch, given.values())) else results

    def _run(self, values: Mapping[str, Any]) -> list[Array]:
        with self._runner() as run:
            return run(values)

    def _in_order(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all inputs, the state's included, in the order of the library's inputs."""
        return {
            name: self._state[name] if name in self._state else values[name] for name in self._library.interface.inputs
        }

    def _run_with_state(self, values: Mapping[str, Any]) -> list[Array]:
        """Run with the state, and keep its next values."""
        with self._turn:
            results = dict(zip(self._library.interface.outputs, self._run(self._in_order(values)), strict=True))
            self._state = {name: results.pop(next_of(name)) for name in self._state}
        return list(results.values())

    @contextmanager
    def _runner(self) -> Iterator[_Run]:
        """Lend an idle executor, or a new one; there are as many as calls ran at the same time."""
        idle = self._library.idle
        with self._lock:
            run = idle.pop() if idle else None
        run = run or self._library.executor()
        try:
            yield run
        finally:
            with self._lock:
                idle.append(run)


def load(
    path: str | Path,
    device: Device | None = None,
    *,
    threads: int | None = None,
    max_steps: int | None = None,
    verify: bool = False,
) -> Model:
    """Open a library that ``tilewright compile`` or ``Model.save`` wrote. Loading runs code of the file: trust it.

    Models of one file in one process share their weights, also those that are prepared when it is loaded.

    Args:
        path: the library.
        device: as for :class:`Model`.
        threads: as for :class:`Model`.
        max_steps: as for :class:`Model`.
        verify: compare the file with the checksum at its end first.

    Raises:
        TVMError: the file is no library, damaged, not for this processor, or holds code but no model.
    """
    file = Path(path)
    if not file.is_file():
        raise TVMError(f"{file}: there is no such file")
    return Model(_shared_module(file, verify), device, threads=threads, max_steps=max_steps)


_loaded: WeakValueDictionary[tuple[object, ...], Module] = WeakValueDictionary()  # by path, file and time of change
_loading = forked_lock()


def _shared_module(file: Path, verify: bool) -> Module:
    """Return the module of a library that other models in this process have of the file, if any do, else a new one.

    Models of one module share the weights that are prepared from others. The file is opened and checked in any case.
    """
    path = file.resolve()
    found = path.stat()
    key = path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
    module = load_module(str(file), verify=verify)
    with _loading:
        return _loaded.setdefault(key, module)


# ---- what runs a model ----

_Run = Callable[[Mapping[str, Any]], list[Array]]  # from values by name, in the order of the inputs, to the outputs


class _Library(ABC):
    """A model's interface, its idle executors, and the factory of others."""

    kind: str
    interface: Interface
    idle: list[_Run]

    @abstractmethod
    def executor(self) -> _Run:
        """Return a new executor, for one run at a time."""

    @abstractmethod
    def profile(self, values: Mapping[str, Any]) -> Report:
        """Run with times."""


def _open(module: Module, device: Device | None, max_steps: int | None) -> _Library:
    if holds_program(module):
        return _Program(module, device, max_steps)
    try:
        make = module["default"]
    except AttributeError:
        raise TVMError("the library has no network named 'default', as `tilewright compile` makes") from None
    devices = [device] if device is not None else [Device(kind, 0) for kind in device_types(graph_document(module))]
    return _Graph(module, make, devices or [cpu()])


def holds_program(module: Module) -> bool:
    """Return whether a library's module is a program of the virtual machine."""
    return module.implements_function("vm_load_executable")


def graph_document(module: Module) -> dict[str, Any]:
    """Return a graph's JSON; its ``metadata`` has ``sources``: of each node, the model's nodes that it computes."""
    document: dict[str, Any] = json.loads(module["get_graph_json"]())
    return document


def device_types(document: Mapping[str, Any]) -> list[int]:
    """Return the device types of a graph's tensors, its first tensor's first; empty if there is only one."""
    return list(dict.fromkeys(filter(None, document["attrs"].get("device_index", (None, ()))[1])))


class _Graph(_Library):
    """A model for the graph executor."""

    kind = "graph"

    def __init__(self, module: Module, make: Any, devices: list[Device]) -> None:
        self._module, self._make, self._devices = module, make, devices
        first = GraphModule(make(*devices), strict=True)
        self.interface = Interface(_infos(*first.get_input_info()), _infos(*first.get_output_info()), {})
        self.idle = [self._run_on(first)]

    def executor(self) -> _Run:
        """Return an executor; all of a library share its weights."""
        return self._run_on(GraphModule(self._make(*self._devices), strict=True))

    @staticmethod
    def _run_on(executor: GraphModule) -> _Run:
        return lambda values: list(executor.infer(values).values())

    def profile(self, values: Mapping[str, Any]) -> Report:
        """Run with times."""
        from .executor.debug import GraphModuleDebug

        graph = self._module["get_graph_json"]()
        executor = GraphModuleDebug(self._module["debug_create"]("default", *self._devices), self._devices, graph)
        executor.set_input(dict(values))
        return executor.profile()


def _infos(shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]) -> dict[str, TensorInfo]:
    return {name: TensorInfo(shape, dtypes[name]) for name, shape in shapes.items()}


class _Program(_Library):
    """A model for the virtual machine."""

    kind = "virtual machine"

    def __init__(self, module: Module, device: Device | None, max_steps: int | None) -> None:
        self._executable = Executable(module)
        self._device, self._max_steps = device or cpu(), max_steps
        text = self._executable.interface
        if not text:
            raise TVMError("the library holds a program of the virtual machine without a description of its inputs")
        self.interface = Interface.parse(text)
        self.idle = []

    def executor(self) -> _Run:
        """Return a machine; all share the program and its constants."""
        machine = self._limited(VirtualMachine(self._executable, self._device))
        return lambda values: _owned(tensors_in(machine.run(*values.values())), values.values())

    def profile(self, values: Mapping[str, Any]) -> Report:
        """Run with times."""
        machine = VirtualMachineProfiler(self._executable, self._device)
        self._limited(machine)
        return machine.profile(*values.values())

    def _limited(self, machine: VirtualMachine) -> VirtualMachine:
        if self._max_steps is not None:
            machine.set_limits(calls=self._max_steps)
        return machine


# ---- values ----


def tensors_in(value: Any) -> list[NDArray]:
    """Return the tensors of a machine's result, those of tuples one by one."""
    if isinstance(value, ADT):
        return [leaf for i in range(len(value)) for leaf in tensors_in(value[i])]
    return [value]


def _owned(results: Sequence[NDArray], inputs: Iterable[Any]) -> list[Array]:
    """Return a machine's results as numpy arrays: without a copy if the host can access the memory of a result.

    A program may give an input, or one result twice. Such a result is copied: whoever gets it may write to it.
    """
    taken: list[Array] = [numpy_view(x) for x in inputs if isinstance(x, NDArray) and x.device.is_host]
    made = []
    for result in results:
        shared = result.device.is_host and result.writeable
        array = numpy_view(result, writable=True) if shared else result.numpy()
        if shared and any(np.may_share_memory(array, other) for other in taken):
            array = array.copy()
        taken.append(array)
        made.append(array)
    return made


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _as_torch(result: Array) -> Any:
    return sys.modules["torch"].from_dlpack(share_memory(result))


def _shared(name: str, info: TensorInfo, value: Any) -> NDArray:
    """Return an array that shares memory with a tensor of another library."""
    try:
        return from_dlpack(value.detach() if _is_torch(value) else value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # no memory to share: sparse, or another device
        where = f" on the device {value.device}" if hasattr(value, "device") else ""
        raise TVMError(f"the input {name!r} takes {info}, and a value{where} cannot be read: {error}") from error


def _value(name: str, info: TensorInfo, value: Any) -> Any:
    """Convert a value for the executors; numpy-compatible ones get the input's dtype."""
    made: Any
    if isinstance(value, NDArray) or (hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)):
        made = value if isinstance(value, NDArray) else _shared(name, info, value)
        shape = made.shape
        if made.dtype != info.dtype:
            raise TVMError(f"the input {name!r} takes {info}; a value has the data type {made.dtype}")
    else:
        try:
            made = real_array(name, value, numpy_dtype(info.dtype))
        except TypeError as error:
            raise TVMError(str(error)) from None
        shape = made.shape
    if not fits(shape, info):
        raise TVMError(f"the input {name!r} takes {info}; a value has the shape {shape}")
    return made
