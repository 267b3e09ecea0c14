"""Dtypes and literals as LLVM IR writes them.

A ``bool`` is ``i1`` in registers and ``i8`` in memory; a ``bfloat16`` is ``i16`` everywhere, because arithmetic on
it is done in float32; handles are ``ptr``.
"""

from __future__ import annotations

import struct
from functools import cache

import numpy as np

from tilewright.ir import dtype as dt

_FLOATS = {16: "half", 32: "float", 64: "double"}


@cache
def scalar(dtype: str) -> str:
    """LLVM type of one lane in a register."""
    info = dt.parse(dtype)
    if info.kind in ("int", "uint"):
        return f"i{max(info.bits, 8)}"
    if info.kind == "float":
        return _FLOATS[info.bits]
    return {"bool": "i1", "bfloat": "i16", "small": "i8", "handle": "ptr", "void": "void"}[info.kind]


@cache
def register(dtype: str) -> str:
    """LLVM type of a value in a register."""
    lanes = dt.lanes(dtype)
    return scalar(dtype) if lanes == 1 else f"<{lanes} x {scalar(dtype)}>"


@cache
def element_in_memory(dtype: str) -> str:
    """LLVM type of one lane in memory."""
    return "i8" if dt.is_bool(dtype) else scalar(dtype)


@cache
def memory(dtype: str) -> str:
    """LLVM type of a value in memory."""
    lanes = dt.lanes(dtype)
    return element_in_memory(dtype) if lanes == 1 else f"<{lanes} x {element_in_memory(dtype)}>"


@cache
def is_bfloat(dtype: str) -> bool:
    """Return whether the elements are bfloat16."""
    return dt.parse(dtype).kind == "bfloat"


def bfloat_bits(value: float) -> int:
    """Bits of ``value`` as bfloat16, rounded to nearest even."""
    bits = int(np.float32(value).view(np.uint32))
    if value != value:
        return (bits >> 16) | 0x40
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


@cache
def _float_literal(kind: str, bits: int, text: str) -> str:
    value = float(text)
    if kind == "bfloat":
        return str(bfloat_bits(value))
    with np.errstate(over="ignore"):
        if bits == 16:
            return f"0xH{int(np.float16(value).view(np.uint16)):04X}"
        if bits == 32:
            value = float(np.float32(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def float_literal(dtype: str, value: float) -> str:
    """A floating literal of one lane of ``dtype``."""
    info = dt.parse(dtype)
    return _float_literal(info.kind, info.bits, repr(value))


def int_literal(dtype: str, value: int) -> str:
    """An integer or bool literal of one lane of ``dtype``."""
    if dt.is_bool(dtype):
        return "true" if value else "false"
    return str(value)


def splat_literal(dtype: str, scalar_text: str) -> str:
    """A vector literal whose lanes are all ``scalar_text``."""
    return f"splat ({scalar(dtype)} {scalar_text})"


def string_constant(text: str) -> tuple[int, str]:
    """Size and LLVM text of ``text`` as a NUL-terminated constant."""
    data = text.encode("utf-8", "surrogateescape") + b"\0"
    body = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)
    return len(data), f'c"{body}"'
