"""``tvm.runtime._ffi_api``: global functions whose names begin with ``runtime.``, as attributes."""

from __future__ import annotations

from .packed_func import PackedFunc
from .registry import get_global_func


def __getattr__(name: str) -> PackedFunc:
    function = None if name.startswith("__") else get_global_func(f"runtime.{name}", allow_missing=True)
    if function is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: runtime.{name} is not registered")
    return function
