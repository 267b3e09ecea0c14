"""The compiler asks a target's kind what it can do, never for its name: a plug-in's kind is as good as one of ours."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.target.kind import list_kinds

ROOT = Path(__file__).parents[2]
WAY_OUT = "ask target.kind.capabilities (a field of Capabilities in target/kind.py), or target.kind.device_name"
_REWRITES = ("startswith", "replace", "removeprefix")


def _names(node: ast.AST) -> bool:
    """Whether an expression is the name of a kind, or several."""
    if isinstance(node, (ast.Tuple, ast.Set, ast.List)):
        return any(map(_names, node.elts))
    return isinstance(node, ast.Constant) and node.value in list_kinds()


def _compared(node: ast.AST, other: ast.AST) -> bool:
    """Whether ``node`` is the name of a target's kind, and ``other`` names, or a constant that may hold some."""
    text = ast.unparse(node)
    if text.endswith("kind.name"):
        return _names(other) or (isinstance(other, ast.Name) and other.id.isupper())
    return text in ("kind", "kind_name") and _names(other)


def branches(tree: ast.Module) -> Iterator[int]:
    """Lines that compare or rewrite the name of a target's kind."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=[right]):
                if _compared(left, right) or _compared(right, left):
                    yield node.lineno
            case ast.Call(func=ast.Attribute(value=base, attr=method), args=[first, *_]):
                if method in _REWRITES and _compared(base, first):
                    yield node.lineno
            case ast.Match(subject=subject) if ast.unparse(subject).endswith("kind.name"):
                yield node.lineno


def test_nothing_asks_for_a_target_kind_by_name() -> None:
    sources = [p for p in sorted((ROOT / "src").rglob("*.py")) if "kind" in (text := p.read_text()) and "arget" in text]
    found = [f"{p.relative_to(ROOT)}:{line}" for p in sources for line in branches(ast.parse(p.read_text()))]
    assert not found, f"{WAY_OUT}: {', '.join(found)}"


@pytest.mark.parametrize(
    "text",
    [
        'if target.kind.name == "llvm": pass',
        'x = t.kind.name in ("cuda", "nvptx")',
        'x = "llvm" != target.kind.name',
        "x = target.kind.name in _SHUFFLE_KINDS",
        'x = inp.task.target.kind.name.replace("llvm", "cpu")',
        'kind = target.kind.name\nif kind == "metal": pass',
        'match target.kind.name:\n    case "c": pass',
    ],
)
def test_a_branch_on_a_name_is_found(text: str) -> None:
    assert list(branches(ast.parse(text)))


@pytest.mark.parametrize("text", ["x = a.kind.name != b.kind.name", 'x = info.kind == "int"', 'x = f"{t.kind.name}"'])
def test_what_is_no_branch_is_not_found(text: str) -> None:
    assert not list(branches(ast.parse(text)))
