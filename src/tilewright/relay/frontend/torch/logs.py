"""Messages of torch beside its errors: one error of ours tells what happened, and no traceback stands above it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("torch.export", "torch._subclasses.fake_tensor")
# torch 2.13 warns of its own copies of graphs; users can do nothing about it.
_OF_ITSELF = r"`isinstance\(treespec, LeafSpec\)` is deprecated"


class _Errors(logging.Filter):
    """Drop records of errors, and keep the errors."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[BaseException] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is no report of an error."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.found.append(error)
        return error is None


@contextmanager
def kept_quiet() -> Iterator[list[BaseException]]:
    """Keep torch from logging tracebacks and from warning of itself in the block; yield the list of the errors."""
    errors, loggers = _Errors(), [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(errors)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _OF_ITSELF, FutureWarning)
            yield errors.found
    finally:
        for logger in loggers:
            logger.removeFilter(errors)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
