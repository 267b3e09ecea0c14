"""Devices: what kind of processor an array lives on or a function runs on."""

from __future__ import annotations

from typing import NamedTuple

from ._ffi import LIB, check_call

_NAMES = {
    1: "cpu",
    2: "cuda",
    3: "cuda_host",
    4: "opencl",
    5: "aocl",
    6: "sdaccel",
    7: "vulkan",
    8: "metal",
    9: "vpi",
    10: "rocm",
    12: "ext_dev",
    14: "hexagon",
    15: "webgpu",
}
_TYPES = {name: number for number, name in _NAMES.items()} | {
    "llvm": 1,
    "stackvm": 1,
    "c": 1,
    "hybrid": 1,
    "composite": 1,
    "nvptx": 2,
    "cl": 4,
}


class Device(NamedTuple):
    """A device: DLPack's device type and an index. ``str()`` is for instance ``cpu(0)``."""

    device_type: int
    device_id: int

    @property
    def exist(self) -> bool:
        """Whether this machine and this runtime have the device."""
        return self.device_type == 1 and self.device_id == 0

    def sync(self) -> None:
        """Wait until the device has done what it was given."""
        check_call(LIB.TVMSynchronize(self.device_type, self.device_id, None))

    def __str__(self) -> str:
        return f"{_NAMES.get(self.device_type, f'device_type_{self.device_type}')}({self.device_id})"

    def __repr__(self) -> str:
        return str(self)


def device(dev_type: int | str, dev_id: int = 0) -> Device:
    """Return a device by type number, device name or target name ("llvm" and "c" mean the CPU).

    Raises:
        ValueError: the name is unknown.
    """
    if isinstance(dev_type, str):
        name = dev_type.split()[0] if dev_type.split() else dev_type
        if name not in _TYPES:
            raise ValueError(f"unknown device type {dev_type!r}; known: {', '.join(sorted(_TYPES))}")
        dev_type = _TYPES[name]
    return Device(dev_type, dev_id)


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
