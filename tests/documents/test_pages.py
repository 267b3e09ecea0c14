"""Each Python block of the documents runs as it stands, or its page says which test runs it, or why none does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.documents.blocks import ROOT, blocks, pages, run

from tilewright import runtime

ALL = [block for page in pages() for block in blocks(page)]
HERE = sorted({block.page for block in ALL if not block.mark})


@pytest.fixture
def threads() -> Iterator[None]:
    """The number of threads as it was: a page sets it."""
    yield
    runtime.set_num_threads(0)


@pytest.mark.covering(1)  # all pages, in make test too
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("page", HERE, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    run(page)


def test_no_block_is_passed_over() -> None:
    """Each fence that a reader takes for Python is found: none is indented or has another name of the language."""
    for page in pages():
        fences = re.findall(r"^\s*```\s*(?:py|python|python3|ipython|pycon)\b", page.read_text(), re.M | re.I)
        assert len(fences) == len(blocks(page)), f'{page}: write Python blocks as "```python", at the line\'s begin'


def test_a_mark_names_a_test_that_reads_the_page_or_a_reason() -> None:
    for block in ALL:
        if found := re.fullmatch(r"run by (\S+)", block.mark):
            test = ROOT / found[1]
            assert test.exists(), f"{block.place}: there is no {found[1]}"
            assert f'"{block.page.name}"' in test.read_text(), f"{block.place}: {found[1]} does not read the page"
        else:
            assert not block.mark or re.fullmatch(r"not run: \w.{9,}", block.mark), f'{block.place}: "not run: REASON"'
