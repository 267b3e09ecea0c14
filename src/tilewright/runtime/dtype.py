"""Element types: "float32", "int8x16", "bool", "bfloat16", "handle", ..."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np

from ._ffi import LIB, DLDataType, check_call


class DataTypeCode:
    """DLPack's type codes."""

    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    BFLOAT = 4


_CODES = {
    "int": (DataTypeCode.INT, 32),
    "uint": (DataTypeCode.UINT, 32),
    "float": (DataTypeCode.FLOAT, 32),
    "bfloat": (DataTypeCode.BFLOAT, 16),
    "handle": (DataTypeCode.HANDLE, 64),
}
_NAMES = {code: name for name, (code, _) in _CODES.items()}
# Floating-point types of 8 bits and fewer, a byte for each element, by DLPack's codes and ml_dtypes' names.
_SMALL_FLOATS = {
    10: ("float8_e4m3fn", 8),
    11: ("float8_e4m3fnuz", 8),
    12: ("float8_e5m2", 8),
    13: ("float8_e5m2fnuz", 8),
    14: ("float8_e8m0fnu", 8),
    17: ("float4_e2m1fn", 4),
}
_SMALL_CODES = {name: (code, bits) for code, (name, bits) in _SMALL_FLOATS.items()}
_SMALL_PATTERN = re.compile(rf"({'|'.join(_SMALL_CODES)})(?:x(\d+))?")
_PATTERN = re.compile(r"(int|uint|float|bfloat|handle)(\d+)?(?:x(\d+))?")


_CUSTOM_PATTERN = re.compile(r"custom\[(\w+)\](\d+)(?:x(\d+))?")
CUSTOM_TYPES: dict[str, int] = {}
"""The codes of the types that users bring (``tvm.target.datatype.register``), by their names."""


def register_custom_type(name: str, code: int) -> None:
    """Make ``custom[name]bits`` an element type.

    Raises:
        TVMError: the code is not one of 129 to 255, or that of another type.
    """
    check_call(LIB.TilewrightRegisterDataType(name.encode("utf-8"), code))
    CUSTOM_TYPES[name] = code
    _NAMES[code] = f"custom[{name}]"


def custom_type_code(name: str) -> int:
    """Return the code of a custom type; raises ValueError with a remedy if it is not registered."""
    if name not in CUSTOM_TYPES:
        raise ValueError(
            f"there is no data type custom[{name}]; register it first: tvm.target.datatype.register({name!r}, code)"
        )
    return CUSTOM_TYPES[name]


