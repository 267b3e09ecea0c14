"""docs/decisions keeps decisions, short; what was measured is in docs/measurements, and links between them hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
MOST_WORDS = 300
RECORDS = sorted([*(DOCS / "decisions").glob("*.md"), *(DOCS / "measurements").glob("*.md")])


def test_decisions_are_short() -> None:
    words = {path.name: len(path.read_text().split()) for path in (DOCS / "decisions").glob("*.md")}
    long = [f"{name} ({count} words)" for name, count in words.items() if count > MOST_WORDS]
    assert not long, f"over {MOST_WORDS} words; figures and what was tried go to docs/measurements: {', '.join(long)}"


@pytest.mark.parametrize("path", [*RECORDS, *sorted(DOCS.glob("*.md"))], ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_links_to_files_hold(path: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", prose)
    gone = [link for link in links if not (path.parent / link).exists()]
    assert not gone, f"{path.name} links to what is not there: {gone}"
