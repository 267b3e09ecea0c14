"""Finds the device: what ``tvm.device("npu")`` asks for."""

from pathlib import Path

from tilewright import runtime


def load() -> None:
    """Add the device "npu" to this process."""
    runtime.load_device_plugin(Path(__file__).parent / "libnpu_device.so")
