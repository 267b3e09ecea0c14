"""PackedFunc: a function of the runtime, written in C, compiled, or in Python.

Arguments may be None, bool, int, float, str, bytes (also bytearray and memoryview), NDArray, numpy array (borrowed for
the call), any object with ``__dlpack__``, Device, DataType, Module, PackedFunc, a Python callable, or
``ctypes.c_void_p``.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._ffi import (
    LIB,
    DLDevice,
    DLTensor,
    Finalizer,
    PackedCFunc,
    TVMByteArray,
    TVMValue,
    TypeCode,
    check_call,
    set_last_error,
)
from .device import Device
from .dtype import DataType, from_native, to_native
from .ndarray import NDArray, array, from_dlpack


class PackedFunc:
    """A function of the runtime; call it like a Python function.

    A Python function among the registered ones is called directly, with the arguments as they are.
    """

    __slots__ = ("__weakref__", "handle", "python")

    def __init__(self, handle: int) -> None:
        """Take over the caller's reference to the native function at ``handle``."""
        self.handle = handle
        self.python = _python_of(handle)

    def __del__(self, _free: Any = LIB.TVMFuncFree) -> None:
        handle = getattr(self, "handle", None)
        if handle:
            _free(handle)

    def __call__(self, *args: Any) -> Any:
        """Call the function; errors in it are raised as :class:`TVMError` or as they were in Python."""
        if self.python is not None:
            return self.python(*args)
        values, codes, keep = pack_args(args)
        result = TVMValue()
        code = ctypes.c_int()
        check_call(LIB.TVMFuncCall(self.handle, values, codes, len(args), result, code))
        del keep
        return unpack_return(result, code.value)

    def __repr__(self) -> str:
        kind = "Python" if self.python is not None else "native"
        return f"PackedFunc({kind}, 0x{self.handle:x})"


Function = PackedFunc


class BorrowedArray(NDArray):
    """An array that a callback was lent; it must not be kept after the callback returns."""

    __slots__ = ()

    def __del__(self, _free: Any = None) -> None:
        """Leave the array to its owner."""

    @property
    def writeable(self) -> bool:
        """Return True: the caller lets its callback write; a plain ``DLTensor`` has no mark that forbids it."""
        return True

    def to_dlpack(self) -> Any:
        """Return a capsule over a copy: the memory is not this array's to share."""
        return NDArray.copyto(self, self.device).to_dlpack()


_EXTENSIONS: dict[type, int] = {}  # classes of register_extension, with their type codes


def register_extension(cls: type, fcreate: None = None) -> type:
    """Let objects of a class be arguments of packed functions; a decorator.

    Args:
        cls: has ``_tvm_tcode``, one of TVM's type codes (7 for a ``DLTensor*``, 3 for any pointer), and objects of it
            have ``_tvm_handle``, the pointer that the function gets.
        fcreate: TVM makes objects of a code of one's own by it; such codes are not the runtime's.

    Raises:
        TypeError: ``cls`` has no such code, or ``fcreate`` is passed.
    """
    code = getattr(cls, "_tvm_tcode", None)
    if code not in (TypeCode.HANDLE, TypeCode.DLTENSOR) or fcreate is not None:
        raise TypeError(
            f"{cls.__name__} needs _tvm_tcode, which is {TypeCode.DLTENSOR} for a DLTensor* and {TypeCode.HANDLE} for "
            f"any pointer, and fcreate is None; found {code!r} and {fcreate!r}"
        )
    _EXTENSIONS[cls] = code
    return cls


# Set by module.py, which builds on this file.
module_class: Any = None
# Set by container.py.
object_class: Any = ()


def pack_args(args: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
    """Convert arguments; return the value array, the type codes, and objects that must outlive the call."""
    count = len(args)
    values = (TVMValue * count)()
    codes = (ctypes.c_int * count)()
    keep: list[Any] = []
    for i, arg in enumerate(args):
        codes[i] = _pack(arg, values[i], keep)
    return values, codes, keep


def _pack(arg: Any, value: TVMValue, keep: list[Any]) -> int:
    """Store one argument; returns its type code."""
    if isinstance(arg, NDArray):
        value.v_handle = arg.handle
        return TypeCode.DLTENSOR if isinstance(arg, BorrowedArray) else TypeCode.NDARRAY
    if isinstance(arg, np.ndarray):
        value.v_handle = ctypes.addressof(_tensor_of(arg, keep))
        return TypeCode.DLTENSOR
    if arg is None:
        value.v_handle = None
        return TypeCode.NULL
    if isinstance(arg, (int, np.integer, np.bool_)):
        return _pack_int(int(arg), value)
    if isinstance(arg, (float, np.floating)):
        value.v_float64 = float(arg)
        return TypeCode.FLOAT
    if isinstance(arg, str):
        keep.append(arg.encode("utf-8"))
        value.v_str = keep[-1]
        return TypeCode.STR
    if isinstance(arg, (bytes, bytearray, memoryview)):
        return _pack_bytes(arg, value, keep)
    if isinstance(arg, Device):
        value.v_device = DLDevice(arg.device_type, arg.device_id)
        return TypeCode.DEVICE
    if isinstance(arg, DataType):
        value.v_type = to_native(arg)
        return TypeCode.DTYPE
    return _pack_object(arg, value, keep)


def _pack_object(arg: Any, value: TVMValue, keep: list[Any]) -> int:
    if isinstance(arg, module_class):
        value.v_handle = arg.handle
        return TypeCode.MODULE
    if isinstance(arg, object_class):
        value.v_handle = arg.handle
        return TypeCode.OBJECT
    if hasattr(arg, "__dlpack__"):
        keep.append(from_dlpack(arg))
        value.v_handle = keep[-1].handle
        return TypeCode.NDARRAY
    if isinstance(arg, ctypes.c_void_p):
        value.v_handle = arg.value
        return TypeCode.HANDLE
    if type(arg) in _EXTENSIONS:
        value.v_handle = arg._tvm_handle
        return _EXTENSIONS[type(arg)]
    if hasattr(arg, "__index__"):
        return _pack_int(arg.__index__(), value)
    if isinstance(arg, PackedFunc) or callable(arg):
        keep.append(convert_to_packed(arg))
        value.v_handle = keep[-1].handle
        return TypeCode.FUNC
    raise TypeError(
        f"cannot pass {type(arg).__name__} to a packed function; it takes numbers, strings, bytes, arrays, "
        "devices, modules and functions"
    )


def _pack_int(number: int, value: TVMValue) -> int:
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError(f"{number} does not fit in 64 bits")
    value.v_int64 = number
    return TypeCode.INT


def _pack_bytes(data: bytes | bytearray | memoryview, value: TVMValue, keep: list[Any]) -> int:
    if isinstance(data, bytes):
        holder = TVMByteArray(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data))
        keep.append((data, holder))
    else:
        elements = np.frombuffer(data, np.uint8)  # where they are
        holder = TVMByteArray(elements.ctypes.data, elements.nbytes)
        keep.append((elements, holder))
    value.v_handle = ctypes.addressof(holder)
    return TypeCode.BYTES


