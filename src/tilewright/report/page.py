"""One HTML file with nothing beside it: its style, its script and its data are inside.

Parts are HTML texts, which stand in the page as they are, so a page without data reads without a script. The data is
what the script draws: a graph to fold, tables to sort, memory over time, passes, code. It is compressed; a browser of
2023 or later unpacks it.
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.runtime.partial_files import write_whole
from tilewright.runtime.text import printable

_HERE = Path(__file__).parent
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Section:
    """A part of a page under a heading; ``name`` is its anchor."""

    name: str
    heading: str
    body: str


def write_page(
    path: Path,
    title: str,
    sections: Sequence[Section],
    summary: Sequence[str | tuple[str, str]] = (),
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write a page; it appears whole or not at all.

    Args:
        path: the file.
        title: the heading.
        sections: the parts below it, in order.
        summary: lines, or names with values, that stand first.
        data: what the script draws (``report.model``), as JSON has it.
    """
    links = "".join(f'<a href="#{s.name}">{html.escape(s.heading)}</a>' for s in sections)
    find = '<input id="find" type="search" placeholder="Search  ( / )" aria-label="Search">'
    parts = [
        "<!doctype html>", '<html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{escape(title)}</title><style>{(_HERE / 'page.css').read_text()}</style>",
        f"<nav>{links}{find}</nav><h1>{escape(title)}</h1>", _summary(summary),
        *(f'<section id="{s.name}"><h2>{escape(s.heading)}</h2>{s.body}</section>' for s in sections),
    ]  # fmt: skip
    if data is not None:
        packed = base64.b64encode(zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 9)).decode()
        parts.append(f'<script id="data" type="application/octet-stream">{packed}</script>')
    parts.append(f"<script>{(_HERE / 'page.js').read_text()}</script></html>")
    write_whole(path, "\n".join(parts))


def escape(text: str) -> str:
    """Return a text for HTML, without characters that control a terminal."""
    return html.escape(printable(text))


def _summary(lines: Sequence[str | tuple[str, str]]) -> str:
    pairs = [line for line in lines if not isinstance(line, str)]
    texts = "".join(f"<p>{escape(line)}</p>" for line in lines if isinstance(line, str))
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in pairs)
    return texts + (f"<table>{rows}</table>" if pairs else "")


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    bars: Sequence[float] = (),
    numbers: Callable[[int], bool] = lambda column: False,
) -> str:
    """Return a table in HTML.

    Args:
        heads: the headings.
        rows: the cells of each row.
        bars: for each row the length, from 0 to 1, of a bar in front of it.
        numbers: whether a column is aligned to the right.
    """
    kinds = [' class="n"' if numbers(i) else "" for i in range(len(heads))]
    lines = []
    for index, row in enumerate(rows):
        bar = f'<td><i style="width:{100 * bars[index]:.0f}px"></i></td>' if bars else ""
        cells = "".join(f"<td{kind}>{escape(str(cell))}</td>" for kind, cell in zip(kinds, row, strict=True))
        lines.append(f"<tr>{bar}{cells}</tr>")
    head = "".join(f"<th{kind}>{escape(text)}</th>" for kind, text in zip(kinds, heads, strict=True))
    body = f"<tbody>{''.join(lines)}</tbody>"
    return f'<div class="scroll"><table><thead><tr>{"<th></th>" if bars else ""}{head}</tr></thead>{body}</table></div>'
