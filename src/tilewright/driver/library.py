"""Loading the argument of ``run`` and ``bench``: a compiled library, or with ``--compile`` a model."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.driver.board import Board, Here, place_of
from tilewright.driver.options import check_is_file
from tilewright.runtime.device import Device
from tilewright.runtime.error import TVMError
from tilewright.runtime.executor.graph import GraphModule
from tilewright.runtime.interface import Interface, TensorInfo
from tilewright.runtime.model import device_types, graph_document, holds_program, tensors_in
from tilewright.runtime.module import Module
from tilewright.runtime.profiler_vm import profiled
from tilewright.runtime.state import first_state
from tilewright.runtime.vm import Executable, VirtualMachine

if TYPE_CHECKING:
    from tilewright.driver.compile import Compiled
    from tilewright.report.passes import PassRecorder

_ELF_MAGIC = b"\x7fELF"


@dataclass(frozen=True)
class Library:
    """The executor of a library and its place, its inputs without parameters, and the names of its outputs."""

    path: Path
    place: Here
    device: Device
    executor: GraphModule | Machine
    inputs: dict[str, TensorInfo]
    outputs: tuple[str, ...]
    interface: Interface | None = None  # of a library with named dimensions
    sources: Mapping[str, list[str]] = field(default_factory=dict)  # of each graph node, the model's nodes it computes
    state: tuple[str, ...] = ()  # inputs that have their first values, and are none of ``inputs``
    graph: Mapping[str, Any] | None = None  # that the executor runs
    compiled: Compiled | None = None  # where the model was compiled for this

    def at(self, numbers: Mapping[str, int]) -> Library:
        """The library with numbers for its named dimensions."""
        if self.interface is None:
            if numbers:
                raise TVMError(f"--dim {next(iter(numbers))}: all dimensions of {self.path} have numbers")
            return self
        inputs = self.interface.at(numbers)
        return replace(self, inputs={name: info for name, info in inputs.items() if name not in self.state})

    def limit_steps(self, most: int | None) -> None:
        """Bound the calls and jumps back of a run; graphs have none, and always end."""
        if most is not None and isinstance(self.executor, Machine):
            self.executor.machine.set_limits(calls=most)

    def describe_inputs(self) -> str:
        """The inputs in a line."""
        return ", ".join(f"{name} ({i.dtype} {i.shape})" for name, i in self.inputs.items()) or "none"


@contextlib.contextmanager
def open_library(
    file: Path,
    compile_first: bool,
    input_shape: list[str] | None,
    board: Board | None = None,
    precision: str = "float32",
    keep: tuple[str, ...] = (),
    matmul_precision: str = "highest",
    recorder: PassRecorder | None = None,
) -> Iterator[Library]:
    """Open the library in ``file``, or compile the model there for as long as it is in use.

    A file that is no library is a model if a front end takes its suffix; any other is ONNX where ``compile_first`` says
    so. ``precision``, ``keep`` and ``matmul_precision`` are those of ``compile``, and ``recorder`` notes its passes.
    """
    check_is_file(file)
    is_library = _is_elf(file)
    if is_library and compile_first:
        raise TVMError(f"{file}: this is a compiled library already; run it without --compile")
    frontend = None if is_library else _frontend_of(file, compile_first)
    if frontend is None:
        if input_shape:
            raise TVMError("--input-shape is for models: a library's shapes are fixed")
        yield load_library(file, board)
        return
    from tilewright.driver.compile import CompileOptions, build_library

    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        output = Path(folder) / f"{file.stem}.so"
        options = CompileOptions(
            file,
            output,
            input_shape=input_shape,
            frontend=frontend,
            precision=precision,
            keep=keep,
            matmul_precision=matmul_precision,
        )
        compiled = build_library(options, recorder=recorder)
        yield replace(load_library(output, board), compiled=compiled)


def _frontend_of(file: Path, compile_first: bool) -> str | None:
    """The name of the front end that reads a file; None for a file that is no model."""
    from tilewright.relay.frontend.door import find_frontend

    found = find_frontend(file)
    return found.name if found is not None else "onnx" if compile_first else None


def _is_elf(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(_ELF_MAGIC)) == _ELF_MAGIC


def _machine_library(path: Path, place: Here, module: Module) -> Library:
    executable = Executable(module)
    text = executable.interface
    if not text:
        raise TVMError(
            f"{path}: the library holds a program of the virtual machine without a description of its inputs"
        )
    interface = Interface.parse(text)
    machine = Machine(VirtualMachine(executable, place.device), tuple(interface.inputs))
    return Library(
        path, place, place.device, machine, interface.inputs, tuple(interface.outputs), interface, interface.sources
    )


class Machine:
    """A virtual machine with the interface of the graph executor that the commands use."""

    def __init__(self, machine: VirtualMachine, names: tuple[str, ...]) -> None:
        self.machine = machine
        self.names = names
        self.values: dict[str, Any] = {}
        self.results: list[Any] = []

    def set_input(self, name: str, value: Any) -> None:
        """The value of an input for the next runs."""
        self.values[name] = value

    def run(self) -> None:
        """Run once."""
        self.results = tensors_in(self.machine.run(*(self.values[name] for name in self.names)))

    def get_output(self, index: int) -> Any:
        """An output of the last run."""
        return self.results[index]

    def time_nodes(self, number: int = 10) -> list[tuple[str, float]]:
        """Run ``number`` times; return each kernel's name and its mean seconds in a run."""
        self.machine.set_input("main", *(self.values[name] for name in self.names))
        spent: dict[str, float] = {}
        for _ in range(number):
            for name, _count, seconds in profiled(self.machine, "main")[1]:
                spent[name] = spent.get(name, 0.0) + seconds
        return [(name, seconds / number) for name, seconds in spent.items()]

    def time_evaluator(self, device: Device, repeat: int, milliseconds: int = 0) -> Any:
        """Return a timer of runs: ``repeat`` means over as many runs as take ``milliseconds``."""
        self.machine.set_input("main", *(self.values[name] for name in self.names))
        timer = self.machine.module.time_evaluator("invoke", device, 1, repeat, milliseconds)
        return lambda: timer("main")


