"""Docstrings say what a thing does: they begin with a verb or a noun of the field."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "tilewright"
RELAY = SOURCE / "relay"  # not converted yet
RIDDLES = ("What ", "The pass.", "topi's kernel.")
REMEDY = 'begin with a verb or a noun: "Return the ...", "Fuse ...", "The iteration variables of ..."'


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node)
            if doc is not None:
                yield node.body[0].lineno, doc


def riddles(text: str) -> list[str]:
    return [f"{line}: {doc.splitlines()[0]}" for line, doc in docstrings(text) if doc.startswith(RIDDLES)]


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{riddle}"
        for path in sorted(SOURCE.rglob("*.py"))
        if RELAY not in path.parents
        for riddle in riddles(path.read_text())
    ]
    assert not found, f"{REMEDY}; found\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code", ['"""What a file says."""', 'def f():\n    """The pass."""', 'class A:\n    """topi\'s kernel."""']
)
def test_a_riddle_is_found(code: str) -> None:
    assert len(riddles(code)) == 1
