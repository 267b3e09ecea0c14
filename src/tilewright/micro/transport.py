"""Lines of bytes to boards, and a log of what goes over them."""

from __future__ import annotations

import abc
import logging
import string
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from tilewright.micro.project_api.server import IoTimeoutError, TransportClosedError, TransportTimeouts

__all__ = [
    "IoTimeoutError",
    "Transport",
    "TransportClosedError",
    "TransportLogger",
    "TransportTimeouts",
    "debug_transport_timeouts",
]

_LOG = logging.getLogger(__name__)
_SHOWN = string.digits + string.ascii_letters + string.punctuation
T = TypeVar("T")


def debug_transport_timeouts(session_start_retry_timeout_sec: float = 0) -> TransportTimeouts:
    """Return time-outs under which a board may be stopped by a debugger for as long as it takes."""
    return TransportTimeouts(session_start_retry_timeout_sec, 0, 0)


class Transport(metaclass=abc.ABCMeta):
    """A line of bytes to a board, open inside a ``with`` block."""

    def __enter__(self) -> Transport:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @abc.abstractmethod
    def timeouts(self) -> TransportTimeouts:
        """Return how long to wait for the board."""

    @abc.abstractmethod
    def open(self) -> None:
        """Open the line."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close it."""

    @abc.abstractmethod
    def read(self, n: int, timeout_sec: float | None) -> bytes:
        """Return up to ``n`` bytes, at least one.

        Raises
        ------
        IoTimeoutError : none came in ``timeout_sec`` seconds (0: there are none now; None: for ever)
        TransportClosedError : the line has ended
        """

    @abc.abstractmethod
    def write(self, data: bytes, timeout_sec: float | None) -> None:
        """Write all bytes; raises as ``read`` does."""


class TransportLogger(Transport):
    """A line whose traffic is logged, as hexadecimal numbers and text."""

    def __init__(
        self, name: str, child: Transport, logger: logging.Logger | None = None, level: int = logging.INFO
    ) -> None:
        self.name, self.child, self.logger, self.level = name, child, logger or _LOG, level

    def timeouts(self) -> TransportTimeouts:
        """Return those of the line."""
        return self.child.timeouts()

    def open(self) -> None:
        """Open the line."""
        self.logger.log(self.level, "%s: opening transport", self.name)
        self.child.open()

    def close(self) -> None:
        """Close the line."""
        self.logger.log(self.level, "%s: closing transport", self.name)
        self.child.close()

    def read(self, n: int, timeout_sec: float | None) -> bytes:
        """Read, and log what came."""
        seconds = _seconds(timeout_sec)
        head = f"{self.name}: read {{{seconds}}} {n:4d} B -> ["
        data = self._logged(lambda: self.child.read(n, timeout_sec), head, seconds)
        if self.logger.isEnabledFor(self.level):
            self.logger.log(self.level, "%s", f"{head}{len(data):3d} B]:{_dump(data)}")
        return data

    def write(self, data: bytes, timeout_sec: float | None) -> None:
        """Write, and log what went."""
        seconds = _seconds(timeout_sec)
        amount = f"[{len(data):3d} B]:"
        self._logged(
            lambda: self.child.write(data, timeout_sec),
            f"{self.name}: write {{{seconds}}}       <- {amount} [",
            seconds,
        )
        if self.logger.isEnabledFor(self.level):
            self.logger.log(self.level, "%s", f"{self.name}: write {{{seconds}}}        <- {amount}{_dump(data)}")

    def _logged(self, action: Callable[[], T], head: str, seconds: str) -> T:
        try:
            return action()
        except IoTimeoutError:
            self.logger.log(self.level, "%s", f"{head}IoTimeoutError {seconds}]")
            raise
        except Exception as error:
            self.logger.log(self.level, "%s", f"{head}err: {type(error).__name__}]", exc_info=True)
            raise


def _seconds(timeout_sec: float | None) -> str:
    return f"{timeout_sec:5.2f}s" if timeout_sec is not None else " None "


def _dump(data: bytes) -> str:
    """Return bytes as hexadecimal numbers and text: behind a blank, or from 17 bytes on in numbered lines."""
    rows = [data[i : i + 16] for i in range(0, len(data), 16)]
    lines = [f"{row.hex(' '):47}  {''.join(chr(c) if chr(c) in _SHOWN else '.' for c in row)}" for row in rows]
    if len(lines) <= 1:
        return f" {lines[0] if lines else ''}"
    return "".join(f"\n{i * 16:04x}  {line}" for i, line in enumerate(lines))
