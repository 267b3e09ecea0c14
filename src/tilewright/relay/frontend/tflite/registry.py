"""Converters by the names of TensorFlow Lite's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.relay.frontend.tflite.context import OperatorContext

Convert = Callable[["OperatorContext"], Any]

PLAIN = "plain"  # tensors as they are in the file
IMAGES = "images"  # tensors of rank 4, (n, h, w, c) in the file, have their channels first
ANY = "any"  # either: elements of all tensors are in the same order


@dataclass(frozen=True)
class Converter:
    """A function that returns the results of an operator, and the form of the tensors that it reads and returns."""

    convert: Convert
    form: str


CONVERTERS: dict[str, Converter] = {}


def converter(*names: str, form: str = PLAIN) -> Callable[[Convert], Convert]:
    """Register the converter of operators, built-in or custom."""

    def register(function: Convert) -> Convert:
        for name in names:
            CONVERTERS[name] = Converter(function, form)
        return function

    return register


def supported_operators() -> Sequence[str]:
    """Return the names of all operators that have a converter, sorted."""
    return sorted(CONVERTERS)
