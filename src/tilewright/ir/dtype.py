"""Data types as strings, the way TVM writes them: ``float32``, ``int8x16``, ``bool``, ``bfloat16``, ``handle``.

A data type is a plain ``str`` everywhere in the IR. The functions here answer questions about one; each is
cached, so asking costs a dictionary look-up.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

Kind = Literal["int", "uint", "float", "bfloat", "bool", "handle", "void", "small", "custom"]


class SmallFloat(NamedTuple):
    """A floating-point type of 8 bits or fewer: stored, moved and converted, computed in float32.

    A byte holds one number, whatever its bits. ``specials``: "ieee" infinities and NaN; "fn" no infinity, NaN of all
    ones; "fnuz" no infinity and no -0, whose code is NaN; "none" neither; "e8m0" powers of two alone, 255 is NaN.
    """

    code: int
    bits: int
    exponent: int
    mantissa: int
    bias: int
    specials: str


# The names are ml_dtypes', the codes DLPack's.
SMALL_FLOATS = {
    "float8_e4m3fn": SmallFloat(10, 8, 4, 3, 7, "fn"),
    "float8_e4m3fnuz": SmallFloat(11, 8, 4, 3, 8, "fnuz"),
    "float8_e5m2": SmallFloat(12, 8, 5, 2, 15, "ieee"),
    "float8_e5m2fnuz": SmallFloat(13, 8, 5, 2, 16, "fnuz"),
    "float8_e8m0fnu": SmallFloat(14, 8, 8, 0, 127, "e8m0"),
    "float4_e2m1fn": SmallFloat(17, 4, 2, 1, 1, "none"),
}


class DTypeInfo(NamedTuple):
    """A parsed data type: kind, bits per lane, number of lanes."""

    kind: Kind
    bits: int
    lanes: int
    name: str = ""  # of a small floating-point type, or one that a user has brought


_SMALL_PATTERN = re.compile(rf"({'|'.join(SMALL_FLOATS)})(?:x(\d+))?$")
_CUSTOM_PATTERN = re.compile(r"(custom\[(\w+)\](\d+))(?:x(\d+))?$")
_PATTERN = re.compile(r"(int|uint|float|bfloat|bool|handle|void)(\d*)(?:x(\d+))?$")
_DEFAULT_BITS = {"int": 32, "uint": 32, "float": 32, "bfloat": 16, "bool": 1, "handle": 64, "void": 0}
_VALID_BITS = {
    "int": {2, 4, 8, 16, 32, 64},
    "uint": {1, 2, 4, 8, 16, 32, 64},
    "float": {16, 32, 64},
    "bfloat": {16},
    "bool": {1},
    "handle": {64},
    "void": {0},
}


@cache
def parse(dtype: str) -> DTypeInfo:
    """Parse ``dtype``; raises ValueError that names the text when it is no data type."""
    if small := _SMALL_PATTERN.match(dtype):
        return DTypeInfo("small", SMALL_FLOATS[small[1]].bits, int(small[2] or 1), small[1])
    if custom := _CUSTOM_PATTERN.match(dtype):
        _custom_code(custom[2])
        return DTypeInfo("custom", int(custom[3]), int(custom[4] or 1), custom[1])
    match = _PATTERN.match(dtype)
    if match is None:
        raise ValueError(f"unknown data type {dtype!r}; expected for example 'float32', 'int8x16' or 'bool'")
    kind, bits_text, lanes_text = match.groups()
    bits = int(bits_text) if bits_text else _DEFAULT_BITS[kind]
    if kind == "int" and bits == 1:  # LLVM's i1, as intrinsics take it
        kind = "uint"
    if bits not in _VALID_BITS[kind]:
        raise ValueError(f"unsupported data type {dtype!r}: {kind} comes in {sorted(_VALID_BITS[kind])} bits")
    if kind == "uint" and bits == 1:
        kind = "bool"
    return DTypeInfo(kind, bits, int(lanes_text) if lanes_text else 1)  # type: ignore[arg-type]


def _custom_code(name: str) -> int:
    from tilewright.runtime.dtype import (
        custom_type_code,
    )  # loads the runtime, which programs without such types need not

    return custom_type_code(name)


def custom_code(dtype: str) -> int:
    """The code of a type that a user has brought."""
    return _custom_code(custom_name(dtype))


@cache
def is_custom(dtype: str) -> bool:
    """Return whether the dtype is ``custom[name]bits``: a user's type, which counts as floating point."""
    return parse(dtype).kind == "custom"


