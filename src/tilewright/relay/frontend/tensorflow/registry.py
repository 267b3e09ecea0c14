"""Converters by the names of TensorFlow's operators.

A converter gets the ``NodeContext`` of a node and returns its result, or a list of its results, of which None stands
for one that cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.relay.frontend.tensorflow.context import NodeContext

Convert = Callable[["NodeContext"], Any]

CONVERTERS: dict[str, Convert] = {}


def converter(*names: str) -> Callable[[Convert], Convert]:
    """Register the converter of operators."""

    def register(function: Convert) -> Convert:
        for name in names:
            CONVERTERS[name] = function
        return function

    return register


def supported_operators() -> list[str]:
    """Return the names of all operators that have a converter, sorted."""
    return sorted(CONVERTERS)
