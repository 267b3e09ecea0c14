"""NDArray: arrays of the native runtime; they share memory with numpy, PyTorch and others through DLPack."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ._ffi import LIB, DLDevice, DLTensor, check_call
from .device import LAST_SHARED_TYPE, Device, cpu
from .device import device as device
from .dtype import DataType, DataTypeCode, from_native, to_native
from .error import TVMError

_DLPACK_NAME = b"dltensor"
_DLPACK_USED = b"used_dltensor"

_Name = ctypes.c_char_p
_Pointer = ctypes.c_void_p
_capsule_new = ctypes.PYFUNCTYPE(ctypes.py_object, _Pointer, _Name, _Pointer)(("PyCapsule_New", ctypes.pythonapi))
_capsule_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, _Name)(("PyCapsule_SetName", ctypes.pythonapi))
# by address: the destructor sees a capsule whose reference count is zero and must not touch that
_capsule_get = ctypes.PYFUNCTYPE(_Pointer, _Pointer, _Name)(("PyCapsule_GetPointer", ctypes.pythonapi))
_capsule_valid = ctypes.PYFUNCTYPE(ctypes.c_int, _Pointer, _Name)(("PyCapsule_IsValid", ctypes.pythonapi))


@ctypes.PYFUNCTYPE(None, _Pointer)
def _delete_capsule(capsule: int) -> None:
    """Free a DLPack capsule that nobody consumed."""
    if _capsule_valid(capsule, _DLPACK_NAME):
        LIB.TVMDLManagedTensorCallDeleter(_capsule_get(capsule, _DLPACK_NAME))


_DELETER = ctypes.cast(_delete_capsule, ctypes.c_void_p)


class NDArray:
    """A reference-counted array of the runtime.

    Make one with :func:`array`, :func:`empty` or :func:`from_dlpack`. ``shape`` is a tuple of ints,
    ``dtype`` TVM's text of the element type, ``device`` a :class:`Device`. An array whose ``writeable`` is False is a
    view of memory that others read too, such as weights that several executors share: writing to it is an error.
    """

    __slots__ = ("__weakref__", "_tensor", "handle")

    def __init__(self, handle: int) -> None:
        """Take over the caller's reference to the native array at ``handle``."""
        self.handle = handle
        self._tensor = DLTensor.from_address(handle)

    def __del__(self, _free: Any = LIB.TVMArrayFree) -> None:
        handle = getattr(self, "handle", None)
        if handle:
            _free(handle)

    @property
    def _tvm_handle(self) -> int:
        """The address of the ``DLTensor``, by TVM's name, for ``register_extension`` classes that hold an array."""
        return self.handle

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        tensor = self._tensor
        return tuple(tensor.shape[: tensor.ndim])

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return int(self._tensor.ndim)

    @property
    def dtype(self) -> str:
        """Element type, as text."""
        return str(from_native(self._tensor.dtype))

    @property
    def device(self) -> Device:
        """The array's device."""
        return Device(self._tensor.device.device_type, self._tensor.device.device_id)

    ctx = device  # TVM's older name

    @property
    def is_contiguous(self) -> bool:
        """Return whether the elements are in row-major order without gaps."""
        return not self._tensor.strides

    @property
    def writeable(self) -> bool:
        """Return whether the elements may be written to: not those of weights and constants that others read too."""
        return not LIB.TilewrightArrayIsReadOnly(self.handle)

    def _need_writeable(self) -> None:
        if not self.writeable:
            raise ValueError(
                "the array is read-only: a view of weights that other executors read too; write to a copy "
                "(.copyto(tvm.cpu())), or give an executor weights of its own with set_input"
            )

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count * from_native(self._tensor.dtype).itemsize

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a copy as a numpy array."""
        dtype = from_native(self._tensor.dtype)
        scalar = dtype.with_lanes(1).to_numpy()
        shape = self.shape if dtype.lanes == 1 else (*self.shape, dtype.lanes)
        out = np.empty(shape, scalar)
        check_call(LIB.TVMArrayCopyToBytes(self.handle, out.ctypes.data, out.nbytes))
        return out

    asnumpy = numpy

    def copyfrom(self, source_array: Any) -> NDArray:
        """Set the elements from an array of this shape (numpy or nested lists are converted to this dtype).

        Raises:
            ValueError: the shapes differ, or this array is read-only.
        """
        self._need_writeable()
        if isinstance(source_array, NDArray):
            source_array.copyto(self)
            return self
        dtype = from_native(self._tensor.dtype)
        try:
            values = np.ascontiguousarray(source_array, dtype=dtype.with_lanes(1).to_numpy())
        except (TypeError, ValueError) as error:
            raise TypeError(f"array must be an array_like of {self.dtype}: {error}") from error
        expected = self.shape if dtype.lanes == 1 else (*self.shape, dtype.lanes)
        # ascontiguousarray gives scalars one dimension
        if values.shape != expected and not (expected == () and values.shape == (1,)):
            raise ValueError(f"array shape do not match the shape of NDArray {values.shape} vs {expected}")
        check_call(LIB.TVMArrayCopyFromBytes(self.handle, values.ctypes.data, values.nbytes))
        return self

    _sync_copyfrom = copyfrom

    def copyto(self, target: NDArray | Device, mem_scope: str | None = None) -> NDArray:
        """Copy into another array, which must not be read-only, or to a new one on a device; returns the copy."""
        if isinstance(target, Device):
            target = empty(self.shape, self.dtype, target, mem_scope)
        if not isinstance(target, NDArray):
            raise ValueError(f"copyto takes an NDArray or a Device, not {type(target).__name__}")
        if target.shape != self.shape or target.dtype != self.dtype:
            raise ValueError(
                f"cannot copy an array of shape {self.shape} and dtype {self.dtype} "
                f"to one of shape {target.shape} and dtype {target.dtype}"
            )
        target._need_writeable()
        check_call(LIB.TVMArrayCopyFromTo(self.handle, target.handle, None))
        return target

    def same_as(self, other: NDArray) -> bool:
        """Return whether both are the same native array."""
        return self.handle == other.handle

    def to_dlpack(self) -> Any:
        """Return a DLPack capsule that shares this array's memory, or a copy if it is read-only."""
        source = self if self.writeable else self.copyto(self.device)
        managed = ctypes.c_void_p()
        check_call(LIB.TVMArrayToDLPack(source.handle, ctypes.byref(managed)))
        return _capsule_new(managed, _DLPACK_NAME, _DELETER)

    def __dlpack__(self, stream: Any = None, *, copy: bool | None = None, **_: Any) -> Any:
        """Return a DLPack capsule (the protocol of ``numpy.from_dlpack`` and ``torch.from_dlpack``).

        The device is synchronized when this returns, so that any stream of the consumer may continue.

        Raises:
            BufferError: the array is on a device without a DLPack number; or it is read-only, which needs a copy, and
                    ``copy`` is False.
        """
        if copy is False and not self.writeable:
            raise BufferError("the array is read-only, which DLPack cannot say; let it be copied")
        if self.device.device_type > LAST_SHARED_TYPE:
            raise BufferError(f"only Tilewright knows {self.device}; copy the array with .numpy() or .copyto(cpu())")
        shared = self.copyto(self.device) if copy else self
        if not self.device.is_host:
            self.device.sync()
        return shared.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device type and index."""
        return self._tensor.device.device_type, self._tensor.device.device_id

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Return a numpy copy, for ``numpy.asarray``."""
        out = self.numpy()
        return out if dtype is None else out.astype(dtype, copy=False)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Set all elements: ``a[:] = value`` is the one index allowed."""
        if not (isinstance(index, slice) and index == slice(None)):
            raise ValueError("Array only support set from numpy array, as a[:] = value")
        self.copyfrom(value)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<tilewright.nd.NDArray shape={self.shape}, {self.device}>\n{self.numpy()!r}"

    def __str__(self) -> str:
        return str(self.numpy())

    def _repr_html_(self) -> str:
        """Return what Jupyter shows: the array's type and place above its numbers, of which numpy leaves many out."""
        shown = str(self).replace("&", "&amp;").replace("<", "&lt;")
        return f"<div>NDArray {self.shape} {self.dtype}, {self.device}</div><pre>{shown}</pre>"


