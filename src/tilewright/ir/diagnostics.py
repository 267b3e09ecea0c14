"""Diagnostics of a program, shown with their place in the source.

A context collects them, so that a user sees all of a kind at once::

    error: operator nn.relu6 is not known; did you mean nn.relu?
     --> model.relay:3:3
      |
    3 |   nn.relu6(%x)
      |   ^^^^^^^^
"""

from __future__ import annotations

import enum
import re
import sys
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.span import SourceName, Span

_WIDTH = 120  # columns of an excerpt; longer lines are cut around the place


@lru_cache(maxsize=4)
def _line_begins(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


class SourceText(SourceName):
    """A source with its text, so that a span within it can be shown."""

    text: str = ""

    def span(self, start: int, stop: int) -> Span:
        """Return the span of the characters from ``start`` to before ``stop``."""
        begins = _line_begins(self.text)
        first, last = bisect_right(begins, start), bisect_right(begins, stop)
        return Span(self, first, last, start - begins[first - 1] + 1, stop - begins[last - 1] + 1)

    def line(self, number: int) -> str:
        """Line ``number``, counted from 1, without its end."""
        lines = self.text.split("\n")
        return lines[number - 1] if 1 <= number <= len(lines) else ""


class DiagnosticLevel(enum.IntEnum):
    """Severity of a diagnostic."""

    BUG = 10
    ERROR = 20
    WARNING = 30
    NOTE = 40
    HELP = 50


@dataclass(frozen=True)
class Diagnostic:
    """One problem: its severity, its place (None when unknown), and its text."""

    level: DiagnosticLevel
    span: Span | None
    message: str

    def render(self) -> str:
        """Return the message, the place, and an excerpt of the source if available."""
        head = f"{self.level.name.lower()}: {self.message}"
        place = place_of(self.span)
        if not place:
            return head
        margin = " " * (len(str(self.span.line)) if self.span is not None and self.span.line else 1)
        return f"{head}\n{margin}--> {place}{excerpt_of(self.span)}"


def place_of(span: Span | None) -> str:
    """Return ``file:line:column``, the name of a model's node, or "" when the span is unknown."""
    if span is None:
        return ""
    name = span.source_name.name
    return f"{name}:{span.line}:{span.column}" if span.line else name


def excerpt_of(span: Span | None) -> str:
    """Return a line break and the source line with the place marked; "" if the source is not available."""
    if span is None or not span.line or not isinstance(span.source_name, SourceText):
        return ""
    shown, before, width = _excerpt(span.source_name.line(span.line), span)
    bar = " " * len(str(span.line)) + " |"
    return f"\n{bar}\n{span.line} | {shown}\n{bar} {' ' * before}{'^' * width}"


def _excerpt(line: str, span: Span) -> tuple[str, int, int]:
    """Return the part of a line to show, the column of the place in it, and its width."""
    line = line.replace("\t", " ")
    start = max(span.column - 1, 0)
    end = span.end_column - 1 if span.end_line == span.line else len(line)
    end = max(min(end, len(line)), start + 1)
    first = 0 if end <= _WIDTH else max(0, start - _WIDTH // 3)
    left = "..." if first else ""
    right = "..." if len(line) > first + _WIDTH else ""
    shown = left + line[first : first + _WIDTH] + right
    return shown.rstrip(), start - first + len(left), min(end - start, _WIDTH - (start - first))


class DiagnosticError(TilewrightError):
    """Raised once all problems of a step were collected; ``diagnostics`` lists them."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        self.diagnostics = diagnostics
        super().__init__("\n\n".join(d.render() for d in diagnostics))


class DiagnosticRenderer:
    """Shows diagnostics: called with the context before the error is raised."""

    def __init__(self, render: Callable[[DiagnosticContext], None]) -> None:
        self.render = render


def _print(context: DiagnosticContext) -> None:
    print(context.text(), file=sys.stderr)


_DEFAULT = DiagnosticRenderer(_print)
_overriding: list[DiagnosticRenderer] = []


def get_renderer() -> DiagnosticRenderer:
    """Return the renderer in force, or one that prints to stderr."""
    return _overriding[-1] if _overriding else _DEFAULT


def override_renderer(render: Callable[[DiagnosticContext], None] | None) -> None:
    """Have ``render`` called with the problems of a step before they are raised; None ends that."""
    _overriding[:] = [] if render is None else [DiagnosticRenderer(render)]


class DiagnosticContext:
    """Collects the problems of one step over one module."""

    def __init__(self, module: Any = None) -> None:
        self.module = module
        self.diagnostics: list[Diagnostic] = []

    def emit(self, diagnostic: Diagnostic) -> None:
        """Add a problem, unless the same one was found at the same place before."""
        if diagnostic not in self.diagnostics[-20:]:
            self.diagnostics.append(diagnostic)

    def error(self, span: Span | None, message: str) -> None:
        """Add an error."""
        self.emit(Diagnostic(DiagnosticLevel.ERROR, span, message))

    def warning(self, span: Span | None, message: str) -> None:
        """Add a warning."""
        self.emit(Diagnostic(DiagnosticLevel.WARNING, span, message))

    @property
    def has_errors(self) -> bool:
        """Return whether something was found that stops the step."""
        return any(d.level <= DiagnosticLevel.ERROR for d in self.diagnostics)

    def text(self) -> str:
        """Return all problems, in the order found."""
        return "\n\n".join(d.render() for d in self.diagnostics)

    def render(self) -> None:
        """Raise DiagnosticError with all problems, if one is an error (TVM's name)."""
        if self.has_errors:
            for renderer in _overriding:
                renderer.render(self)
            raise DiagnosticError(list(self.diagnostics))
