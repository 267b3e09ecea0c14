"""Ahead-of-time programs: a network as one compiled function, and how this process runs it.

The function takes pointers: to each input, to each output, to a block of constants, and to a workspace of known size.
It allocates nothing and keeps nothing, so one library serves any number of threads, each with a workspace of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._ffi import DLTensor
from ..device import Device, cpu
from ..error import ExportError, TVMError
from ..module import Module
from ..ndarray import NDArray, empty, numpy_view
from ..registry import need_global_func
from .graph import GraphModule


@dataclass(frozen=True)
class AotTensor:
    """An input or a result of a program: its name, shape, dtype, and size in bytes."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


@dataclass(frozen=True)
class AotConstant:
    """A constant of a program, and where it lies in the block of constants, in bytes."""

    name: str
    offset: int
    value: NDArray


@dataclass(frozen=True)
class AotPool:
    """A part of a program's workspace: its name, and its size in bytes."""

    name: str
    nbytes: int


@dataclass(frozen=True)
class AotLayout:
    """Parameters of a program.

    Attributes
    ----------
    symbol : name of its function
    inputs, outputs : its tensors, in the order of the function's parameters
    constants : what the block of constants holds
    constant_bytes : size of the block of constants
    pools : the parts of the workspace, in the order of the function's last parameters; one unless asked for more
    alignment : bytes to which the block of constants and the workspace are aligned, a power of two
    """

    symbol: str
    inputs: tuple[AotTensor, ...]
    outputs: tuple[AotTensor, ...]
    constants: tuple[AotConstant, ...]
    constant_bytes: int
    pools: tuple[AotPool, ...]
    alignment: int

    @property
    def workspace_bytes(self) -> int:
        """Return the bytes of the workspace, all parts together."""
        return sum(pool.nbytes for pool in self.pools)

    def constant_block(self) -> bytes:
        """Return the block of constants."""
        block = bytearray(self.constant_bytes)
        for constant in self.constants:
            data = numpy_view(constant.value).tobytes()
            block[constant.offset : constant.offset + len(data)] = data
        return bytes(block)


class AOTExecutorFactoryModule:
    """A network compiled ahead of time; the result of ``relay.build`` for the executor ``aot``.

    Attributes
    ----------
    ir_mod : the module that was compiled
    target : its target, as it was asked for
    executor : ``"aot"``
    lib : the compiled functions
    libmod_name : the network's name
    layout : what the program takes
    function_metadata : sizes of each function
    module : what is exported and loaded; None for code without a runtime
    build_report : what the compiler did
    crowded : bytes of workspace in use while a layer runs, and its name, of the layers with most
    """

    executor = "aot"

    def __init__(
        self,
        ir_mod: Any,
        target: Any,
        lib: Module,
        libmod_name: str,
        layout: AotLayout,
        function_metadata: Any = None,
        graph: tuple[str, Mapping[str, NDArray]] | None = None,
    ) -> None:
        self.ir_mod, self.target, self.lib, self.libmod_name = ir_mod, target, lib, libmod_name
        self.layout, self.function_metadata = layout, function_metadata
        self.build_report: Any = None
        self.crowded: list[tuple[int, str]] = []
        self.module: Module | None = None
        self._graph = graph[0] if graph is not None else None
        if graph is not None:
            pairs = [item for pair in graph[1].items() for item in pair]
            create = need_global_func("tvm.graph_executor_factory.create")
            self.module = create(graph[0], lib, libmod_name, *pairs)

    @property
    def is_standalone(self) -> bool:
        """Return whether the code needs no runtime."""
        return self.module is None

    def get_params(self) -> dict[str, NDArray]:
        """Return the constants by name."""
        return {constant.name: constant.value for constant in self.layout.constants}

    def get_lib(self) -> Module:
        """Return the compiled functions."""
        return self.lib

    def get_source(self, fmt: str = "") -> str:
        """Return the text of the compiled functions."""
        return self.lib.get_source(fmt)

    def get_executor_config(self) -> str | None:
        """Return the graph of a library, which has one node; None without a runtime."""
        return self._graph

    def __getitem__(self, name: str) -> Any:
        """Return the function that makes executors, by the network's name."""
        if self.module is not None:
            return self.module[name]
        if name not in (self.libmod_name, "default"):
            raise TVMError(f"there is no {name!r}: an ahead-of-time program has {self.libmod_name!r}")
        return lambda device=None: AotModule(self, device)

    def create_executor(self, device: Device) -> GraphModule | AotModule:
        """Return an executor of the program in this process, with inputs and outputs by name."""
        made = self[self.libmod_name](device)
        return made if isinstance(made, AotModule) else GraphModule(made)

    def __iter__(self) -> Iterator[Any]:
        """Yield configuration, library and parameters, for the three-value form."""
        return iter((self._graph, self.lib, self.get_params()))

    def export_library(self, file_name: str | Path, *args: Any, **kwargs: Any) -> str:
        """Write code and constants to one library; see :func:`runtime.export.export_library`.

        Raises
        ------
        ExportError : the code has no runtime, and is exported as C sources; or ``weights`` are given
        """
        if kwargs.get("weights") is not None:
            raise ExportError(
                f"cannot write {file_name}: the weights of an ahead-of-time program are part of its code, and cannot "
                "be in a file beside it; build for the executor graph or vm"
            )
        if self.module is not None:
            return self.module.export_library(file_name, *args, **kwargs)
        raise ExportError(
            f"cannot write {file_name}: code without a runtime is exported as a folder of C sources "
            "(tilewright compile -f c, tilewright.micro.export_bundle) or in the Model Library Format "
            "(tilewright.micro.export_model_library_format)"
        )


