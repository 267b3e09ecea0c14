"""Tokens to values: numbers with their suffixes, strings, names."""

from __future__ import annotations

import json
import re
from typing import Any

from tilewright.ir.prim_expr import IntImm

_NUMBER = re.compile(r"(-?(?:inf|nan|[\d.]+(?:[eE][+-]?\d+)?))([if]\d*)?\Z")


def literal_number(text: str) -> tuple[Any, str]:
    """Return value and dtype of a number: ``1`` is int32 (int64 when it needs to be), ``1i64``, ``0.5f``, ``2f16``."""
    match = _NUMBER.match(text)
    assert match is not None, text
    digits, suffix = match.groups()
    if suffix and suffix[0] == "i":
        return int(digits), f"int{suffix[1:] or 32}"
    if suffix or "." in digits or "e" in digits.lower() or not digits.lstrip("-").isdigit():
        return float(digits), f"float{(suffix or 'f')[1:] or 32}"
    value = int(digits)
    return value, "int32" if -(2**31) <= value < 2**31 else "int64"


def attribute_number(text: str) -> Any:
    """Return the value of an attribute's number: a Python int or float; with an integer suffix, a literal of that
    dtype.
    """
    value, dtype = literal_number(text)
    if dtype.startswith("int") and "i" in text:
        return IntImm(dtype, value)
    return value


def unquote(text: str) -> str:
    """Return the string of a literal in double quotes."""
    inner = re.sub(r"\\x([0-9a-fA-F]{2})", r"\\u00\1", text.replace("\\'", "'"))
    value: str = json.loads(inner, strict=False)
    return value


def local_name(token: str) -> str:
    """Return the name in ``%x`` or ``%"x.1"``."""
    return unquote(token[1:]) if token.startswith('%"') else token[1:]


def global_name(token: str) -> str:
    """Return the name in ``@f`` or ``@"f.1"``."""
    return unquote(token[1:]) if token.startswith('@"') else token[1:]
