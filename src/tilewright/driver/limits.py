"""Limits of commands: resources of compilation, and time."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import typer

from tilewright.runtime.error import TVMError
from tilewright.runtime.text import printable

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# Native code hears no signal: when it has not ended so long after its time, the process does.
_GRACE_SECONDS = 0.5
_AGAIN_SECONDS = 0.01
_LAST_SECONDS = 10.0


class TimeLimitError(TVMError):
    """A command exceeded its ``--timeout``."""


@dataclass(frozen=True)
class Limits:
    """Limits of compilation; None for the default of ``PassContext``."""

    nodes: int | None = None
    memory: str | None = None
    seconds: float | None = None

    def config(self) -> dict[str, int | float]:
        """The options of ``PassContext``."""
        given = {"nodes": self.nodes, "memory": parse_bytes(self.memory), "seconds": self.seconds}
        return {f"relay.budget.{name}": value for name, value in given.items() if value is not None}


def parse_bytes(text: str | None) -> int | None:
    """Parse ``4GiB``, ``500M`` or ``1000000`` to a number of bytes; units are powers of 1024."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9.]+)\s*([kmgt]?)(i?b)?", text.strip().lower())
    try:
        if found is None or (size := int(float(found[1]) * _UNITS[found[2]])) <= 0:
            raise ValueError
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"--max-memory {text}: takes a size, such as 4GiB or 500MiB") from None
    return size


@contextlib.contextmanager
def time_limit(seconds: float | None, what: str) -> Iterator[None]:
    """Raise TimeLimitError in the main thread after some seconds; end the process if native code does not stop."""
    if seconds is None:
        yield
        return
    message = f"{what} takes longer than --timeout allows: {seconds:g} seconds"

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeLimitError(message)

    def unraisable(dropped: Any) -> None:
        if isinstance(dropped.exc_value, TimeLimitError):  # a callback of the interpreter, as at an import, dropped it
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        else:
            hook(dropped)

    hook, sys.unraisablehook = sys.unraisablehook, unraisable
    before = signal.signal(signal.SIGALRM, interrupt)
    end = threading.Timer(seconds + _GRACE_SECONDS, _end, [message])
    end.daemon = True
    try:
        end.start()
        faulthandler.dump_traceback_later(seconds + _LAST_SECONDS, exit=True)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
        end.cancel()
        faulthandler.cancel_dump_traceback_later()


def _end(message: str) -> NoReturn:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"error: {printable(message)}\n")
        sys.stderr.flush()
    os._exit(1)
