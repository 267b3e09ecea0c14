"""The runtime module of kind "npu": programs, by the names of the functions that they are.

A function takes arrays on the host or on an NPU. Those on an NPU are used where they lie, and say which NPU runs;
those on the host are copied to and from NPU 0. A program goes to a device, its weights to the DDR, when it first runs
there, or when an executor is made on the device; it stays until the module goes. Saved, a module is its encoded
programs.

Beside its programs a module has these functions: ``npu_executor_made(device)`` loads all programs to a device,
``npu_name_model(name)`` says what the driver will know them by (``name/function``), ``npu_memory_address(device,
function, argument)`` gives the address of the memory for an argument that comes from the host.
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
DEVICE_TYPE = 90


class _Loaded:
    """A program on a device, with memory for arguments that come from the host."""

    def __init__(self, context: chip.Context, program: Program, encoded: bytes, name: str) -> None:
        self.context, self.lock = context, threading.Lock()
        self.regions = [r for r in program.regions if r.kind in (RegionKind.INPUT, RegionKind.OUTPUT)]
        self.inputs = sum(r.kind == RegionKind.INPUT for r in self.regions)
        self.model = context.load(encoded, name)
        self._buffers: list[chip.Buffer | None] = [None] * len(self.regions)

    def buffer(self, index: int) -> chip.Buffer:
        """Memory for an argument from the host."""
        found = self._buffers[index]
        if found is None:
            found = self._buffers[index] = self.context.alloc(self.regions[index].bytes)
        return found

    def close(self) -> None:
        """Give back the program and its memory."""
        self.model.close()
        for buffer in filter(None, self._buffers):
            buffer.close()

    def run(self, args: tuple[Any, ...]) -> None:
        """Bring in what is on the host, launch, bring back."""
        with self.lock:
            addresses = [self._given(i, array) for i, array in enumerate(args)]
            self.model.launch(*addresses)
            for index, array in enumerate(args[self.inputs :], self.inputs):
                if array.device.device_type != DEVICE_TYPE:
                    array.copyfrom(self.buffer(index).read(array.shape, str(array.dtype)))

    def _given(self, index: int, array: runtime.NDArray) -> int:
        if array.nbytes != self.regions[index].bytes:
            raise ValueError(
                f"argument {index} ({self.regions[index].name}) has {array.nbytes} bytes, and the program was compiled "
                f"for {self.regions[index].bytes}"
            )
        if array.device.device_type == DEVICE_TYPE:
            return int(array._tensor.data or 0) + int(array._tensor.byte_offset)
        buffer = self.buffer(index)
        if index < self.inputs:
            buffer.write(np.ascontiguousarray(array.numpy()))
        return buffer.address


class NpuModule:
    """Programs, and the devices that they were loaded to."""

    def __init__(self, encoded: list[bytes]) -> None:
        decoded = [Program.decode(data) for data in encoded]
        self.programs = {program.name: program for program in decoded}
        self.encoded = {program.name: data for program, data in zip(decoded, encoded, strict=True)}
        self.model_name = ""
        self._contexts: dict[int, chip.Context] = {}
        self._loaded: dict[tuple[int, str], _Loaded] = {}
        self._lock = threading.Lock()

    def find(self, name: str) -> Callable[..., Any] | None:
        """A function of the module."""
        if name in self.programs:
            return lambda *args: self._run(name, args)
        others: dict[str, Callable[..., Any]] = {
            "npu_executor_made": self.load_all,
            "npu_name_model": lambda given: setattr(self, "model_name", given),
            "npu_memory_address": lambda device, function, argument: self.address(device, function, argument),
        }
        return others.get(name)

    def loaded(self, device: int, name: str) -> _Loaded:
        """A program on a device."""
        with self._lock:
            found = self._loaded.get((device, name))
            if found is None:
                if device not in self._contexts:
                    self._contexts[device] = chip.Context(device)
                known_as = f"{self.model_name}/{name}" if self.model_name else name
                found = _Loaded(self._contexts[device], self.programs[name], self.encoded[name], known_as)
                self._loaded[device, name] = found
            return found

    def load_all(self, device: int) -> None:
        """Load every program to a device; nothing of them stays there if one fails."""
        try:
            for name in self.programs:
                self.loaded(device, name)
        except chip.NpuError:
            with self._lock:
                for key in [k for k in self._loaded if k[0] == device]:
                    del self._loaded[key]
                context = self._contexts.pop(device, None)
            if context is not None:
                context.close()
            raise

    def model(self, device: int = 0, name: str = "") -> chip.Model:
        """The driver's model of a function, of the first one by default: its counters, its trace."""
        return self.loaded(device, name or next(iter(self.programs))).model

    def address(self, device: int, function: str, argument: int) -> int:
        """Where on a device a host's argument of a function is put, or found."""
        return self.loaded(device, function or next(iter(self.programs))).buffer(argument).address

    def _run(self, name: str, args: tuple[Any, ...]) -> None:
        devices = {a.device.device_id for a in args if a.device.device_type == DEVICE_TYPE}
        if len(devices) > 1:
            raise ValueError(f"{name}: its arguments are on NPUs {sorted(devices)}; copy them to one")
        device = devices.pop() if devices else 0
        program = self.loaded(device, name)
        if len(args) != len(program.regions):
            raise ValueError(f"{name} takes {len(program.regions)} arrays, got {len(args)}")
        try:
            program.run(args)
        except chip.NpuError as error:
            if error.status != chip.Status.LOST:
                raise
            self._forget(device, name)  # it may have been lost, and be back, since the last run
            self.loaded(device, name).run(args)

    def _forget(self, device: int, name: str) -> None:
        """Unload a program of a device that lost its memory."""
        with self._lock:
            lost = self._loaded.pop((device, name), None)
        if lost is not None:
            lost.close()

    def save(self) -> bytes:
        """What ``load`` reads."""
        parts = [len(self.encoded).to_bytes(8, "little")]
        for data in self.encoded.values():
            parts += [len(data).to_bytes(8, "little"), data]
        return b"".join(parts)

    def text(self, fmt: str) -> str:
        """The command streams, printed."""
        from tilewright_npu.show import lines

        return "\n\n".join("\n".join(lines(program)) for program in self.programs.values())

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
    return runtime.create_module(KEY, module.find, module.save, module.text)


def load(handle: Any) -> runtime.Module:
    """Read the module from an exported library."""
    stream = runtime.ModuleStream(handle)
    return module_of([stream.read(stream.read_u64()) for _ in range(stream.read_u64())])


def register() -> None:
    """Make known how modules of the kind are read; the package's entry point calls it."""
    runtime.register_func(f"runtime.module.loadbinary_{KEY}", load, override=True)
