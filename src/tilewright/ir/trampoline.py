"""Recursive algorithms without recursion: functions written as generators, run on an explicit stack.

A step that would call itself yields the generator of the inner step instead, and gets its result back::

    def depth(expr):
        if isinstance(expr, Call):
            inner = yield depth(expr.args[0])
            return inner + 1
        return 0

    run(depth(expr))        # works for a chain of any length
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

R = TypeVar("R")

Steps = Generator["Steps[Any]", Any, R]


def run(steps: Steps[R]) -> R:
    """Run a generator and those that it yields; return the result of the outermost."""
    stack: list[Steps[Any]] = [steps]
    value: Any = None
    while stack:
        try:
            inner = stack[-1].send(value)
        except StopIteration as stop:
            stack.pop()
            value = stop.value
        else:
            stack.append(inner)
            value = None
    result: R = value
    return result
