"""Saves modules to files; who watches is told the bytes, and Ctrl-C is heard between pieces.

C writes a module of gigabytes in one call, in which Python handles no signal: a thread makes it, and this one waits.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from ._ffi import LIB, SavingState, check_call

if TYPE_CHECKING:
    from .module import Module

PACKED, WRITTEN = "packed", "written"
_THREAD_FROM = 16 << 20  # bytes that take longer than a thread does
_LOOK_SECONDS = 0.05

Watcher = Callable[[str, int, int], None]
_watcher: ContextVar[Watcher | None] = ContextVar("tilewright_bytes_watcher", default=None)


@contextlib.contextmanager
def watch_bytes(watcher: Watcher) -> Iterator[None]:
    """Call ``watcher`` with ``PACKED`` or ``WRITTEN``, how many bytes are, and of how many (0: not known)."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell_bytes(what: str, done: int, total: int = 0) -> None:
    """Call the watcher, if there is one."""
    if watcher := _watcher.get():
        watcher(what, done, total)


class Saver:
    """Saves the modules of one library, about ``total`` bytes together."""

    def __init__(self, total: int) -> None:
        self.total, self._done = total, 0

    def save(self, module: Module, path: Path, old: Path | None = None, added: Path | None = None) -> None:
        """Append what a module saves to a file; with ``added``, large arrays that ``old`` lacks to that.

        Raises:
            TVMError: it cannot be saved.
        """
        state = SavingState()
        files = os.fsencode(path), os.fsencode(old or ""), None if added is None else os.fsencode(added)

        def save() -> None:
            check_call(LIB.TilewrightModSaveWithWeights(module.handle, *files, ctypes.byref(state)))

        if self.total < _THREAD_FROM:
            save()
        else:
            self._in_thread(save, state)
        self._done += state.written

    def _in_thread(self, save: Callable[[], None], state: SavingState) -> None:
        errors: list[BaseException] = []

        def run() -> None:
            try:
                save()
            except BaseException as error:  # raised again by who waits
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            while thread.is_alive():
                tell_bytes(WRITTEN, min(self._done + state.written, self.total), self.total)
                thread.join(_LOOK_SECONDS)
        except BaseException:
            state.stop = 1
            thread.join()
            raise
        if errors:
            raise errors[0]
