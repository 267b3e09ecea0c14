"""Containers of the runtime under TVM's names."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from . import packed_func
from ._ffi import LIB
from .ndarray import NDArray
from .registry import need_global_func


class String(str):
    """TVM's string object: here a Python string."""

    __slots__ = ()


class Object:
    """A counted object of the runtime."""

    __slots__ = ()


class ShapeTuple(tuple[int, ...]):
    """A shape: a tuple of integers."""

    __slots__ = ()

    def __new__(cls, shape: Iterable[int]) -> ShapeTuple:
        """A shape of numbers that are integers, numpy's among them."""
        return super().__new__(cls, (operator.index(extent) for extent in shape))


class ADT(Object):
    """A value of a data type, or a tuple (tag 0): an argument or a result of executors.

    Args:
        tag: the constructor's.
        fields: arrays and other values. What is no array and no such value, a function say, stays Python's: the virtual
            machine does not take it.
    """

    __slots__ = ("__weakref__", "_handle", "_kept")

    def __init__(self, tag: int, fields: Sequence[Any]) -> None:
        self._handle: int | None = None
        self._kept = (int(tag), tuple(fields))
        if all(isinstance(f, NDArray) or (isinstance(f, ADT) and f._handle) for f in fields):
            self.handle  # noqa: B018  # at once: a chain of many values is made from its end

    @classmethod
    def owning(cls, handle: int | None) -> ADT:
        """Take over the caller's reference to the native object at ``handle``."""
        made = cls.__new__(cls)
        made._handle = handle
        return made

    @property
    def handle(self) -> int | None:
        """The native object, made with the first question for it; an error where a field is Python's."""
        if not self._handle:
            tag, fields = self._kept
            made: ADT = need_global_func("runtime.ADT")(tag, *fields)
            self._handle, made._handle = made._handle, None
            del self._kept
        return self._handle

    def __del__(self, _free: Any = LIB.TilewrightObjectFree) -> None:
        handle = getattr(self, "_handle", None)
        if handle:
            _free(handle)

    @property
    def tag(self) -> int:
        """The constructor's tag."""
        return int(need_global_func("runtime.GetADTTag")(self)) if self._handle else self._kept[0]

    def __len__(self) -> int:
        return int(need_global_func("runtime.GetADTSize")(self)) if self._handle else len(self._kept[1])

    def __getitem__(self, index: int | slice) -> Any:
        count = len(self)
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(count))]
        if not -count <= index < count:
            raise IndexError(f"field {index} of {count}")
        if not self._handle:
            return self._kept[1][index]
        return need_global_func("runtime.GetADTFields")(self, index % count)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"ADT(tag={self.tag}, [{', '.join(map(repr, self))}])"


def tuple_object(fields: Sequence[Any] | None = None) -> ADT:
    """A tuple of arrays and other values."""
    return ADT(0, fields or ())


packed_func.object_class = ADT
