"""``tvm._ffi``: the registry of global functions, and errors, under the names that programs for TVM 0.8 import."""

from tilewright._ffi import base, registry, runtime_ctypes
from tilewright.runtime.packed_func import register_extension
from tilewright.runtime.registry import get_global_func, register_func

__all__ = ["base", "get_global_func", "register_extension", "register_func", "registry", "runtime_ctypes"]
