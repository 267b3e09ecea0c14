"""Errors that speak to the user: one readable message, no internal state."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tilewright.runtime.error import TVMError


class TilewrightError(TVMError):
    """Base of every error that the compiler raises on wrong input."""


class TypeInferenceError(TilewrightError):
    """A type error in a program; the message names the operator, and what was expected and found."""


class StillUnknown(Exception):
    """Raised by a type relation that waits for a type of its arguments; type inference asks it again later."""


class UnsupportedError(TilewrightError):
    """Valid input that uses an unsupported feature; the message names an alternative."""


class InvalidShapeError(TilewrightError):
    """A tensor shape that a compute does not accept."""


class OperandError(TilewrightError, TypeError):
    """An operator is applied to values of a data type that it is not for."""


class OperandValueError(TilewrightError, ValueError):
    """An operator is applied to a constant for which it has no meaning."""


class DivisionByZeroError(TilewrightError, ZeroDivisionError):
    """The divisor is the constant 0."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for a known name close to ``name``, or ""."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class OpError(TilewrightError):
    """An importer met an operator that it cannot take."""


class OpNotImplemented(OpError, NotImplementedError):
    """The operator has no converter."""


class OpAttributeRequired(OpError, AttributeError):
    """The operator lacks an attribute that it needs."""


class OpAttributeInvalid(OpError, AttributeError):
    """An attribute of the operator has a value that is not allowed."""


class OpAttributeUnImplemented(OpError, NotImplementedError):
    """An attribute of the operator has a value that is allowed and not offered."""
