"""Origin of a node: a range of a source text, or a named node of an imported model."""

from __future__ import annotations

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
