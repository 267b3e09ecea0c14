"""``tvm._ffi``: the registry of global functions, and errors, under the names that programs for TVM 0.8 import."""

from tilewright._ffi import base, runtime_ctypes
from tilewright.runtime.registry import get_global_func, register_func

__all__ = ["base", "get_global_func", "register_func", "runtime_ctypes"]
