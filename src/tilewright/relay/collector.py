"""Notes that passes leave for whoever builds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")


class Collector(Generic[T]):
    """A list for the notes of one kind of pass, open within ``collecting``."""

    def __init__(self, name: str) -> None:
        self._found: ContextVar[list[T] | None] = ContextVar(f"tilewright_{name}", default=None)

    @contextlib.contextmanager
    def collecting(self) -> Iterator[list[T]]:
        """Collect notes in this context."""
        found: list[T] = []
        token = self._found.set(found)
        try:
            yield found
        finally:
            self._found.reset(token)

    def open_list(self) -> list[T] | None:
        """Return the list that notes are appended to; None where nobody collects."""
        return self._found.get()
