"""Python blocks of the documents, and who runs each.

A block runs with the others of its page (``test_pages.py``) unless a comment in the page's source says otherwise. It
stands in the line above the block's fence, or, for all blocks of a page, below the page's heading::

    <!-- run by tests/rpc/test_docs.py -->
    <!-- not run: it needs a board -->
"""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^(?:<!-- (?P<mark>(?:run by|not run).*?) -->\n)?```python\n(?P<text>.*?)^```", re.DOTALL | re.M)
_OF_PAGE = re.compile(r"\A# .*\n\n<!-- (run by .*?|not run.*?) -->\n(?!```)")


@dataclass(frozen=True)
class Block:
    """A Python block of a page: the line it begins at, its text, and the comment about who runs it ("" for none)."""

    page: Path
    line: int
    text: str
    mark: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return all pages that users read: README, docs/, those of the packages in plugins/ and examples/."""
    folders = ("docs", "plugins", "examples")
    return [ROOT / "README.md", *(path for folder in folders for path in sorted((ROOT / folder).rglob("*.md")))]


def blocks(page: Path) -> list[Block]:
    """Return the Python blocks of a page, in order."""
    text = page.read_text()
    of_page = found[1] if (found := _OF_PAGE.match(text)) else ""
    return [
        Block(page, text[: match.start("text")].count("\n") + 1, match["text"], match["mark"] or of_page)
        for match in _BLOCK.finditer(text)
    ]


def run(page: Path, names: dict[str, object] | None = None) -> None:
    """Run the blocks of a page that have no mark, one after the other in one namespace."""
    names = {"__name__": "docs"} if names is None else names
    for block in blocks(page):
        if not block.mark:
            # scripts read their own text
            linecache.cache[block.place] = (len(block.text), None, block.text.splitlines(keepends=True), block.place)
            exec(compile(block.text, block.place, "exec", dont_inherit=True), names)
