"""Attributes: the compile-time parameters of an operator, as declared fields.

An attribute class declares its fields in the order in which the text form prints them, with defaults::

    class DenseAttrs(Attrs):
        units: int | None = None
        out_dtype: str = ""

Values are plain Python: int, float, bool, str, None, tuples of these, or IR nodes. Lists become tuples.
"""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.node import Node


def freeze(value: Any) -> Any:
    """Lists and tuples to tuples, all the way down; other values as they are."""
    return tuple(freeze(v) for v in value) if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True)
class AttrFieldInfo:
    """A field of attributes: its name, its declared type, and its default if it has one."""

    name: str
    type_info: str
    description: str


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

    def list_field_info(self) -> list[AttrFieldInfo]:
        """Return the fields that :meth:`keys` names, with types and defaults."""
        types = {
            name: kind
            for cls in reversed(type(self).__mro__)
            for name, kind in vars(cls).get("__annotations__", {}).items()
        }
        defaults = type(self)._defaults
        return [
            AttrFieldInfo(name, str(types[name]), f"{defaults[name]!r} by default" if name in defaults else "")
            for name in self.keys()
        ]

    def get_int(self, key: str) -> int:
        """The field as an int."""
        return int(self[key])

    def get_str(self, key: str) -> str:
        """The field as a string."""
        return str(self[key])

    def get_int_tuple(self, key: str) -> tuple[int, ...]:
        """The field as a tuple of ints."""
        return tuple(int(v) for v in self[key])

    def non_default(self) -> Iterator[tuple[str, Any]]:
        """The fields that differ from their default, in declaration order."""
        for name, value in self.field_values():
            if name not in type(self)._defaults or not _same(value, type(self)._defaults[name]):
                yield name, value


def _same(a: Any, b: Any) -> bool:
    return (type(a) is type(b) and bool(a == b)) or (a is None and b is None)


class Number(int):
    """An integer of free-form attributes, which programs also read as a literal: ``func.attrs["kind"].value``."""

    __slots__ = ()

    @property
    def value(self) -> int:
        """The plain integer."""
        return int(self)


def _text(value: Any) -> str:
    """A value as JSON has it; a node by its own text."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join([_text(v) for v in value])}]"
    return json.dumps(value) if value is None or isinstance(value, (str, bool, int, float)) else f"{value}"


def _read(value: Any) -> Any:
    if type(value) is tuple:
        return tuple([_read(v) for v in value])
    return Number(value) if type(value) is int else value


class DictAttrs(Attrs):
    """Free-form attributes of a function or module: an immutable, ordered mapping of string to value.

    ``attrs["kind"]`` and ``attrs.kind`` read one; an integer is a ``Number`` then.
    """

    data: dict[str, Any]

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        self._init({str(k): freeze(v) for k, v in (data or {}).items()})

    def keys(self) -> tuple[str, ...]:
        """The names, in insertion order."""
        return tuple(self.data)

    def items(self) -> ItemsView[str, Any]:
        """The (name, value) pairs, in insertion order."""
        return self.data.items()

    def values(self) -> Iterator[Any]:
        """The values, in insertion order."""
        return iter(self.data.values())

    def get(self, name: str, default: Any = None) -> Any:
        """The value of ``name``, or ``default``."""
        return _read(self.data.get(name, default))

    def __getitem__(self, name: str) -> Any:
        return _read(self.data[name])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "data" or name not in self.data:
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        return _read(self.data[name])

    def __str__(self) -> str:
        return "{" + ", ".join([f"{_text(k)}: {_text(v)}" for k, v in self.data.items()]) + "}"

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
        return iter(self.data.items())
