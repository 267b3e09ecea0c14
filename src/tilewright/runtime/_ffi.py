"""The native library: finding it, its types for ctypes, and its errors.

Nothing outside this package uses this module.
"""

from __future__ import annotations

import ctypes
import threading
import warnings
from pathlib import Path
from typing import Any

from . import environment
from .error import RPCError, RPCSessionTimeoutError, TVMError

LIBRARY_NAME = "libtilewright_runtime.so"


def find_library() -> Path:
    """Return the path of the native library.

    Raises:
        ImportError: the library has not been built.
    """
    override = environment.RUNTIME_LIBRARY.read()
    if override is not None:
        return override
    package = Path(__file__).resolve().parent.parent
    places = [package / "_native"]
    if not (places[0] / LIBRARY_NAME).exists():  # the sources are used from a checkout
        import sysconfig

        places.append(Path(sysconfig.get_path("platlib")) / "tilewright" / "_native")
    for place in places:
        if (place / LIBRARY_NAME).exists():
            return place / LIBRARY_NAME
    raise ImportError(
        f"{LIBRARY_NAME} is not built (looked in {', '.join(map(str, places))}); "
        "run `pip install -e .` in the repository"
    )


def native_dir() -> Path:
    """Return the folder of the installed native runtime, which is a prefix for CMake and pkg-config."""
    return find_library().parent


def include_dir() -> Path:
    """Return the folder of the public C headers (for ``-I``)."""
    installed = find_library().parent / "include"
    return installed if installed.exists() else Path(__file__).resolve().parents[3] / "native" / "include"


class DLDataType(ctypes.Structure):
    """DLPack's element type."""

    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLDevice(ctypes.Structure):
    """DLPack's device."""

    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class SavingState(ctypes.Structure):
    """How far saving a module is, and whether it is to stop."""

    _fields_ = [("written", ctypes.c_uint64), ("stop", ctypes.c_int32)]


class DLTensor(ctypes.Structure):
    """DLPack's strided view of memory."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class TVMValue(ctypes.Union):
    """One argument or return value of a packed function."""

    _fields_ = [
        ("v_int64", ctypes.c_int64),
        ("v_float64", ctypes.c_double),
        ("v_handle", ctypes.c_void_p),
        ("v_str", ctypes.c_char_p),
        ("v_type", DLDataType),
        ("v_device", DLDevice),
    ]


class TVMByteArray(ctypes.Structure):
    """Bytes with their size."""

    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class TypeCode:
    """TVM 0.8's argument type codes."""

    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    NULL = 4
    DTYPE = 5
    DEVICE = 6
    DLTENSOR = 7
    OBJECT = 8
    MODULE = 9
    FUNC = 10
    STR = 11
    BYTES = 12
    NDARRAY = 13


_Int = ctypes.c_int
_Handle = ctypes.c_void_p
_Out = ctypes.POINTER(ctypes.c_void_p)
_Values = ctypes.POINTER(TVMValue)
_Codes = ctypes.POINTER(ctypes.c_int)

PackedCFunc = ctypes.CFUNCTYPE(_Int, _Values, _Codes, _Int, _Handle, _Handle)
Finalizer = ctypes.CFUNCTYPE(None, _Handle)
Resolve = ctypes.CFUNCTYPE(_Handle, _Handle, ctypes.c_char_p)
GetFunction = ctypes.CFUNCTYPE(_Int, _Handle, ctypes.c_char_p, _Out)
Save = ctypes.CFUNCTYPE(_Int, _Handle, _Handle)
GetSource = ctypes.CFUNCTYPE(_Int, _Handle, ctypes.c_char_p, _Handle)
SaveFile = ctypes.CFUNCTYPE(_Int, _Handle, ctypes.c_char_p, ctypes.c_char_p)
Allocator = ctypes.CFUNCTYPE(_Handle, _Handle, ctypes.c_size_t)
Send = ctypes.CFUNCTYPE(_Int, _Handle, _Handle, ctypes.c_size_t)
Task = ctypes.CFUNCTYPE(None, _Handle, _Int)
LaunchTasks = ctypes.CFUNCTYPE(_Int, _Handle, _Handle, _Handle, _Int)
Receive = ctypes.CFUNCTYPE(_Int, _Handle, _Handle, ctypes.c_size_t, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t))


