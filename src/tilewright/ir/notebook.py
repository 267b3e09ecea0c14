"""Texts as Jupyter shows them: between tags that fold, the long ones folded."""

from __future__ import annotations

import html

_OPEN_LINES = 40


def text_html(title: str, text: str) -> str:
    """Return HTML that shows a text under a title; one of up to 40 lines is open."""
    lines = text.count("\n") + 1
    state = ' open="open"' if lines <= _OPEN_LINES else ""
    shown = html.escape(text)
    return f"<details{state}><summary>{html.escape(title)} ({lines} lines)</summary><pre>{shown}</pre></details>"
