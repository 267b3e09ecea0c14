"""The runtime module of kind "npu": programs, by the names of the functions that they are.

Saved, it is the encoded programs. A program goes to a device, its weights to the DDR, when it first runs there, or
when an executor is made on the device; it stays until the module goes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import runtime
from tilewright_npu import chip
from tilewright_npu.isa import Program, RegionKind

KEY = "npu"


class _Loaded:
    """A program on a device, with memory for arguments that come from the host."""

    def __init__(self, context: chip.Context, program: Program, encoded: bytes) -> None:
        self.model = context.load(encoded, program.name)
        kinds = (RegionKind.INPUT, RegionKind.OUTPUT)
        self.arguments = [context.alloc(r.bytes) for r in program.regions if r.kind in kinds]
        self.inputs = sum(r.kind == RegionKind.INPUT for r in program.regions)


class NpuModule:
    """Programs, and the devices that they were loaded to."""

    def __init__(self, encoded: list[bytes]) -> None:
        self.encoded = {Program.decode(data).name: data for data in encoded}
        self.programs = {name: Program.decode(data) for name, data in self.encoded.items()}
        self._contexts: dict[int, chip.Context] = {}
        self._loaded: dict[tuple[int, str], _Loaded] = {}
        self._lock = threading.Lock()
        self._locks: dict[int, threading.Lock] = {}

    def find(self, name: str) -> Callable[..., Any] | None:
        """A function of the module."""
        if name not in self.programs:
            return None
        return lambda *args: self._run(name, args)

    def loaded(self, device: int, name: str) -> _Loaded:
        """A program on a device."""
        with self._lock:
            if (device, name) not in self._loaded:
                if device not in self._contexts:
                    self._contexts[device] = chip.Context(device)
                    self._locks[device] = threading.Lock()
                loaded = _Loaded(self._contexts[device], self.programs[name], self.encoded[name])
                self._loaded[device, name] = loaded
            return self._loaded[device, name]

    def model(self, device: int = 0, name: str = "") -> chip.Model:
        """The driver's model of a function, of the first one by default: its counters, its trace."""
        return self.loaded(device, name or next(iter(self.programs))).model

    def _run(self, name: str, args: tuple[Any, ...], device: int = 0) -> None:
        loaded = self.loaded(device, name)
        with self._locks[device]:
            for array, buffer in zip(args[: loaded.inputs], loaded.arguments, strict=False):
                buffer.write(np.ascontiguousarray(array.numpy()))
            loaded.model.launch(*loaded.arguments)
            for array, buffer in zip(args[loaded.inputs :], loaded.arguments[loaded.inputs :], strict=True):
                array.copyfrom(buffer.read(array.shape, str(array.dtype)))

    def save(self) -> bytes:
        """What ``load`` reads."""
        parts = [len(self.encoded).to_bytes(8, "little")]
        for data in self.encoded.values():
            parts += [len(data).to_bytes(8, "little"), data]
        return b"".join(parts)

    def close(self) -> None:
        """Give back what the module holds of the driver."""
        with self._lock:
            self._loaded.clear()
            while self._contexts:
                self._contexts.popitem()[1].close()

    def __del__(self) -> None:
        self.close()


def module_of(encoded: list[bytes]) -> runtime.Module:
    """The runtime module of encoded programs."""
    module = NpuModule(encoded)
    return runtime.create_module(KEY, module.find, module.save)


def load(handle: Any) -> runtime.Module:
    """Read the module from an exported library."""
    stream = runtime.ModuleStream(handle)
    return module_of([stream.read(stream.read_u64()) for _ in range(stream.read_u64())])


def register() -> None:
    """Make known how modules of the kind are read; the package's entry point calls it."""
    runtime.register_func(f"runtime.module.loadbinary_{KEY}", load, override=True)
