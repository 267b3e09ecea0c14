"""``tvm._ffi.registry``: global functions and extension types, as programs for TVM 0.8 import them."""

from tilewright.runtime.packed_func import register_extension
from tilewright.runtime.registry import get_global_func, list_global_func_names, register_func, remove_global_func

__all__ = ["get_global_func", "list_global_func_names", "register_extension", "register_func", "remove_global_func"]
