"""``tvm._ffi.base``: where programs for TVM 0.8 find ``TVMError``."""

from tilewright.runtime.error import TVMError

__all__ = ["TVMError"]
