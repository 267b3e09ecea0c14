"""Reading flatbuffers by descriptions of their tables; every offset is checked against the file.

A description names the fields of a table in their order, each with its kind::

    Tensor shape:[i] type:b buffer:I name:s quantization:Quantization

Kinds are the letters of ``struct`` (``i`` int32, ``f`` float32, ``?`` bool, ...) with an optional default (``i=1``),
``s`` text, ``[i]`` a vector of numbers, ``[Name]`` and ``Name`` tables, ``*`` the place of a table whose kind another
field tells, and ``-`` a field that nobody reads.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewright.ir.errors import TilewrightError

_DTYPES = {"?": "bool", "b": "int8", "B": "uint8", "H": "<u2", "i": "<i4", "I": "<u4", "q": "<i8", "Q": "<u8",
           "f": "<f4"}  # fmt: skip
_NUMBERS = {kind: struct.Struct("<" + kind) for kind in _DTYPES}
_READ_OFTEN = 16  # parts may be shared by tables, but no writer shares them that often


class TfliteImportError(TilewrightError):
    """A model that cannot be imported; the message names the operator or tensor and the problem."""


@dataclass(frozen=True)
class Field:
    """A field of a table: its name, its kind, and the number that it has where it is not there."""

    name: str
    kind: str
    default: Any


def described(text: str) -> dict[str, list[Field]]:
    """Return the fields of the tables that a text describes, one table a line."""
    tables = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, *fields = line.split()
        tables[name] = [_field(field) for field in fields]
    return tables


def _field(text: str) -> Field:
    name, kind = text.split(":")
    kind, _, default = kind.partition("=")
    return Field(name, kind, int(default) if default else {"f": 0.0, "?": False, "s": ""}.get(kind, 0))


class Reader:
    """A file, of which tables are read."""

    def __init__(self, data: bytes, tables: Mapping[str, list[Field]], name: str) -> None:
        self.data = data
        self.tables = tables
        self.name = name
        self._left = _READ_OFTEN * len(data)

    def fail(self, message: str) -> Any:
        """Raise an error that names the file."""
        raise TfliteImportError(f"{self.name} is no valid TensorFlow Lite model: {message}")

    def number(self, kind: str, at: int) -> Any:
        """Return the number at a place."""
        form = _NUMBERS[kind]
        self._check(at, form.size)
        return form.unpack_from(self.data, at)[0]

    def _check(self, at: int, size: int) -> None:
        if at < 0 or size < 0 or at + size > len(self.data):
            self.fail(f"it refers to byte {at + max(size, 0)} and has {len(self.data)}; it is cut off or damaged")

    def follow(self, at: int) -> int:
        """Return the place that an offset leads to."""
        return at + int(self.number("I", at))

    def table(self, name: str, at: int) -> SimpleNamespace:
        """Return the fields of the table at a place."""
        vtable = at - self.number("i", at)
        size = self.number("H", vtable)
        self._check(vtable, size)
        found = SimpleNamespace()
        for i, field in enumerate(self.tables[name]):
            slot = 4 + 2 * i
            offset = self.number("H", vtable + slot) if slot + 2 <= size else 0
            setattr(found, field.name, self._read(field, at + offset) if offset else self._missing(field))
        return found

    def _missing(self, field: Field) -> Any:
        if field.kind.startswith("["):
            return np.zeros(0, _DTYPES[field.kind[1]]) if field.kind[1:-1] in _DTYPES else []
        return None if field.kind in self.tables else field.default

    def _read(self, field: Field, at: int) -> Any:
        kind = field.kind
        if kind in _NUMBERS:
            return self.number(kind, at)
        if kind == "-":
            return None
        if kind == "*":
            return self.follow(at)
        if kind == "s":
            return self.vector("B", self.follow(at)).tobytes().decode("utf-8", "replace")
        if kind.startswith("["):
            return self._vector(kind[1:-1], self.follow(at))
        return self.table(kind, self.follow(at))

    def _vector(self, kind: str, at: int) -> Any:
        if kind in _NUMBERS:
            return self.vector(kind, at)
        count = self.number("I", at)
        self._check(at + 4, 4 * count)
        self._count(4 * count)
        return [self.table(kind, self.follow(at + 4 + 4 * i)) for i in range(count)]

    def vector(self, kind: str, at: int) -> np.ndarray[Any, Any]:
        """Return a vector of numbers, without a copy."""
        count = self.number("I", at)
        dtype = np.dtype(_DTYPES[kind])
        self._check(at + 4, count * dtype.itemsize)
        return np.frombuffer(self.data, dtype, count, at + 4)

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            self.fail("its tables share so many parts that they are larger than the file")
