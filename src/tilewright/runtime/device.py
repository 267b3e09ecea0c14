"""Devices: the processors on which arrays live and functions run.

The table of devices is in C (``native/include/tilewright_device.h``). Plug-ins add to it: installed packages by an
entry point of group ``tilewright.devices``, others by :func:`load_device_plugin`.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ._ffi import LIB, DLDevice, TVMValue, TypeCode, check_call
from .plugins import load_plugins

GROUP = "tilewright.devices"
LAST_SHARED_TYPE = 15  # DLPack's and TVM's numbers; those of plug-ins mean something in this process only
_LAST_TYPE = 127
RPC_SESS_MASK = 128
"""Types of remote devices are those on their machine plus this, times one more than the session's number."""

# Names that TVM takes for a device beside its own: of targets, and short ones.
_ALIASES = {
    "llvm": "cpu",
    "stackvm": "cpu",
    "c": "cpu",
    "hybrid": "cpu",
    "composite": "cpu",
    "cpu_pinned": "cuda_host",
    "nvptx": "cuda",
    "cl": "opencl",
    "aocl_sw_emu": "aocl",
}


def _name(device_type: int) -> str | None:
    name = LIB.TilewrightDeviceName(device_type)
    return None if name is None else name.decode()


_SHARED_NAMES = {number: name for number in range(1, LAST_SHARED_TYPE + 1) if (name := _name(number)) is not None}


def _numbers() -> dict[str, int]:
    numbers = {name: number for number, name in _SHARED_NAMES.items()}
    return numbers | {alias: numbers[name] for alias, name in _ALIASES.items() if name in numbers}


class _Place(NamedTuple):
    device_type: int
    device_id: int


class Device(_Place):
    """A device: DLPack's device type and an index. ``str()`` is for instance ``cpu(0)``.

    ``MASK2STR`` and ``STR2MASK`` map the numbers that DLPack and TVM give to names, and names, also those of targets,
    to numbers; devices of plug-ins are found by :func:`device` only. Attributes that the device does not tell are None.
    """

    __slots__ = ()

    MASK2STR = MappingProxyType(_SHARED_NAMES)
    STR2MASK = MappingProxyType(_numbers())

    def _attribute(self, number: int) -> Any:
        value, code = TVMValue(), ctypes.c_int()
        device = DLDevice(self.device_type, self.device_id)
        check_call(LIB.TilewrightDeviceGetAttr(device, number, ctypes.byref(value), ctypes.byref(code)))
        match code.value:
            case TypeCode.INT:
                return value.v_int64
            case TypeCode.STR:
                return (value.v_str or b"").decode()
        return None

    @property
    def exist(self) -> bool:
        """Return whether this machine and this runtime have the device."""
        _find_type(self.device_type)
        return bool(self._attribute(0))

    @property
    def is_host(self) -> bool:
        """Return whether the host may touch the device's memory."""
        return bool(LIB.TilewrightDeviceIsHost(self.device_type))

    @property
    def max_threads_per_block(self) -> int | None:
        """Return how many threads a block may have."""
        return self._attribute(1)

    @property
    def warp_size(self) -> int | None:
        """Return how many threads run in step."""
        return self._attribute(2)

    @property
    def max_shared_memory_per_block(self) -> int | None:
        """Bytes of memory that the threads of a block can share."""
        return self._attribute(3)

    @property
    def compute_version(self) -> str | None:
        """The version of its compute capability, as "major.minor"."""
        return self._attribute(4)

    @property
    def device_name(self) -> str | None:
        """Its maker's name for it."""
        return self._attribute(5)

    @property
    def max_clock_rate(self) -> int | None:
        """Its clock in kHz."""
        return self._attribute(6)

    @property
    def multi_processor_count(self) -> int | None:
        """Return how many compute units it has."""
        return self._attribute(7)

    @property
    def max_thread_dimensions(self) -> list[int] | None:
        """Return how many threads a block may have in each dimension."""
        text = self._attribute(8)
        return None if text is None else json.loads(text)

    @property
    def api_version(self) -> int | str | None:
        """The version of its programming interface."""
        return self._attribute(11)

    @property
    def driver_version(self) -> int | str | None:
        """The version of its driver."""
        return self._attribute(12)

    def sync(self, stream: ctypes.c_void_p | None = None) -> None:
        """Wait until the device has finished the work of a stream (by default the default stream)."""
        check_call(LIB.TVMSynchronize(self.device_type, self.device_id, stream))

    def create_raw_stream(self) -> ctypes.c_void_p:
        """Return a new stream; who makes one frees it."""
        stream = ctypes.c_void_p()
        check_call(LIB.TVMStreamCreate(self.device_type, self.device_id, ctypes.byref(stream)))
        return stream

    def free_raw_stream(self, stream: ctypes.c_void_p) -> None:
        """Free a stream of :meth:`create_raw_stream`."""
        check_call(LIB.TVMStreamFree(self.device_type, self.device_id, stream))

    def set_raw_stream(self, stream: ctypes.c_void_p | None) -> None:
        """Let the calling thread's work on the device go to a stream; None: to the default one."""
        check_call(LIB.TVMSetStream(self.device_type, self.device_id, stream))

    def __str__(self) -> str:
        return f"{_name(self.device_type) or f'device_type_{self.device_type}'}({self.device_id})"

    def __repr__(self) -> str:
        return str(self)