def timer(executor: GraphModule | Machine, device: Device, repeat: int, milliseconds: int = 0) -> Any:
    """Return a timer of an executor's runs."""
    if isinstance(executor, Machine):
        return executor.time_evaluator(device, repeat, milliseconds)
    return executor.module.time_evaluator("run", device, 1, repeat, milliseconds)


def load_library(path: Path, board: Board | None = None) -> Library:
    """Load a library that ``tilewright compile`` wrote, here or on a board.

    Raises:
        TVMError: the file is no library, not for this processor, or holds code but no network.
    """
    place = place_of(board)
    module = place.load(path)
    library = _opened(path, place, module)
    state = first_state(module)
    for name, value in state.items():
        library.executor.set_input(name, value)
    inputs = {name: info for name, info in library.inputs.items() if name not in state}
    return replace(library, inputs=inputs, state=tuple(state))


def _opened(path: Path, place: Here, module: Module) -> Library:
    try:
        make = module["default"] if not holds_program(module) else None
    except AttributeError:
        raise TVMError(f"{path}: the library has no network named 'default', as `tilewright compile` makes") from None
    if make is None:
        return _machine_library(path, place, module)
    document = graph_document(module)
    devices = [place.on(kind) for kind in device_types(document)] or [place.device]
    executor = GraphModule(make(*devices), strict=True)
    shapes, dtypes = executor.get_input_info()
    inputs = {name: TensorInfo(shape, dtypes[name]) for name, shape in shapes.items()}
    sources = (document.get("metadata") or {}).get("sources", {})
    outputs = tuple(executor.get_output_names())
    return Library(path, place, devices[0], executor, inputs, outputs, sources=sources, graph=document)
