"""The driver, ``npu_driver.h``, for Python: devices, contexts, buffers, models, streams, counters.

Objects free what they hold when they are closed, or leave a ``with`` statement; a context closes all that it made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tilewright_npu.isa import Engine, Program, Structure

DRIVER_VERSION = 0x00010000
LIBRARY = Path(__file__).parent / "libnpu_driver.so"


class Status(IntEnum):
    """``npu_status``."""

    OK = 0
    INVALID = 1
    VERSION = 2
    NO_DEVICE = 3
    BUSY = 4
    LOST = 5
    OUT_OF_SRAM = 6
    OUT_OF_DDR = 7
    ADDRESS = 8
    PROGRAM = 9
    DEADLOCK = 10
    TIMEOUT = 11
    NOT_FOUND = 12
    EXISTS = 13
    CANCELLED = 14
    HOST_MEMORY = 15


class Memory(IntEnum):
    """``npu_memory``."""

    DDR = 0
    SRAM = 1


class Fault(IntEnum):
    """``npu_fault``: what a test asks the device to do wrong."""

    NONE = 0
    GONE = 1
    HANG = 2
    BUSY = 3
    FLIP = 4


class NpuError(RuntimeError):
    """The driver refused, or something went wrong on the device."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


class DeviceInfo(Structure):
    """``npu_device_info``."""

    _fields_ = (
        ("name", c_char * 32),
        ("isa_version", c_uint32),
        ("clock_khz", c_uint32),
        ("sram_bytes", c_uint64),
        ("ddr_bytes", c_uint64),
        ("sram_free", c_uint64),
        ("ddr_free", c_uint64),
    )


class _ModelInfo(Structure):
    """``npu_model_info``."""

    _fields_ = (
        ("commands", c_uint32),
        ("inputs", c_uint32),
        ("outputs", c_uint32),
        ("sram_bytes", c_uint32),
        ("ddr_bytes", c_uint64),
    )


class _Counters(Structure):
    """``npu_counters``."""

    _fields_ = (
        ("launches", c_uint64),
        ("cycles", c_uint64),
        ("busy", c_uint64 * 4),
        ("stalled", c_uint64 * 4),
        ("commands", c_uint64 * 4),
        ("bytes_loaded", c_uint64),
        ("bytes_stored", c_uint64),
        ("macs", c_uint64),
        ("block_cycles", c_uint64),
    )


class _Trace(Structure):
    """``npu_trace``."""

    _fields_ = (("command", c_uint32), ("engine", c_uint32), ("start", c_uint64), ("end", c_uint64))


class Held(Structure):
    """``npu_held``: what the process holds of the driver."""

    _fields_ = tuple(
        (name, c_uint64) for name in ("contexts", "models", "buffers", "streams", "events", "sram_bytes", "ddr_bytes")
    )


STRUCTURES: dict[str, type[Structure]] = {
    "npu_device_info": DeviceInfo,
    "npu_model_info": _ModelInfo,
    "npu_counters": _Counters,
    "npu_trace": _Trace,
    "npu_held": Held,
}


@dataclass(frozen=True)
class Counters:
    """Sums over launches of a model; per engine in the order of :class:`~tilewright_npu.isa.Engine`.

    Attributes:
        launches: how many.
        cycles: of all launches.
        busy: cycles in which each engine worked.
        stalled: cycles in which each engine waited for tokens.
        commands: that each engine ran.
        bytes_loaded: from DDR to SRAM.
        bytes_stored: from SRAM to DDR.
        macs: multiplications of the matrix unit that were asked for, without the padding of its blocks.
        block_cycles: of the matrix unit at work on blocks; less than its busy cycles by what commands take to start.
    """

    launches: int
    cycles: int
    busy: tuple[int, ...]
    stalled: tuple[int, ...]
    commands: tuple[int, ...]
    bytes_loaded: int
    bytes_stored: int
    macs: int
    block_cycles: int


@dataclass(frozen=True)
class Interval:
    """When a command ran, in cycles since the launch; ``command`` is its index in the program."""

    command: int
    engine: Engine
    start: int
    end: int


