"""Docstrings say what a thing does: they begin with a verb or a noun of the field. Names are words of the field."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "tilewright"
RIDDLES = ("What ", "The pass.", "topi's kernel", "In numpy.")
REMEDY = 'begin with a verb or a noun: "Return the ...", "Fuse ...", "The iteration variables of ..."'

# Words that only this code used, with those of the field.
WORDS = {
    "told": "known, expected, noted",
    "room": "slack, capacity, stack",
    "rests": "tails",
    "team": "thread group",
    "teams": "thread groups",
    "placement": "storage plan, device",
    "staging": "stages",
}
# Names of an interface: functions of the runtime that are called by name, and old names that are kept for a release.
KEPT = {"TAKES_ROOM", "with_room", "_told_error"}


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node)
            if doc is not None:
                yield node.body[0].lineno, doc


def riddles(text: str) -> list[str]:
    if not any(riddle in text for riddle in RIDDLES):  # to parse all sources takes seconds
        return []
    return [f"{line}: {doc.splitlines()[0]}" for line, doc in docstrings(text) if doc.startswith(RIDDLES)]


def private_words(text: str) -> list[str]:
    """The names that a text defines with a word of ``WORDS`` in them."""
    found: list[str] = []
    if not any(word in text.lower() for word in WORDS):
        return found
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                pass
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        words = set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))
        found += [f"{node.lineno}: {name}, say {WORDS[w]}" for w in words & WORDS.keys() if name not in KEPT]
    return found


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{riddle}"
        for path in sorted(SOURCE.rglob("*.py"))
        for riddle in riddles(path.read_text())
    ]
    assert not found, f"{REMEDY}; found\n" + "\n".join(found)


def test_names_are_words_of_the_field() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{word}"
        for path in sorted(SOURCE.rglob("*.py"))
        for word in private_words(path.read_text())
    ]
    assert not found, "names with words that the field does not use:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code", ['"""What a file says."""', 'def f():\n    """The pass."""', 'class A:\n    """topi\'s kernel."""']
)
def test_a_riddle_is_found(code: str) -> None:
    assert len(riddles(code)) == 1


@pytest.mark.parametrize(
    "code", ["told = 1", "def with_told(): ...", "class MarkRoom: ...", "def f(rests): ...", "self.old_placement = 1"]
)
def test_a_private_word_is_found(code: str) -> None:
    assert len(private_words(code)) == 1


def _listed(package: Path, doc: str) -> set[str]:
    """The modules of a package that its docstring names; a name of another folder's file has its path."""
    names = re.findall(r"(?<![\w/])(\w+\.py)\b", doc)
    return {name for name in names if (package / name).exists() or not any(package.rglob(name))}


def unlisted(package: Path) -> list[str]:
    """What a package's docstring leaves out of its list of modules, if it has one, and names that it has not."""
    listed = _listed(package, ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or "")
    modules = {path.name for path in package.glob("*.py") if not path.name.startswith("_")}
    wrong = [f"{package.name}/{name} is not there" for name in sorted(listed - modules) if not name.startswith("_")]
    missing = sorted(modules - listed) if len(listed & modules) > 1 else []
    return wrong + [f"{package.name}/{name} is not listed" for name in missing]


def test_lists_of_modules_are_whole() -> None:
    found = [line for path in sorted(SOURCE.rglob("__init__.py")) for line in unlisted(path.parent)]
    assert not found, "the docstring of a package's __init__.py lists all of its modules, or none; found\n" + "\n".join(
        found
    )


def test_a_list_that_leaves_out_a_module_is_found(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "c.py", "_private.py"):
        (tmp_path / name).touch()
    (tmp_path / "__init__.py").write_text(
        '"""Parts: ``a.py``, ``b.py`` and ``old.py``; ``ir/node.py`` is elsewhere."""'
    )
    assert unlisted(tmp_path) == [f"{tmp_path.name}/old.py is not there", f"{tmp_path.name}/c.py is not listed"]


def test_files_that_sources_refer_to_are_there() -> None:
    root = SOURCE.parents[1]
    reference = re.compile(r"(?<![\w/.])(?:docs|tests|benchmarks|examples|native|plugins)/[\w./-]+\.\w+")
    found = [
        f"{path.relative_to(root)} refers to {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name in dict.fromkeys(reference.findall(path.read_text()))
        if not (root / name).exists()
    ]
    assert not found, "name the file where it is now; found\n" + "\n".join(found)