class ModuleCallbacks(ctypes.Structure):
    """TilewrightModuleCallbacks."""

    _fields_ = [
        ("resolve", Resolve),
        ("get_function", GetFunction),
        ("save", Save),
        ("get_source", GetSource),
        ("finalize", Finalizer),
        ("save_file", SaveFile),
    ]


class RpcCallbacks(ctypes.Structure):
    """TilewrightRpcCallbacks."""

    _fields_ = [("send", Send), ("receive", Receive), ("close", Finalizer)]


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    # name: argument types; the result is int unless listed in _RESULTS
    "TVMGetLastError": (),
    "TVMAPISetLastError": (ctypes.c_char_p,),
    "TVMFuncFree": (_Handle,),
    "TVMFuncCall": (_Handle, _Values, _Codes, _Int, _Values, _Codes),
    "TVMCFuncSetReturn": (_Handle, _Values, _Codes, _Int),
    "TVMCbArgToReturn": (_Values, _Codes),
    "TVMFuncCreateFromCFunc": (PackedCFunc, _Handle, Finalizer, _Out),
    "TVMFuncRegisterGlobal": (ctypes.c_char_p, _Handle, _Int),
    "TVMFuncGetGlobal": (ctypes.c_char_p, _Out),
    "TVMFuncListGlobalNames": (_Codes, ctypes.POINTER(ctypes.POINTER(ctypes.c_char_p))),
    "TVMFuncRemoveGlobal": (ctypes.c_char_p,),
    "TVMModLoadFromFile": (ctypes.c_char_p, ctypes.c_char_p, _Out),
    "TVMModImport": (_Handle, _Handle),
    "TVMModGetFunction": (_Handle, ctypes.c_char_p, _Int, _Out),
    "TVMModFree": (_Handle,),
    "TVMArrayFree": (_Handle,),
    "TVMArrayCopyFromBytes": (_Handle, _Handle, ctypes.c_size_t),
    "TVMArrayCopyToBytes": (_Handle, _Handle, ctypes.c_size_t),
    "TVMArrayCopyFromTo": (_Handle, _Handle, _Handle),
    "TVMArrayFromDLPack": (_Handle, _Out),
    "TVMArrayToDLPack": (_Handle, _Out),
    "TVMDLManagedTensorCallDeleter": (_Handle,),
    "TVMSynchronize": (_Int, _Int, _Handle),
    "TVMStreamCreate": (_Int, _Int, _Out),
    "TVMStreamFree": (_Int, _Int, _Handle),
    "TVMSetStream": (_Int, _Int, _Handle),
    "TilewrightDeviceFind": (_Int,),
    "TilewrightDeviceName": (_Int,),
    "TilewrightDeviceType": (ctypes.c_char_p,),
    "TilewrightDeviceIsHost": (_Int,),
    "TilewrightDeviceGetAttr": (DLDevice, _Int, _Values, _Codes),
    "TilewrightLoadPlugin": (ctypes.c_char_p,),
    "TilewrightStreamRead": (_Handle, _Handle, ctypes.c_size_t),
    "TilewrightStreamWrite": (_Handle, _Handle, ctypes.c_size_t),
    "TilewrightModCreate": (ctypes.c_char_p, ctypes.POINTER(ModuleCallbacks), _Handle, _Out),
    "TilewrightModRetain": (_Handle,),
    "TilewrightModTypeKey": (_Handle,),
    "TilewrightModNumImports": (_Handle,),
    "TilewrightModGetImport": (_Handle, _Int, _Out),
    "TilewrightModGetSource": (_Handle, ctypes.c_char_p, _Values, _Codes),
    "TilewrightModSave": (_Handle, ctypes.c_char_p, ctypes.c_char_p),
    "TilewrightModSaveWithWeights": (
        _Handle,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.POINTER(SavingState),
    ),
    "TilewrightCheckWeights": (ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t),
    "TilewrightVerifyFile": (ctypes.c_char_p,),
    "TilewrightModSavedBytes": (_Handle, ctypes.POINTER(ctypes.c_uint64)),
    "TilewrightModFromBlob": (_Handle, ctypes.c_size_t, _Handle, _Out),
    "TilewrightRpcCallForBytes": (_Handle, _Values, _Codes, _Int, Allocator, _Handle),
    "TilewrightRpcServeOver": (ctypes.POINTER(RpcCallbacks), _Handle),
    "TilewrightRpcConnectOver": (
        ctypes.POINTER(RpcCallbacks),
        _Handle,
        ctypes.c_double,
        _Values,
        _Codes,
        _Int,
        _Out,
    ),
    "TilewrightFuncCallback": (_Handle, _Out, _Out),
    "TilewrightArrayAlloc": (ctypes.POINTER(ctypes.c_int64), _Int, DLDataType, DLDevice, ctypes.c_char_p, _Out),
    "TilewrightArrayRetain": (_Handle,),
    "TilewrightArrayIsReadOnly": (_Handle,),
    "TilewrightObjectFree": (_Handle,),
    "TilewrightRegisterDataType": (ctypes.c_char_p, _Int),
    "TilewrightNumThreads": (),
    "TilewrightSetNumThreads": (_Int,),
    "TilewrightSetThreadPool": (LaunchTasks, _Handle),
    "TilewrightHostCpuFeatures": (),
    "TilewrightCheckCpuFeatures": (ctypes.c_char_p, ctypes.c_char_p),
    "TilewrightContextSymbol": (ctypes.c_char_p,),
    "TilewrightContextSymbolNames": (),
}
_RESULTS: dict[str, Any] = {
    "TVMGetLastError": ctypes.c_char_p,
    "TVMAPISetLastError": None,
    "TVMDLManagedTensorCallDeleter": None,
    "TilewrightDeviceFind": ctypes.c_void_p,
    "TilewrightDeviceName": ctypes.c_char_p,
    "TilewrightModTypeKey": ctypes.c_char_p,
    "TilewrightHostCpuFeatures": ctypes.c_char_p,
    "TilewrightContextSymbol": ctypes.c_void_p,
    "TilewrightContextSymbolNames": ctypes.POINTER(ctypes.c_char_p),
}