class AotModule:
    """An ahead-of-time program without a runtime, in this process, with the methods of a graph executor.

    Parameters
    ----------
    factory : the compiled network
    device : the CPU
    """

    def __init__(self, factory: AOTExecutorFactoryModule, device: Device | None = None) -> None:
        if device is not None and device.device_type != cpu().device_type:
            raise TVMError(f"an ahead-of-time program runs on the CPU, not on {device}")
        self._layout = layout = factory.layout
        code: Any = factory.lib.compiled_code
        address = code.lookup(layout.symbol)
        if not address:
            raise TVMError(f"the library has no function {layout.symbol}")
        self._keep = factory  # the code
        self._constants = _aligned_block(layout.constant_block(), layout.alignment)
        self._pools = [_aligned_block(bytes(pool.nbytes), layout.alignment) for pool in layout.pools]
        self._inputs = [empty(t.shape, t.dtype) for t in layout.inputs]
        self._outputs = [empty(t.shape, t.dtype) for t in layout.outputs]
        count = len(self._inputs) + len(self._outputs) + 1 + len(self._pools)
        self._function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * count)(address)

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Set an input by name or number, or several by name."""
        values: Mapping[Any, Any] = params if key is None else {key: value, **params}
        for name, given in values.items():
            target = self._inputs[self._index(name)]
            shape = tuple(np.shape(given) if not isinstance(given, NDArray) else given.shape)
            if shape != target.shape:
                raise TVMError(f"input {name!r}: expected the shape {target.shape}, found {shape}")
            target.copyfrom(given)

    def run(self, **inputs: Any) -> None:
        """Run once, with inputs set by name before."""
        if inputs:
            self.set_input(**inputs)
        pointers = [_address(t) for t in (*self._inputs, *self._outputs)]
        blocks = [block.ctypes.data for block in (self._constants, *self._pools)]
        if self._function(*pointers, *blocks) != 0:
            raise TVMError(f"{self._layout.symbol}: an index, length or count of an input is out of range")

    def get_output(self, index: int) -> NDArray:
        """Return a copy of an output of the last run."""
        return self._outputs[index].copyto(cpu())

    def get_input(self, key: str | int) -> NDArray:
        """Return an input, by name or number."""
        return self._inputs[self._index(key)]

    def get_num_inputs(self) -> int:
        """Return the number of inputs."""
        return len(self._inputs)

    def get_num_outputs(self) -> int:
        """Return the number of outputs."""
        return len(self._outputs)

    def _index(self, key: str | int) -> int:
        names = [tensor.name for tensor in self._layout.inputs]
        if isinstance(key, int) and 0 <= key < len(names):
            return key
        if key in names:
            return names.index(str(key))
        raise TVMError(f"there is no input {key!r}; there is {', '.join(names) or 'none'}")


def _address(tensor: NDArray) -> int:
    fields = DLTensor.from_address(tensor.handle)
    return int(fields.data or 0) + int(fields.byte_offset)


def _aligned_block(data: bytes, alignment: int) -> np.ndarray[Any, Any]:
    block = np.zeros(len(data) + alignment, np.uint8)
    start = -block.ctypes.data % alignment
    block[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return block[start:]
