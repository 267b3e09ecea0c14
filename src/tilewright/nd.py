"""``tvm.nd``: arrays."""

from tilewright.runtime.device import cpu, device
from tilewright.runtime.ndarray import NDArray, array, empty, from_dlpack

__all__ = ["NDArray", "array", "cpu", "device", "empty", "from_dlpack"]
