"""Parameter files in TVM's format.

u64 0xF7E58D4F05049CB7, u64 0, the names (count, then size and bytes of each), the count, and each array:
u64 0xDD5E40F096B4A13F, u64 0, device type and id (i32), ndim (i32), dtype (code u8, bits u8, lanes u16),
shape (i64 each), data size (i64), data.   All little-endian.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .dtype import DataType, make_dtype
from .ndarray import NDArray, array, empty

_PARAMS_MAGIC = 0xF7E58D4F05049CB7
_ARRAY_MAGIC = 0xDD5E40F096B4A13F
_APART_MAGIC = 0xDD5E40F096B4A150  # of an array in a file of weights: place and checksum follow; no TVM has it
_HEADER = struct.Struct("<QQiiiBBH")


def save_param_dict(params: Mapping[str, NDArray | np.ndarray[Any, Any]]) -> bytearray:
    """Return parameters in TVM's format.

    TVM writes them in the order of its hash map, which no reader depends on. Here equal parameters produce equal bytes:
    they are written by descending name, the order of TVM's recorded file.

    Args:
        params: arrays by name.
    """
    return bytearray().join(_parts(params))


def _parts(params: Mapping[str, NDArray | np.ndarray[Any, Any]]) -> Iterator[bytes]:
    names = sorted(params, key=lambda name: name.encode(), reverse=True)
    yield struct.pack("<QQQ", _PARAMS_MAGIC, 0, len(names))
    for name in names:
        raw = name.encode()
        yield from (struct.pack("<Q", len(raw)), raw)
    yield struct.pack("<Q", len(names))
    for name in names:
        yield from array_parts(params[name])


def array_parts(value: NDArray | np.ndarray[Any, Any]) -> list[bytes]:
    """The bytes of an array in TVM's format."""
    if isinstance(value, NDArray):
        dtype, data = DataType(value.dtype), value.numpy()
    else:
        data = np.asarray(value)
        dtype = DataType(data.dtype)
    shape = data.shape if dtype.lanes == 1 else data.shape[:-1]
    header = _HEADER.pack(_ARRAY_MAGIC, 0, 1, 0, len(shape), dtype.type_code, dtype.bits, dtype.lanes)
    return [header, struct.pack(f"<{len(shape)}qq", *shape, data.nbytes), data.tobytes()]


class Reader:
    """Reads TVM's encoding of integers, strings and arrays.

    Args:
        data: the bytes, or a file's memory map.
    """

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.view = memoryview(data)
        self.at = 0
        self.apart: list[tuple[int, int, int]] = []

    def take(self, size: int) -> memoryview:
        """Return the next size bytes."""
        if size < 0 or size > len(self.view) - self.at:
            raise ValueError(f"the parameter file is cut short at byte {self.at}: {size} more bytes are announced")
        out = self.view[self.at : self.at + size]
        self.at += size
        return out

    def u64(self) -> int:
        """Return the next integer."""
        return int.from_bytes(self.take(8), "little")

    def text(self) -> str:
        """Return the next string."""
        return bytes(self.take(self.u64())).decode()

    def texts(self) -> list[str]:
        """Return the next vector of strings."""
        return [self.text() for _ in range(self.u64())]

    def skip_array(self) -> tuple[tuple[int, ...], DataType, memoryview]:
        """Return shape, dtype and elements of the next array; no elements where they are in a file of weights.

        The place, size and checksum of those are added to ``apart``.
        """
        if self.view[self.at : self.at + 8] != _APART_MAGIC.to_bytes(8, "little"):
            shape, dtype, nbytes = self.array_header()
            return shape, dtype, self.take(nbytes)
        shape, dtype, nbytes = self.array_header(_APART_MAGIC)
        self.apart.append((self.u64(), nbytes, self.u64()))
        return shape, dtype, self.take(0)

    def array_header(self, expected: int = _ARRAY_MAGIC) -> tuple[tuple[int, ...], DataType, int]:
        """Return shape, dtype and size in bytes of the next array, whose elements follow."""
        magic, _, _, _, ndim, code, bits, lanes = _HEADER.unpack(self.take(_HEADER.size))
        if magic != expected or not 0 <= ndim <= 1024:
            raise ValueError("the parameter file is damaged: an array does not begin as it should")
        *shape, nbytes = struct.unpack(f"<{ndim}qq", self.take(8 * (ndim + 1)))
        dtype = make_dtype(code, bits, lanes)
        if min(shape, default=0) < 0 or math.prod(shape) * lanes * dtype.with_lanes(1).to_numpy().itemsize != nbytes:
            raise ValueError("the parameter file is damaged: an array's size and shape disagree")
        return tuple(shape), dtype, nbytes

    def array(self) -> NDArray:
        """Return the next array."""
        shape, dtype, nbytes = self.array_header()
        scalar = dtype.with_lanes(1).to_numpy()
        full = shape if dtype.lanes == 1 else (*shape, dtype.lanes)
        elements = np.frombuffer(self.take(nbytes), scalar).reshape(full)  # before memory is asked for: it may be a lie
        return empty(shape, str(dtype)).copyfrom(elements)


def load_param_dict(param_bytes: bytes | bytearray | memoryview) -> dict[str, NDArray]:
    """Return the arrays by name that :func:`save_param_dict` (ours or TVM's) wrote.

    Raises:
        ValueError: the bytes are not a parameter file, or are cut short.
    """
    reader = Reader(param_bytes)
    if len(param_bytes) < 16 or reader.u64() != _PARAMS_MAGIC:
        raise ValueError("not a parameter file: it does not start as save_param_dict writes it")
    reader.u64()
    names = reader.texts()
    if reader.u64() != len(names):
        raise ValueError("the parameter file is damaged: names and arrays differ in number")
    return {name: reader.array() for name in names}


def load_param_dict_from_file(path: str | Path) -> dict[str, NDArray]:
    """Load parameters from a memory-mapped file: each array is copied once.

    Raises:
        ValueError: the file is not a parameter file, or is cut short.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise ValueError(f"{path} is empty; it is no parameter file")
        return load_param_dict(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


def save_param_dict_to_file(params: Mapping[str, NDArray | np.ndarray[Any, Any]], path: str | Path) -> None:
    """Write ``save_param_dict`` to a file, which appears whole or not at all."""
    from .partial_files import whole_file

    with whole_file(path) as partial, partial.open("wb") as file:
        file.writelines(_parts(params))


def array_to_bytes(value: NDArray | np.ndarray[Any, Any]) -> bytes:
    """Return one array in TVM's serialized form (as metadata sections hold it, before base64)."""
    return b"".join(array_parts(value))


def array_from_bytes(data: bytes) -> NDArray:
    """Return the array that :func:`array_to_bytes` wrote.

    Raises:
        ValueError: the bytes are damaged, or more follow.
    """
    reader = Reader(data)
    out = reader.array()
    if reader.at != len(data):
        raise ValueError(f"damaged array: {len(data) - reader.at} bytes follow it")
    return out


def as_ndarrays(params: Mapping[str, Any]) -> dict[str, NDArray]:
    """Return the mapping with every value as an NDArray."""
    return {name: value if isinstance(value, NDArray) else array(value) for name, value in params.items()}
