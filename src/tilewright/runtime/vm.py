"""The virtual machine: programs with control flow, data types, closures and shapes known at run time.

``relay.vm.compile(mod, target, params)`` returns an :class:`Executable`; ``VirtualMachine(exe, device).run(x)`` runs
it. docs/vm.md has the instructions, docs/runtime.md how to run one without Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .container import ADT, tuple_object
from .device import Device, cpu
from .error import TVMError
from .module import BenchmarkResult, Module
from .ndarray import NDArray, array
from .registry import need_global_func
from .renamed import warn_renamed

if TYPE_CHECKING:
    from .bytecode import Code

NAIVE_ALLOCATOR = 1
POOLED_ALLOCATOR = 2


def convert(args: Sequence[Any]) -> list[Any]:
    """Convert arguments for the machine: arrays, tuples as :class:`ADT`, Python numbers as int32 or float32."""
    return [_convert(arg) for arg in args]


def _convert(arg: Any) -> Any:
    if isinstance(arg, (NDArray, ADT, str)):
        return arg
    if isinstance(arg, (tuple, list)):
        return tuple_object(convert(arg))
    if isinstance(arg, (bool, int, float)):
        return array(np.array(arg, "float32" if isinstance(arg, float) else "int32"))
    if isinstance(arg, (np.ndarray, np.generic)) or hasattr(arg, "__dlpack__"):
        return array(np.asarray(arg) if isinstance(arg, np.generic) else arg)
    if hasattr(arg, "data") and isinstance(arg.data, NDArray):  # a relay.Constant
        return arg.data
    raise TypeError(
        f"a virtual machine takes arrays, numbers, tuples and values of data types, not {type(arg).__name__}"
    )


class Executable:
    """A compiled program: bytecode, constants, and a library of kernels.

    ``exe.mod`` is its module: ``exe.mod.export_library("model.so")`` writes all of it into one library, and
    ``Executable(runtime.load_module("model.so"))`` loads it.
    """

    def __init__(self, mod: Module) -> None:
        self.mod = mod
        self.build_report: Any = None  # what the build did (``relay.backend.progress.BuildReport``)

    @property
    def module(self) -> Module:
        """The executable's module."""
        return self.mod

    def save(self) -> tuple[bytearray, Module]:
        """The bytecode with its constants, in TVM 0.8's format, and the library of kernels."""
        return bytearray(self.mod["save"]()), self.lib

    @staticmethod
    def load_exec(bytecode: bytes | bytearray, lib: Module | None) -> Executable:
        """Return the executable that ``save`` wrote.

        Raises
        ------
        TypeError : ``bytecode`` is no bytes, or ``lib`` no module
        TVMError : the bytecode is damaged: each register, jump and index in it is checked
        """
        if not isinstance(bytecode, (bytes, bytearray)):
            raise TypeError(f"bytecode is bytes or a bytearray, not a {type(bytecode).__name__}")
        if lib is not None and not isinstance(lib, Module):
            raise TypeError(f"lib is a module, not a {type(lib).__name__}")
        return Executable(need_global_func("runtime.Load_Executable")(bytes(bytecode), lib))

    @property
    def lib(self) -> Module:
        """The library of kernels."""
        library: Module = self.mod["get_lib"]()
        return library

    def export_library(self, file_name: str | Path, **kwargs: Any) -> str:
        """Write bytecode, constants and kernels to one library; see :func:`runtime.export.export_library`."""
        return self.mod.export_library(file_name, **kwargs)

    @cached_property
    def code(self) -> Code:
        """The functions and their instructions."""
        from .bytecode import read_code

        return read_code(self.mod["get_head"](), self.mod["get_tail"]())

    @property
    def interface(self) -> str:
        """Return the text that describes inputs and outputs, see ``runtime/interface.py``; "" if there is none."""
        constant = self.code.interface_constant
        if constant is None:
            return ""
        text: str = self.mod["get_constant"](constant).numpy().tobytes().decode()
        return text

    @property
    def bytecode(self) -> str:
        """The instructions as text, as TVM prints them."""
        from .bytecode import code_text

        return code_text(self.code)

    @property
    def primitive_ops(self) -> list[str]:
        """The names of the kernels."""
        return list(self.code.packed)

    @property
    def globals(self) -> list[str]:
        """The names of the functions."""
        return [func.name for func in self.code.functions]

    @property
    def constants(self) -> str:
        """A line for each constant: its type, shape and device."""
        lines = []
        for i in range(self.mod["get_num_constants"]()):
            data, device = self.mod["get_constant"](i), self.mod["get_constant_device"](i)
            shape = ", ".join(map(str, data.shape))
            lines.append(f"VM Constant[{i}]: has shape {data.dtype}[{shape}] on device of type {device}\n")
        return "".join(lines)

    @property
    def stats(self) -> str:
        """Return the numbers of constants, functions and kernels, and their names."""
        constants = [self.mod["get_constant"](i).shape for i in range(self.mod["get_num_constants"]())]
        shapes = ", ".join(str(list(shape)) if shape else "scalar" for shape in constants)
        names = ", ".join(f'("{name}", {i})' for i, name in enumerate(self.globals))
        kernels = self.primitive_ops
        return (
            "Relay VM executable statistics:\n"
            f"  Constant shapes (# {len(constants)}): [{shapes}]\n"
            f"  Globals (#{len(self.globals)}): [{names}]\n"
            f"  Primitive ops (#{len(kernels)}): [{', '.join(kernels)}]\n"
        )

    def as_text(self) -> str:
        """Constants and instructions as text."""
        return f"{self.constants}\n{self.bytecode}"

    def get_function_params(self, func_name: str) -> list[str]:
        """The names of a function's parameters."""
        arity = self.mod["get_function_arity"](func_name)
        return [self.mod["get_function_param_name"](func_name, i) for i in range(arity)]