class DataType:
    """An element type: code, bits of a lane, lanes of a vector.

    Instances are cached: ``DataType(t)`` is the same object for equal types. Accepts the text form, a numpy
    dtype or scalar type, or a DataType. ``str()`` returns TVM's text ("float32", "float32x4", "bool").

    Raises:
        ValueError: the text names no type.
    """

    __slots__ = ("bits", "lanes", "type_code")

    type_code: int
    bits: int
    lanes: int

    CODE2STR = _NAMES  # TVM's name for the table

    def __new__(cls, type_str: Any) -> DataType:
        """Return the type that type_str describes."""
        if isinstance(type_str, DataType):
            return type_str
        if isinstance(type_str, str):
            return _parse(type_str)
        return _of_numpy(np.dtype(type_str))

    @property
    def itemsize(self) -> int:
        """Size of one element in bytes."""
        return (self.bits * self.lanes + 7) // 8

    def with_lanes(self, lanes: int) -> DataType:
        """Return the vector type of this type's scalars."""
        return make_dtype(self.type_code, self.bits, lanes)

    def to_numpy(self) -> np.dtype[Any]:
        """Return numpy's dtype (``ml_dtypes.bfloat16`` for bfloat16, a sub-array type for vectors).

        Raises:
            ValueError: numpy has none.
        """
        return _to_numpy(self)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return numpy's dtype, which numpy asks for: ``np.zeros(4, DataType("int8"))``."""
        return _to_numpy(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            try:
                return self is DataType(other)
            except ValueError:
                return False
        return self is other

    def __hash__(self) -> int:
        return hash((self.type_code, self.bits, self.lanes))

    def __repr__(self) -> str:
        return f'DataType("{self}")'

    def __str__(self) -> str:
        if (self.type_code, self.bits, self.lanes) == (DataTypeCode.UINT, 1, 1):
            return "bool"
        lanes = f"x{self.lanes}" if self.lanes != 1 else ""
        if self.type_code in _SMALL_FLOATS:
            return _SMALL_FLOATS[self.type_code][0] + lanes
        bits = "" if self.type_code == DataTypeCode.HANDLE else str(self.bits)
        name = _NAMES.get(self.type_code, f"type{self.type_code}_")  # of no known kind: what a damaged file says
        return f"{name}{bits}{lanes}"

    def __reduce__(self) -> tuple[Any, ...]:
        return make_dtype, (self.type_code, self.bits, self.lanes)


def make_dtype(type_code: int, bits: int, lanes: int = 1) -> DataType:
    """Return the type with these DLPack fields."""
    return _make(type_code, bits, lanes)


@cache
def _make(type_code: int, bits: int, lanes: int) -> DataType:
    self = object.__new__(DataType)
    self.type_code, self.bits, self.lanes = type_code, bits, lanes
    return self


@cache
def _parse(text: str) -> DataType:
    if text == "bool":
        return make_dtype(DataTypeCode.UINT, 1)
    if small := _SMALL_PATTERN.fullmatch(text):
        return make_dtype(*_SMALL_CODES[small[1]], int(small[2] or 1))
    if custom := _CUSTOM_PATTERN.fullmatch(text):
        return make_dtype(custom_type_code(custom[1]), int(custom[2]), int(custom[3] or 1))
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f'unknown data type "{text}"; examples of types: float32, int8, bool, bfloat16, float32x4')
    code, default_bits = _CODES[match[1]]
    bits, lanes = int(match[2] or default_bits), int(match[3] or 1)
    if not (0 < bits < 256 and 0 < lanes < 65536):
        raise ValueError(f'data type "{text}" is out of range')
    return make_dtype(code, bits, lanes)


@cache
def _of_numpy(dtype: np.dtype[Any]) -> DataType:
    """Return the type of numpy's, whose name is slow to ask for."""
    return _parse(_numpy_name(dtype))


_OF_ML_DTYPES = frozenset([*_SMALL_CODES, "int2", "int4", "uint2", "uint4"])


def _numpy_name(dtype: np.dtype[Any]) -> str:
    if dtype.name in ("bool", "bool_"):
        return "bool"
    return str(dtype.name)


@cache
def _to_numpy(dtype: DataType) -> np.dtype[Any]:
    if dtype.lanes != 1:
        return np.dtype((_to_numpy(dtype.with_lanes(1)), (dtype.lanes,)))
    if dtype.type_code == DataTypeCode.UINT and dtype.bits == 1:
        return np.dtype(np.bool_)
    if (dtype.type_code, dtype.bits) == (DataTypeCode.BFLOAT, 16) or (
        dtype.itemsize == 1 and str(dtype) in _OF_ML_DTYPES
    ):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, str(dtype)))
    if dtype.type_code == DataTypeCode.HANDLE:
        return np.dtype(np.uint64)
    if dtype.type_code in CUSTOM_TYPES.values():
        return np.dtype(f"uint{dtype.bits}")
    try:
        return np.dtype(f"{_NAMES.get(dtype.type_code, '?')}{dtype.bits}")
    except TypeError:
        code = f"type code {int(dtype.type_code)}, {dtype.bits} bits"
        raise ValueError(f"numpy has no data type for {code}") from None


@cache
def to_native(dtype: DataType) -> DLDataType:
    """Return the ctypes struct of a type."""
    return DLDataType(dtype.type_code, dtype.bits, dtype.lanes)


def from_native(native: DLDataType) -> DataType:
    """Return the type of a ctypes struct."""
    return make_dtype(native.code, native.bits, native.lanes)