def _dimension(extent: Any) -> int:
    """Return a dimension as an int, also one passed as a float, such as ``channels / 8``."""
    if isinstance(extent, (float, np.floating)) and extent != int(extent):
        raise TVMError(f"dimensions are whole numbers, got {extent}")
    return int(extent)


def empty(
    shape: int | Sequence[int],
    dtype: Any = "float32",
    device: Device | None = None,
    mem_scope: str | None = None,
) -> NDArray:
    """Return an array with undefined contents.

    Args:
        shape: its dimensions.
        dtype: element type.
        device: where to put it; the CPU by default.
        mem_scope: which of the device's memories; None and "global" mean the main one.

    Raises:
        TVMError: no room, or no such device or memory.
    """
    dims = [_dimension(extent) for extent in (shape if isinstance(shape, Iterable) else (shape,))]
    kind = DataType(dtype)
    where = device if device is not None else cpu()
    out = ctypes.c_void_p()
    native = (ctypes.c_int64 * len(dims))(*dims)
    check_call(
        LIB.TilewrightArrayAlloc(
            native,
            len(dims),
            to_native(kind),
            DLDevice(where.device_type, where.device_id),
            None if mem_scope is None else mem_scope.encode(),
            ctypes.byref(out),
        )
    )
    assert out.value is not None
    return NDArray(out.value)