def custom_name(dtype: str) -> str:
    """The name in ``custom[name]bits``."""
    return dtype[dtype.index("[") + 1 : dtype.index("]")]


_SHORT = {"int": "int32", "uint": "uint32", "float": "float32", "uint1": "bool"}


def in_full(dtype: str) -> str:
    """Return ``dtype`` with its bits: ``int``, ``uint`` and ``float`` have 32, as in TVM; ``uint1`` is ``bool``."""
    return _SHORT.get(dtype, dtype)


@cache
def make(kind: str, bits: int, lanes: int = 1) -> str:
    """The text of a data type from its parts."""
    base = kind if kind in ("bool", "handle", "void") else f"{kind}{bits}"
    return base if lanes == 1 else f"{base}x{lanes}"


@cache
def is_int(dtype: str) -> bool:
    """Signed or unsigned integer, not bool."""
    return parse(dtype).kind in ("int", "uint")


@cache
def is_signed(dtype: str) -> bool:
    """Signed integer."""
    return parse(dtype).kind == "int"


@cache
def is_float(dtype: str) -> bool:
    """Floating point, bfloat16, small types and users' own included."""
    return parse(dtype).kind in ("float", "bfloat", "small", "custom")


@cache
def is_small_float(dtype: str) -> bool:
    """Floating point of 8 bits or fewer."""
    return parse(dtype).kind == "small"


@cache
def is_small_int(dtype: str) -> bool:
    """Return whether the dtype is an integer of 2 or 4 bits; each takes a byte in memory."""
    return is_int(dtype) and bits(dtype) < 8


@cache
def storage(dtype: str) -> str:
    """The type of 8 bits whose elements those of a small type are in memory; others are their own."""
    if is_small_float(dtype):
        return make("uint", 8, lanes(dtype))
    return make(parse(dtype).kind, 8, lanes(dtype)) if is_small_int(dtype) else dtype


@cache
def is_half(dtype: str) -> bool:
    """Floating point of 16 bits: float16 or bfloat16, of any number of lanes."""
    return parse(dtype).kind in ("float", "bfloat") and bits(dtype) == 16


@cache
def is_bool(dtype: str) -> bool:
    """Truth value (``bool`` or ``uint1``), of any number of lanes."""
    return parse(dtype).kind == "bool"


@cache
def bits(dtype: str) -> int:
    """Bits of one lane."""
    return parse(dtype).bits


@cache
def lanes(dtype: str) -> int:
    """Number of vector lanes."""
    return parse(dtype).lanes


@cache
def nbytes(dtype: str) -> int:
    """Return the bytes of one lane in memory (1 for a bool)."""
    return (parse(dtype).bits + 7) // 8


@cache
def element(dtype: str) -> str:
    """The scalar type of one lane."""
    info = parse(dtype)
    return info.name or make(info.kind, info.bits)


@cache
def with_lanes(dtype: str, count: int) -> str:
    """The same element type with ``count`` lanes."""
    info = parse(dtype)
    if info.name:
        return info.name if count == 1 else f"{info.name}x{count}"
    return make(info.kind, info.bits, count)


@cache
def int_range(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer or bool type."""
    info = parse(dtype)
    if info.kind == "int":
        return -(1 << (info.bits - 1)), (1 << (info.bits - 1)) - 1
    if info.kind in ("uint", "bool"):
        return 0, (1 << info.bits) - 1
    raise ValueError(f"{dtype} is not an integer type")
