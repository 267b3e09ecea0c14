"""Ctrl-C that is always heard, and the signal to end (SIGTERM) as a kind of it.

Python drops exceptions that arise in ``__del__``, in callbacks of weak references and in callbacks from C that return
nothing; it prints "Exception ignored". A KeyboardInterrupt that arises there is lost, and the program goes on.
"""

from __future__ import annotations

import _weakrefset
import contextlib
import functools
import signal
import threading
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

_DEAF_FILES = frozenset({weakref.__file__, _weakrefset.__file__})
_DEAF_FUNCTIONS = frozenset({"__del__", "_finalize", "_delete_capsule"})
_AGAIN_AFTER_SECONDS = 0.01


@contextlib.contextmanager
def heard_interrupts(terminated: bool = False) -> Iterator[list[int]]:
    """Let Ctrl-C raise KeyboardInterrupt, a little later where Python would drop it.

    Changes nothing outside the main thread, and where the program handles SIGINT itself. With ``terminated``, SIGTERM
    does the same: what cleans up after one cleans up after the other.

    Yields:
        The numbers of the signals that were heard.
    """
    usual: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    asked = [signal.SIGINT, *([signal.SIGTERM] if terminated else [])]
    main = threading.current_thread() is threading.main_thread()
    ours = [number for number in asked if main and signal.getsignal(number) is usual[number]]
    heard: list[int] = []
    for number in ours:
        signal.signal(number, functools.partial(_interrupt, heard))
    try:
        yield heard
    finally:
        for number in ours:
            signal.signal(number, usual[number])


def _interrupt(heard: list[int], number: int, frame: FrameType | None) -> None:
    if not _is_deaf(frame):
        heard.append(number)
        raise KeyboardInterrupt
    again = threading.Timer(_AGAIN_AFTER_SECONDS, signal.pthread_kill, (threading.main_thread().ident, number))
    again.daemon = True
    again.start()


def _is_deaf(frame: FrameType | None) -> bool:
    """Return whether an exception that arises in ``frame`` would be dropped by it or by one of its callers."""
    while frame is not None:
        if frame.f_code.co_name in _DEAF_FUNCTIONS or frame.f_code.co_filename in _DEAF_FILES:
            return True
        frame = frame.f_back
    return False