def array(arr: Any, device: Device | None = None, mem_scope: str | None = None) -> NDArray:
    """Return a copy of a numpy array, an NDArray or nested lists (with numpy's type for them)."""
    if isinstance(arr, NDArray):
        return arr.copyto(device if device is not None else arr.device, mem_scope)
    arr = np.asarray(arr)
    return empty(arr.shape, arr.dtype, device, mem_scope).copyfrom(arr)


def from_dlpack(source: Any) -> NDArray:
    """Return an array that shares memory with a DLPack capsule or with an object that has ``__dlpack__``.

    Raises:
        ValueError: the capsule was consumed already.
    """
    if isinstance(source, NDArray):
        source = source.to_dlpack()
    capsule = source.__dlpack__() if hasattr(source, "__dlpack__") else source
    if not _capsule_valid(id(capsule), _DLPACK_NAME):
        raise ValueError("expected a DLPack capsule that nobody has consumed yet")
    out = ctypes.c_void_p()
    check_call(LIB.TVMArrayFromDLPack(_capsule_get(id(capsule), _DLPACK_NAME), ctypes.byref(out)))
    _capsule_rename(capsule, _DLPACK_USED)
    assert out.value is not None
    return NDArray(out.value)


def numpyasarray(np_data: np.ndarray[Any, Any]) -> NDArray:
    """Return an array that shares the memory of a numpy array (which stays alive with it)."""
    kind = DataType(np_data.dtype)
    if kind.type_code != DataTypeCode.BFLOAT:
        return from_dlpack(np_data)
    # numpy exports no bfloat16 through DLPack: pass the same bits as integers
    shared = from_dlpack(np_data.view(np.uint16))
    shared._tensor.dtype.code = kind.type_code
    return shared


_BITS = {size: np.dtype(f"u{size}").str for size in (1, 2, 4, 8)}


class _Memory:
    """Memory that numpy takes over; numpy keeps this, and with it the owner, alive."""

    def __init__(self, owner: object, interface: dict[str, Any], itemsize: int) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "typestr": _BITS[itemsize], **interface}


def numpy_view(array: NDArray, writable: bool = False) -> np.ndarray[Any, Any]:
    """Return a numpy array on the memory of an NDArray, which stays alive with it.

    Raises:
        TVMError: the array lives where the host cannot look.
        ValueError: the view is to be writable, and the array is read-only.
    """
    if writable:
        array._need_writeable()
    tensor, shape = array._tensor, array.shape
    if not LIB.TilewrightDeviceIsHost(tensor.device.device_type):
        raise TVMError(
            f"the host cannot touch memory of {array.device}; copy the array with .numpy() or .copyto(cpu())"
        )
    if 0 in shape:
        return array.numpy()
    dtype = from_native(tensor.dtype)
    scalar = dtype.with_lanes(1).to_numpy()
    if dtype.lanes != 1:
        shape = (*shape, dtype.lanes)
    strides = None  # in row-major order
    if tensor.strides:
        steps = [s * dtype.lanes for s in tensor.strides[: tensor.ndim]] + [1] * (dtype.lanes != 1)
        strides = tuple(s * scalar.itemsize for s in steps)
    address = (tensor.data or 0) + tensor.byte_offset
    interface = {"data": (address, not writable), "shape": shape, "strides": strides}
    return np.asarray(_Memory(array, interface, scalar.itemsize)).view(scalar)


def share_memory(values: np.ndarray[Any, Any]) -> NDArray:
    """Return an array on the memory of a numpy array, also of one that must not be written to: nobody may then."""
    interface = {"data": (values.ctypes.data, False), "shape": values.shape, "strides": values.strides}
    return numpyasarray(np.asarray(_Memory(values, interface, values.itemsize)).view(values.dtype))


def compact(array: NDArray) -> NDArray:
    """Return the array, or a row-major copy if it is strided."""
    if array.is_contiguous:
        return array
    copy = empty(array.shape, array.dtype, array.device)
    np.copyto(numpy_view(copy, writable=True), numpy_view(array))
    return copy


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return numpy's dtype for a type's text (``ml_dtypes.bfloat16`` for "bfloat16")."""
    return DataType(dtype).to_numpy()
