"""The target kind "guarded": what runs on the device, compiled with LLVM for the processor that it has, the host's.

Kernels are scheduled as for any target that brings no schedules. The module that they are in starts each through the
driver, which opens the memory of its arguments while it runs.
"""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import runtime
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.target import Target, register_target_kind
from tilewright.target.build import ModuleBuilder
from tilewright.target.code_generator import register_code_generator
from tilewright.tir import PrimFunc


class GuardedGenerator:
    """LLVM's code, one function after another, in a module of the kind "guarded"."""

    def __init__(self, target: Target) -> None:
        options = f" -mcpu={target.mcpu}" if target.mcpu else ""
        self._processor = Target("llvm" + options)
        self._builder = ModuleBuilder(self._processor)

    def add(self, func: PrimFunc) -> None:
        """Compile a function for the device's processor."""
        self._builder.add(func, self._processor)

    def finish(self) -> runtime.Module:
        """The module of what was added."""
        return launching_module(self._builder.finish())


def launching_module(code: runtime.Module) -> runtime.Module:
    """The functions of ``code``, each started by the driver; it is saved as the library that ``code`` is."""
    runtime.device("guarded")  # its driver comes with it
    launch = runtime.get_global_func("guarded.launch")

    def find(name: str) -> Any:
        if not code.implements_function(name):
            return None
        function = code[name]
        return lambda *args: launch(lambda *open_args: function(*map(_as_the_processor_sees, open_args)), *args)

    def save() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            data = Path(code.export_library(Path(folder) / "code.so")).read_bytes()
        return len(data).to_bytes(8, "little") + data

    return runtime.create_module("guarded", find, save, code.get_source)


def load(handle: Any) -> runtime.Module:
    """Read the module from an exported library."""
    stream = runtime.ModuleStream(handle)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code.so"
        path.write_bytes(stream.read(stream.read_u64()))
        return launching_module(runtime.load_module(path))


def _as_the_processor_sees(array: runtime.NDArray) -> runtime.NDArray:
    """An array on the device, open, as one in the memory of the device's processor: here the host's, at its address."""
    tensor = array._tensor
    memory = (ctypes.c_byte * array.nbytes).from_address(tensor.data + tensor.byte_offset)
    return runtime.numpyasarray(np.frombuffer(memory, numpy_dtype(array.dtype)).reshape(array.shape))


def register_target() -> None:
    """Make the kind and its code generator known."""
    register_target_kind("guarded", default_keys=["guarded"], options={"mcpu": str}, device="guarded")
    register_code_generator("guarded", GuardedGenerator)


def register_module() -> None:
    """Make known how modules of the kind are read from libraries."""
    runtime.register_func("runtime.module.loadbinary_guarded", load)
