"""Buffers for bytes that a server's function returns, which are used in place."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from tilewright.runtime._ffi import LIB, Allocator, check_call
from tilewright.runtime.packed_func import PackedFunc, pack_args

# bytearray(size) would fill the memory with zeros first
_new = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new.argtypes, _new.restype = (ctypes.c_void_p, ctypes.c_ssize_t), ctypes.py_object
_address = ctypes.pythonapi.PyByteArray_AsString
_address.argtypes, _address.restype = (ctypes.py_object,), ctypes.c_void_p


def call_for_bytes(function: PackedFunc, *args: Any) -> bytearray:
    """Call a session's function that returns bytes, and return them without copying them again.

    Raises:
        RPCError: the function fails, or returns something else.
        TVMError: there is no memory for so many.
    """
    made: list[bytearray] = []

    @Allocator
    def allocate(_: int, size: int) -> int | None:
        try:
            made.append(_new(None, min(size, sys.maxsize)))  # the greatest size there is has no memory
        except MemoryError:
            return None
        address: int = _address(made[0])
        return address

    values, codes, keep = pack_args(args)
    check_call(LIB.TilewrightRpcCallForBytes(function.handle, values, codes, len(args), allocate, None))
    del keep
    return made[0]
