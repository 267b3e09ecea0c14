"""``tvm.arith._ffi_api``: global functions whose names begin with ``arith.``, as attributes."""

from __future__ import annotations

from tilewright.runtime.packed_func import PackedFunc
from tilewright.runtime.registry import get_global_func


def __getattr__(name: str) -> PackedFunc:
    function = None if name.startswith("__") else get_global_func(f"arith.{name}", allow_missing=True)
    if function is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: arith.{name} is not registered")
    return function
