"""``tvm._ffi.runtime_ctypes``: devices, data types and the codes of arguments, as programs for TVM 0.8 import them."""

from __future__ import annotations

import enum

from tilewright.runtime._ffi import TypeCode
from tilewright.runtime.device import Device
from tilewright.runtime.dtype import DataType, DataTypeCode


class ArgTypeCode(enum.IntEnum):
    """TVM's names of the codes that tell what an argument of a packed function is."""

    INT = TypeCode.INT
    UINT = TypeCode.UINT
    FLOAT = TypeCode.FLOAT
    HANDLE = TypeCode.HANDLE
    NULL = TypeCode.NULL
    TVM_TYPE = TypeCode.DTYPE
    DLDEVICE = TypeCode.DEVICE
    DLTENSOR_HANDLE = TypeCode.DLTENSOR
    OBJECT_HANDLE = TypeCode.OBJECT
    MODULE_HANDLE = TypeCode.MODULE
    PACKED_FUNC_HANDLE = TypeCode.FUNC
    STR = TypeCode.STR
    BYTES = TypeCode.BYTES
    NDARRAY_HANDLE = TypeCode.NDARRAY


__all__ = ["ArgTypeCode", "DataType", "DataTypeCode", "Device"]
