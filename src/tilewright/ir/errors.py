"""Errors that speak to the user: one readable message, no internal state."""

from __future__ import annotations

from tilewright.runtime.error import TVMError


class TilewrightError(TVMError):
    """Base of every error that the compiler raises on wrong input."""


class TypeInferenceError(TilewrightError):
    """A program does not type-check; the message names the operator, what was expected and found."""


class UnsupportedError(TilewrightError):
    """Valid input that uses something this version does not offer; the message says what to do instead."""


class InvalidShapeError(TilewrightError):
    """A tensor has a shape that the compute does not take."""
