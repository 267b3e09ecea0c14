"""docs/glossary.md points to files that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_word_lives_where_the_glossary_says() -> None:
    rows = re.findall(r"^\| (.+) \| (.+) \| (`.+) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert len(rows) > 20
    places = [(word, place) for word, _, where in rows for place in re.findall(r"`([^`]+)`", where)]
    missing = [f"{word}: {place}" for word, place in places if not (ROOT / "src" / "tilewright" / place).exists()]
    assert not missing
