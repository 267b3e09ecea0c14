"""Output of commands: tables on a terminal, tab-separated lines elsewhere, or one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from tilewright.runtime.text import printable, printable_json


def print_text(text: str, end: str = "\n", file: TextIO | None = None) -> None:
    """Print lines, in which names from files are harmless to a terminal."""
    print(printable(text), end=end, file=file, flush=file is sys.stderr)


def print_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values."""
    _print(None, rows)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; columns of numbers are aligned to the right."""
    _print(headings, rows)


def _print(headings: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> None:
    rows = [[printable(cell, spared="") for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in ([headings] if headings else []) + list(rows):
            print("\t".join(row))
        return
    table = Table(show_header=headings is not None, box=None, pad_edge=False)
    for index, heading in enumerate(headings or ()):
        numbers = all(row[index][:1].isdigit() for row in rows)
        table.add_column(heading, justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)


def print_json(report: dict[str, Any]) -> None:
    """Print one JSON object."""
    print(printable_json(json.dumps(report, indent=2, ensure_ascii=False)))