@cache
def library() -> ctypes.CDLL:
    """The driver, initialized for the version that this package was written for."""
    lib = ctypes.CDLL(str(LIBRARY))
    lib.npu_last_error.restype = ctypes.c_char_p
    lib.npu_error_string.restype = ctypes.c_char_p
    lib.npu_version.restype = c_uint32
    address, handle = c_uint64, c_void_p
    lib.npu_alloc.argtypes = [handle, c_int, c_size_t, c_size_t, POINTER(handle)]
    lib.npu_buffer_find.argtypes = [c_int, address, POINTER(handle)]
    lib.npu_write.argtypes = [handle, address, c_void_p, c_size_t, handle]
    lib.npu_read.argtypes = [handle, c_void_p, address, c_size_t, handle]
    lib.npu_copy.argtypes = [handle, address, address, c_size_t, handle]
    lib.npu_model_load.argtypes = [handle, ctypes.c_char_p, c_void_p, c_size_t, POINTER(handle)]
    lib.npu_launch.argtypes = [handle, POINTER(address), c_uint32, handle]
    lib.npu_model_trace.argtypes = [handle, c_void_p, c_size_t, POINTER(c_size_t)]
    lib.npu_device_set_timeout.argtypes = [c_int, c_int64]
    for name in ("npu_stream_wait", "npu_event_wait", "npu_context_set_timeout"):
        getattr(lib, name).argtypes = [handle, c_int64]
    _check(lib, lib.npu_init(c_uint32(DRIVER_VERSION)))
    return lib


def _check(lib: ctypes.CDLL, status: int) -> None:
    if status != 0:
        text = lib.npu_last_error() or lib.npu_error_string(status)
        raise NpuError(Status(status), text.decode(errors="replace"))


def call(name: str, *args: Any) -> None:
    """Call a function of the driver.

    Raises:
        NpuError: it gave another status than OK.
    """
    lib = library()
    _check(lib, getattr(lib, name)(*args))


def device_count() -> int:
    """How many NPUs there are."""
    count = c_int()
    call("npu_device_count", byref(count))
    return count.value


def device_info(device: int = 0) -> DeviceInfo:
    """What an NPU is."""
    info = DeviceInfo()
    call("npu_device_query", device, byref(info))
    return info


def held() -> Held:
    """What the process holds of the driver, to find leaks."""
    counts = Held()
    call("npu_count_held", byref(counts))
    return counts


def inject(device: int, fault: Fault, when: int = 0) -> None:
    """Ask a device to do something wrong at its next launch; ``when`` is a command's index, or a number of launches."""
    call("npu_inject", device, int(fault), c_uint32(when))


WATCHDOG = 60_000  # milliseconds: a device's time-out at first


def set_timeout(device: int, milliseconds: int = WATCHDOG) -> None:
    """How long a launch or copy without a stream may take where its context does not say; below 0 any time."""
    call("npu_device_set_timeout", device, milliseconds)


def reset(device: int) -> None:
    """Cancel a device's work, and bring back one that was lost."""
    call("npu_device_reset", device)


class _Handle:
    """Something of the driver, which ``_close`` gives back once."""

    _close = ""

    def __init__(self, handle: c_void_p) -> None:
        self._handle: c_void_p | None = handle

    @property
    def handle(self) -> c_void_p:
        """The driver's handle.

        Raises:
            ValueError: it was closed.
        """
        if self._handle is None:
            raise ValueError(f"this {type(self).__name__.lower()} is closed")
        return self._handle

    def close(self) -> None:
        """Give it back to the driver. A second time does nothing."""
        if self._handle is not None:
            call(self._close, self._handle)
            self._handle = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Buffer(_Handle):
    """Memory of a device.

    Attributes:
        address: in the device's own space.
        bytes: as asked for.
    """

    _close = "npu_free"

    def __init__(self, context: Context, handle: c_void_p) -> None:
        super().__init__(handle)
        self.context = context
        address, size = c_uint64(), c_size_t()
        call("npu_buffer_map", handle, byref(address), byref(size))
        self.address, self.bytes = address.value, size.value

    def write(self, data: np.ndarray | bytes, offset: int = 0) -> None:
        """Copy an array's bytes to the device."""
        source = np.ascontiguousarray(np.frombuffer(data, "uint8") if isinstance(data, bytes) else data)
        call("npu_write", self.context.handle, self.address + offset, source.ctypes.data, source.nbytes, None)

    def read(self, shape: Sequence[int], dtype: str, offset: int = 0) -> np.ndarray:
        """An array of what is on the device."""
        out = np.empty(tuple(shape), dtype)
        call("npu_read", self.context.handle, out.ctypes.data, self.address + offset, out.nbytes, None)
        return out


class Stream(_Handle):
    """Work in an order of its own."""

    _close = "npu_stream_destroy"

    def wait(self, milliseconds: int = -1) -> None:
        """Wait until all is done; below 0 for as long as it takes."""
        call("npu_stream_wait", self.handle, milliseconds)