def _find_type(device_type: int) -> bool:
    """Return whether a device type is plugged in, after looking among installed packages."""
    if not LIB.TilewrightDeviceFind(device_type):
        load_plugins(GROUP)
    return bool(LIB.TilewrightDeviceFind(device_type))


def _find_name(name: str) -> int:
    """Return the type of a device or target by name; 0 when it is unknown."""
    native = _ALIASES.get(name, name).encode()
    if not LIB.TilewrightDeviceFind(LIB.TilewrightDeviceType(native)):
        load_plugins(GROUP)
    return int(LIB.TilewrightDeviceType(native))


def is_here(name: str) -> bool | None:
    """Return whether this machine has the named device and code that drives it; None when no device has the name."""
    number = _find_name(name)
    return Device(number, 0).exist if number else None


def device_names() -> list[str]:
    """Return the names of devices, sorted: plugged in, or known to TVM."""
    load_plugins(GROUP)
    return sorted(name for kind in range(1, _LAST_TYPE + 1) if (name := _name(kind)) is not None)


def load_device_plugin(path: str | Path) -> None:
    """Load a shared library that adds devices, once; see docs/devices.md.

    Raises:
        TVMError: the file is no plug-in, or what it adds is not right or is there already.
    """
    check_call(LIB.TilewrightLoadPlugin(str(path).encode()))


def device(dev_type: Any, dev_id: int = 0) -> Device:
    """Return a device.

    Args:
        dev_type: its number, its name, the name of a target ("llvm" and "c" mean the CPU), or a Target.
        dev_id: which one of that type.

    Raises:
        ValueError: the name is unknown, also to installed plug-ins.
    """
    number = getattr(dev_type, "device_type", dev_type)
    if isinstance(number, str):
        name = number.split()[0] if number.split() else number
        number = _find_name(name)
        if number == 0:
            known = ", ".join(sorted({*device_names(), *_ALIASES}))
            raise ValueError(f"unknown device type {dev_type!r}; known: {known}")
    elif isinstance(number, int) and not isinstance(number, bool):
        _find_type(number)
    else:
        raise TypeError(f"a device is given by its number, its name or a Target, not by {type(dev_type).__name__}")
    return Device(number, dev_id)


def cpu(dev_id: int = 0) -> Device:
    """Return a CPU device."""
    return Device(1, dev_id)


def cuda(dev_id: int = 0) -> Device:
    """Return an NVIDIA GPU device."""
    return Device(2, dev_id)


gpu = cuda


def opencl(dev_id: int = 0) -> Device:
    """Return an OpenCL device."""
    return Device(4, dev_id)


cl = opencl


def vulkan(dev_id: int = 0) -> Device:
    """Return a Vulkan device."""
    return Device(7, dev_id)


def metal(dev_id: int = 0) -> Device:
    """Return a Metal device."""
    return Device(8, dev_id)


def rocm(dev_id: int = 0) -> Device:
    """Return an AMD GPU device."""
    return Device(10, dev_id)


def ext_dev(dev_id: int = 0) -> Device:
    """Return an extension (accelerator) device."""
    return Device(12, dev_id)