def _load() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(find_library()))
    for name, argtypes in _SIGNATURES.items():
        function = getattr(lib, name)
        function.argtypes = argtypes
        function.restype = _RESULTS.get(name, ctypes.c_int)
    return lib


def _warn_of_threads() -> None:
    """Warn of a ``TVM_NUM_THREADS`` that the native runtime cannot read, and passes over."""
    try:
        environment.NUM_THREADS.read()
    except TVMError as error:
        warnings.warn(f"{error}; it is passed over", RuntimeWarning, stacklevel=3)


_warn_of_threads()
LIB = _load()


class _Pending(threading.local):
    """The Python exception that a callback of this thread turned into an error text."""

    exception: BaseException | None = None
    text: str = ""


_pending = _Pending()


def last_error() -> str:
    """Return the error text of the calling thread."""
    return (LIB.TVMGetLastError() or b"").decode("utf-8", "replace")


def set_last_error(exception: BaseException) -> None:
    """Pass an exception across C code as the thread's error text."""
    text = f"{type(exception).__name__}: {exception}"
    _pending.exception = exception
    _pending.text = text
    LIB.TVMAPISetLastError(text.replace("\0", "\\0").encode("utf-8", "replace"))


def forget_exception() -> None:
    """Drop the exception of :func:`set_last_error` after its text was reported."""
    _pending.exception = None


def _error_of(text: str) -> TVMError:
    """Return the error for a text of the native library, which may begin with the name of its class."""
    for cls in (RPCError, RPCSessionTimeoutError):
        if text.startswith(f"{cls.__name__}: "):
            return cls(text.removeprefix(f"{cls.__name__}: "))
    return TVMError(text)


def raise_last_error() -> None:
    """Raise the thread's error: the original exception when a Python callback caused it, else TVMError."""
    text = last_error()
    exception, pending = _pending.exception, _pending.text
    _pending.exception = None
    try:
        if exception is not None and pending:
            if text == pending:
                raise exception
            if pending in text:
                raise _error_of(text) from exception
        raise _error_of(text)
    finally:
        exception = None  # its traceback has this frame: a circle that would keep what the callback had


def check_call(code: int) -> None:
    """Raise the thread's error unless code is 0."""
    if code != 0:
        raise_last_error()
    if _pending.exception is not None and _pending.text not in last_error():
        _pending.exception = None  # what was called has dealt with it; it would keep all that its traceback reaches
