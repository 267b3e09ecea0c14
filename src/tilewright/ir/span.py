"""Origin of a node: a range of a source text, or a named node of an imported model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilewright.ir.node import Node


class SourceName(Node):
    """Name of a source: a file, ``from_string``, or a model node such as ``Conv_12``."""

    name: str


class Span(Node):
    """Lines and columns (1-based, end exclusive) of ``source_name`` that a node came from."""

    source_name: SourceName
    line: int = 0
    end_line: int = 0
    column: int = 0
    end_column: int = 0


class SequentialSpan(Span):
    """The origins of an expression that was made of several, such as a kernel of fused operators."""

    spans: tuple[Span, ...] = ()


def joined(spans: Iterable[Span | None]) -> Span | None:
    """Return one span for all, without repetitions; None where there is none."""
    parts = list(dict.fromkeys(part for span in spans if span is not None for part in _parts(span)))
    if len(parts) < 2:
        return parts[0] if parts else None
    return SequentialSpan(SourceName(", ".join(part.source_name.name for part in parts)), spans=tuple(parts))


def source_names(span: Span | None) -> list[str]:
    """Return the names of the sources of a span, each once."""
    return list(dict.fromkeys(part.source_name.name for part in _parts(span))) if span is not None else []


def _parts(span: Span) -> Iterator[Span]:
    yield from span.spans if isinstance(span, SequentialSpan) else (span,)