_HOST = DLDevice(1, 0)


def _tensor_of(data: np.ndarray[Any, Any], keep: list[Any]) -> DLTensor:
    """Describe a numpy array's memory, without a copy."""
    shape = (ctypes.c_int64 * data.ndim)(*data.shape)
    strides = None
    if not data.flags.c_contiguous:
        strides = (ctypes.c_int64 * data.ndim)(*(step // data.itemsize for step in data.strides))
    dtype = to_native(DataType(data.dtype))
    tensor = DLTensor(data.ctypes.data, _HOST, data.ndim, dtype, shape, strides, 0)  # which keeps shape and strides
    keep.append((data, tensor))
    return tensor


def unpack_return(value: TVMValue, code: int) -> Any:
    """Convert a return value, whose reference the caller owns."""
    match code:
        case TypeCode.NULL:
            return None
        case TypeCode.INT | TypeCode.UINT:
            return value.v_int64
        case TypeCode.FLOAT:
            return value.v_float64
        case TypeCode.STR:
            return (value.v_str or b"").decode("utf-8", "replace")
        case TypeCode.BYTES:
            holder = TVMByteArray.from_address(value.v_handle)
            return ctypes.string_at(holder.data, holder.size) if holder.size else b""
        case TypeCode.NDARRAY:
            return NDArray(value.v_handle)
        case TypeCode.MODULE:
            return module_class(value.v_handle)
        case TypeCode.OBJECT:
            return object_class.owning(value.v_handle)
        case TypeCode.FUNC:
            return PackedFunc(value.v_handle)
        case TypeCode.DEVICE:
            return Device(value.v_device.device_type, value.v_device.device_id)
        case TypeCode.DTYPE:
            return from_native(value.v_type)
        case TypeCode.HANDLE:
            return ctypes.c_void_p(value.v_handle)
    raise TypeError(f"a packed function returned a value of unknown type code {code}")


# ---- Python functions called from C ----

_callables: dict[int, Callable[..., Any]] = {}
_numbers = itertools.count(1)


def _unpack_arg(value: TVMValue, code: int) -> Any:
    """Convert an argument that the caller of a callback owns."""
    if code == TypeCode.DLTENSOR:
        return BorrowedArray(value.v_handle)
    if code in (TypeCode.NDARRAY, TypeCode.MODULE, TypeCode.FUNC, TypeCode.OBJECT):
        LIB.TVMCbArgToReturn(value, ctypes.c_int(code))
    return unpack_return(value, code)


@PackedCFunc
def _call_python(args: Any, codes: Any, count: int, ret: int, resource: int) -> int:
    try:
        result = _callables[resource](*(_unpack_arg(args[i], codes[i]) for i in range(count)))
        if result is not None:
            set_return(ret, result)
    except BaseException as error:
        set_last_error(error)
        return -1
    return 0


@Finalizer
def _forget(resource: int) -> None:
    if _callables is not None:  # when Python ends, it takes modules apart before what C still holds
        _callables.pop(resource, None)


_CALL_PYTHON_ADDRESS = ctypes.cast(_call_python, ctypes.c_void_p).value


def set_return(ret: int, result: Any) -> None:
    """Store a callback's return value."""
    if isinstance(result, (BorrowedArray, np.ndarray)):
        # C would only borrow these: return a copy that the runtime owns
        result = array(result)
    values, codes, keep = pack_args((result,))
    check_call(LIB.TVMCFuncSetReturn(ret, values, codes, 1))
    del keep


def _python_of(handle: int) -> Callable[..., Any] | None:
    """Return the Python function behind a native handle, if there is one."""
    callback, resource = ctypes.c_void_p(), ctypes.c_void_p()
    LIB.TilewrightFuncCallback(handle, ctypes.byref(callback), ctypes.byref(resource))
    if callback.value != _CALL_PYTHON_ADDRESS or resource.value is None:
        return None
    return _callables.get(resource.value)


def convert_to_packed(function: Any) -> PackedFunc:
    """Return a Python callable as a PackedFunc (a PackedFunc stays itself)."""
    if isinstance(function, PackedFunc):
        return function
    number = next(_numbers)
    _callables[number] = function
    out = ctypes.c_void_p()
    check_call(LIB.TVMFuncCreateFromCFunc(_call_python, number, _forget, ctypes.byref(out)))
    assert out.value is not None
    return PackedFunc(out.value)
