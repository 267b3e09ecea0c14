"""Containers of the runtime under TVM's names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import packed_func
from ._ffi import LIB
from .registry import need_global_func


class String(str):
    """TVM's string object: here a Python string."""

    __slots__ = ()


class Object:
    """A counted object of the runtime."""

    __slots__ = ()


class ADT(Object):
    """A value of a data type, or a tuple (tag 0): what the virtual machine gives and takes."""

    __slots__ = ("__weakref__", "handle")

    def __init__(self, handle: int) -> None:
        """Take over the caller's reference to the native object at ``handle``."""
        self.handle = handle

    def __del__(self, _free: Any = LIB.TilewrightObjectFree) -> None:
        handle = getattr(self, "handle", None)
        if handle:
            _free(handle)

    @property
    def tag(self) -> int:
        """The constructor's tag."""
        return int(need_global_func("runtime.GetADTTag")(self))

    def __len__(self) -> int:
        return int(need_global_func("runtime.GetADTSize")(self))

    def __getitem__(self, index: int | slice) -> Any:
        count = len(self)
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(count))]
        if not -count <= index < count:
            raise IndexError(f"field {index} of {count}")
        return need_global_func("runtime.GetADTFields")(self, index % count)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"ADT(tag={self.tag}, [{', '.join(map(repr, self))}])"


def adt(tag: int, fields: Sequence[Any]) -> ADT:
    """A value of the constructor with a tag; ``fields`` are arrays and other values."""
    made: ADT = need_global_func("runtime.ADT")(tag, *fields)
    return made


def tuple_object(fields: Sequence[Any] | None = None) -> ADT:
    """A tuple of arrays and other values."""
    return adt(0, fields or ())


packed_func.object_class = ADT