class Model(_Handle):
    """A program on a device."""

    _close = "npu_model_unload"

    def launch(self, *arguments: Buffer | int, stream: Stream | None = None) -> None:
        """Run it on inputs and outputs, in the order of its regions; without a stream until it is done."""
        addresses = [a.address if isinstance(a, Buffer) else a for a in arguments]
        array = (c_uint64 * len(addresses))(*addresses)
        call("npu_launch", self.handle, array, len(addresses), stream.handle if stream is not None else None)

    @property
    def info(self) -> _ModelInfo:
        """How many commands, inputs, outputs, and bytes it has."""
        info = _ModelInfo()
        call("npu_model_query", self.handle, byref(info))
        return info

    def counters(self) -> Counters:
        """Sums over the launches since it was loaded, or counters were reset."""
        c = _Counters()
        call("npu_model_counters", self.handle, byref(c))
        values: dict[str, Any] = {}
        for name, *_ in _Counters._fields_:
            value = getattr(c, name)
            values[name] = tuple(value) if isinstance(value, ctypes.Array) else value
        return Counters(**values)

    def reset_counters(self) -> None:
        """Start counting again."""
        call("npu_model_reset_counters", self.handle)

    def set_trace(self, on: bool = True) -> None:
        """Keep when each command of the last launch ran."""
        call("npu_model_set_trace", self.handle, int(on))

    def set_race_check(self, on: bool = True) -> None:
        """Refuse, at launch, programs with two accesses to a byte, one of them a write, that no token orders."""
        call("npu_model_set_race_check", self.handle, int(on))

    def trace(self) -> list[Interval]:
        """What the last launch did, in the order of its commands' beginnings."""
        count = c_size_t()
        call("npu_model_trace", self.handle, None, 0, byref(count))
        entries = (_Trace * count.value)()
        call("npu_model_trace", self.handle, entries, count.value, byref(count))
        return [Interval(e.command, Engine(e.engine), e.start, e.end) for e in entries]


class Context(_Handle):
    """A user of a device.

    Args:
        device: its number.
        exclusive: whether others on the device are refused while this one lives.
    """

    _close = "npu_context_destroy"

    def __init__(self, device: int = 0, exclusive: bool = False) -> None:
        handle = c_void_p()
        call("npu_context_create", device, c_uint32(int(exclusive)), byref(handle))
        super().__init__(handle)
        self.device = device

    def set_timeout(self, milliseconds: int) -> None:
        """How long a launch or copy without a stream may take; below 0 any time."""
        call("npu_context_set_timeout", self.handle, milliseconds)

    def alloc(self, size: int, memory: Memory = Memory.DDR, alignment: int = 64) -> Buffer:
        """Memory of the device, of ``size`` bytes."""
        handle = c_void_p()
        call("npu_alloc", self.handle, int(memory), size, alignment, byref(handle))
        return Buffer(self, handle)

    def put(self, data: np.ndarray) -> Buffer:
        """Memory of the device with an array in it."""
        buffer = self.alloc(data.nbytes)
        buffer.write(data)
        return buffer

    def load(self, program: Program | bytes, name: str = "model") -> Model:
        """Load a program, under a name."""
        data = program if isinstance(program, bytes) else program.encode()
        handle = c_void_p()
        call("npu_model_load", self.handle, name.encode(), data, len(data), byref(handle))
        return Model(handle)

    def choose(self, name: str) -> Model:
        """The model that was loaded under a name."""
        handle = c_void_p()
        call("npu_model_choose", self.handle, name.encode(), byref(handle))
        return Model(handle)

    def stream(self) -> Stream:
        """A new stream."""
        handle = c_void_p()
        call("npu_stream_create", self.handle, byref(handle))
        return Stream(handle)


def run_program(
    program: Program | bytes, *inputs: np.ndarray, outputs: Sequence[np.ndarray], device: int = 0
) -> Counters:
    """Load a program, run it once with the race check on, fill ``outputs`` and unload it.

    Args:
        program: its inputs and outputs in this order: all inputs, then all outputs.
        inputs: arrays of the sizes of the program's inputs.
        outputs: arrays of the sizes of the program's outputs, written.
        device: the number of the NPU.

    Returns:
        What it counted.
    """
    with Context(device) as context:
        buffers = [context.put(np.ascontiguousarray(data)) for data in (*inputs, *outputs)]
        with context.load(program) as model:
            model.set_race_check()
            model.launch(*buffers)
            counters = model.counters()
        for out, buffer in zip(outputs, buffers[len(inputs) :], strict=True):
            out[...] = buffer.read(out.shape, str(out.dtype))
        return counters
