"""Attributes: the compile-time parameters of an operator, as declared fields.

An attribute class declares its fields in the order in which the text form prints them, with defaults::

    class DenseAttrs(Attrs):
        units: int | None = None
        out_dtype: str = ""

Values are plain Python: int, float, bool, str, None, tuples of these, or IR nodes. Lists become tuples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from tilewright.ir.node import Node


def freeze(value: Any) -> Any:
    """Lists and tuples to tuples, all the way down; other values as they are."""
    return tuple(freeze(v) for v in value) if isinstance(value, (list, tuple)) else value


class Attrs(Node):
    """Base of operator attributes; ``attrs.padding`` and ``attrs["padding"]`` read a field."""

    internal: ClassVar[tuple[str, ...]] = ()  # fields that passes set, and the operator's constructor does not take

    def keys(self) -> tuple[str, ...]:
        """Names of the fields in declaration order, without internal ones: ``dict(attrs)`` is the constructor's."""
        return tuple(name for name in type(self)._fields if name not in self.internal)

    def __getitem__(self, name: str) -> Any:
        if name not in type(self)._fields:
            raise KeyError(f"{type(self).__name__} has no field {name!r}; it has {', '.join(type(self)._fields)}")
        return getattr(self, name)

    def get_int(self, name: str) -> int:
        """The field as an int."""
        return int(self[name])

    def get_str(self, name: str) -> str:
        """The field as a string."""
        return str(self[name])

    def get_int_tuple(self, name: str) -> tuple[int, ...]:
        """The field as a tuple of ints."""
        return tuple(int(v) for v in self[name])

    def non_default(self) -> Iterator[tuple[str, Any]]:
        """The fields that differ from their default, in declaration order."""
        for name, value in self.field_values():
            if name not in type(self)._defaults or not _same(value, type(self)._defaults[name]):
                yield name, value


def _same(a: Any, b: Any) -> bool:
    return (type(a) is type(b) and bool(a == b)) or (a is None and b is None)


class DictAttrs(Attrs):
    """Free-form attributes of a function or module: an immutable, ordered mapping of string to value."""

    data: dict[str, Any]

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        self._init({str(k): freeze(v) for k, v in (data or {}).items()})

    def keys(self) -> tuple[str, ...]:
        """The names, in insertion order."""
        return tuple(self.data)

    def items(self) -> Iterator[tuple[str, Any]]:
        """The (name, value) pairs, in insertion order."""
        return iter(self.data.items())

    def values(self) -> Iterator[Any]:
        """The values, in insertion order."""
        return iter(self.data.values())

    def get(self, name: str, default: Any = None) -> Any:
        """The value of ``name``, or ``default``."""
        return self.data.get(name, default)

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __bool__(self) -> bool:
        return bool(self.data)

    def __contains__(self, name: object) -> bool:
        return name in self.data

    def non_default(self) -> Iterator[tuple[str, Any]]:
        """Every entry: nothing here has a default."""
        return self.items()