def make_executable(
    code: Code, constants: Sequence[Any], constant_devices: Sequence[int], lib: Module | None
) -> Executable:
    """The executable of a program; ``constants`` are arrays, each with its device's type number.

    Those of ``nd`` are used where they lie; strided ones are copied when a machine is made.
    """
    from .bytecode import write_head, write_tail

    arrays = [value if isinstance(value, NDArray) else array(value) for value in constants]
    pairs = [item for pair in zip(constant_devices, arrays, strict=True) for item in pair]
    create = need_global_func("tilewright.vm.create_executable")
    return Executable(create(write_head(code), write_tail(code), lib, *pairs))


class VirtualMachine:
    """Runs a program on devices. One thread uses a machine at a time; any number of machines share an executable.

    Parameters
    ----------
    exe : the program: an :class:`Executable`, or the module of one (one that was loaded from a library)
    device : where it runs: one device, or a list with one of each type that the program names
    memory_cfg : "pooled" keeps memory for the next who wants as much, "naive" frees it at once; or these by device
    """

    NAIVE_ALLOCATOR = NAIVE_ALLOCATOR
    POOLED_ALLOCATOR = POOLED_ALLOCATOR

    def __init__(
        self,
        exe: Executable | Module,
        device: Device | Sequence[Device],
        memory_cfg: str | Mapping[Device, str] | None = None,
    ) -> None:
        if not isinstance(exe, (Executable, Module)):
            raise TypeError(f"a virtual machine runs an Executable, or the module of one; not a {type(exe).__name__}")
        self._exec = exe if isinstance(exe, Executable) else Executable(exe)
        self.module: Module = self._exec.mod["vm_load_executable"]()
        self._setup_device(device, memory_cfg)

    def _setup_device(self, device: Device | Sequence[Device], memory_cfg: Any) -> None:
        devices = [device] if isinstance(device, Device) else list(device)
        if not devices or not all(isinstance(item, Device) for item in devices):
            raise TypeError(f"a virtual machine runs on devices, such as tvm.cpu(0); not on {device!r}")
        if not any(_type_of(item) == cpu().device_type for item in devices):
            devices.append(cpu())  # shapes are computed there
        named = memory_cfg if isinstance(memory_cfg, Mapping) else {}
        default = memory_cfg if isinstance(memory_cfg, str) else "pooled"
        numbers: list[int] = []
        for item in devices:
            numbers += [_type_of(item), item.device_id, _allocator(named.get(item, default))]
        self.module["init"](*numbers)

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set the values of a function's parameters, in order or by name; names of no parameter are passed over."""
        self.module["set_input"](func_name, *convert(self._in_order(func_name, args, kwargs)))

    def _in_order(self, func_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        if not kwargs:
            return args
        rest = iter(args)
        values = []
        for name in self._exec.get_function_params(func_name):
            if name in kwargs:
                values.append(kwargs[name])
            else:
                values.append(next(rest, None))
                if values[-1] is None:
                    raise TVMError(f"no value for the parameter {name!r} of {func_name!r}")
        if next(rest, None) is not None:
            raise TVMError(f"{len(args) + len(kwargs)} values for the {len(values)} parameters of {func_name!r}")
        return values

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Run a function; return an array, or an :class:`ADT` for a tuple or a value of a data type."""
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        return self.module["invoke"](func_name)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``main``."""
        return self.invoke("main", *args, **kwargs)

    def invoke_stateful(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Run a function whose results ``get_outputs`` returns; for RPC, where functions return no tuples."""
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        self.module["invoke_stateful"](func_name)

    def get_outputs(self) -> list[NDArray]:
        """Return the results of the last run, the fields of a tuple one by one."""
        return [self.module["get_output"](i) for i in range(self.module["get_num_outputs"]())]

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """Return the index of a parameter by name, or -1."""
        return int(self.module["get_input_index"](input_name, func_name))

    def set_limits(self, registers: int = -1, calls: int = -1, idle_bytes: int = -1) -> None:
        """Set limits of a run, beyond which it ends with an error; -1 leaves a limit unchanged.

        Parameters
        ----------
        registers : registers of all functions that wait for one another (16 bytes each); bounds recursion
        calls : calls and jumps back of one run; 0 for any number
        idle_bytes : memory that a pool keeps for later
        """
        self.module["set_limits"](registers, calls, idle_bytes)

    def memory_usage(self) -> tuple[int, int]:
        """Return the bytes that the pools keep idle, and the bytes in use."""
        idle, used = map(int, self.module["memory_usage"]().split())
        return idle, used

    def benchmark(
        self,
        device: Device,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        end_to_end: bool = False,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Measure a function: ``repeat`` times the mean of ``number`` runs.

        With ``end_to_end`` copying the arguments to the device and the results to ``device`` is part of it.
        """
        values, shortest = self._in_order(func_name, args, kwargs), min_repeat_ms or 0
        if end_to_end:
            timer = self.module.time_evaluator("invoke_return_to_device", device, number, repeat, shortest)
            return timer(func_name, _type_of(device), device.device_id, *convert(values))
        if values:
            self.set_input(func_name, *values)
        return self.module.time_evaluator("invoke", device, number, repeat, shortest)(func_name)


def with_capacity(data: Any, axis: int, capacity: int) -> NDArray:
    """Copy an array to memory in which it can grow to ``capacity`` along ``axis`` without another copy.

    Use it for a machine's input that the program appends to in place and returns; its results have such memory. The
    extent along the axis may be 0. The array is a view, with strides, of the larger memory.

    Raises
    ------
    TVMError : ``data`` is larger than that, has no such axis, or is not on the host
    """
    grown: NDArray = need_global_func("tilewright.vm.with_room")(array(data), axis, capacity)
    return grown


def with_room(data: Any, axis: int, capacity: int) -> NDArray:
    """Call ``with_capacity``, whose name in the last release this is."""
    warn_renamed("runtime.vm.with_room", "with_capacity")
    return with_capacity(data, axis, capacity)


def _type_of(device: Device) -> int:
    """Return a device's type, for a remote device its type on its machine."""
    return int(device.device_type) % 128


def _allocator(name: str) -> int:
    kinds = {"naive": NAIVE_ALLOCATOR, "pooled": POOLED_ALLOCATOR}
    if name not in kinds:
        raise TVMError(f'memory is "naive" or "pooled", not {name!r}')
    return kinds[name]


__all__ = ["ADT", "Executable", "VirtualMachine", "convert", "make_executable", "with_capacity"]
