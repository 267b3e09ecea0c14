"""Attributes of functions are named by their declarations, and docs/passes.md has the table of them.

``python tests/architecture/test_function_attributes.py`` writes the table anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.ir.function_attributes import CARRIER_NAMES, Carrier, FunctionAttribute
from tilewright.relay import function_attributes as of_relay
from tilewright.tir import function_attributes as of_tir

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "passes.md"
BEGIN, END = "<!-- attributes: begin -->\n", "<!-- attributes: end -->\n"
PACKAGES = [ROOT / "src" / "tilewright", *sorted((ROOT / "plugins").glob("*/src"))]
DECLARING = "function_attributes.py"
# Words that mean an attribute of a function wherever they stand.
UNMISTAKABLE = {"Primitive", "Compiler", "Composite", "PartitionedFromPattern", "global_symbol", "SkipOptimization"}


def declarations() -> dict[str, FunctionAttribute]:
    """The declarations by the names that code uses."""
    found = {**vars(of_tir), **vars(of_relay)}
    return {name: value for name, value in found.items() if isinstance(value, FunctionAttribute)}


KEYS = {declared.key for declared in declarations().values()}
QUOTED = re.compile("|".join(f"[\"']{re.escape(key)}[\"']" for key in sorted(KEYS)))


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (p for p in sorted(package.rglob("*.py")) if p.name != DECLARING)


def _is_key(node: ast.AST | None, keys: set[str]) -> bool:
    return isinstance(node, ast.Constant) and node.value in keys


def _is_attrs(node: ast.AST) -> bool:
    """Whether an expression is ``x.attrs`` or ``x.get_attrs()``."""
    called = node.func if isinstance(node, ast.Call) else node
    return isinstance(called, ast.Attribute) and called.attr in ("attrs", "get_attrs")


def _dictionaries(node: ast.Call) -> Iterator[ast.Dict]:
    """Dictionaries that a call is given as attributes."""
    yield from (k.value for k in node.keywords if k.arg == "attrs" and isinstance(k.value, ast.Dict))
    if isinstance(node.func, ast.Attribute) and node.func.attr == "with_attr":
        yield from (a for a in node.args if isinstance(a, ast.Dict))
    if isinstance(node.func, ast.Name) and node.func.id in ("PrimFunc", "DictAttrs"):
        yield from (a for a in node.args if isinstance(a, ast.Dict))


def raw_keys(tree: ast.Module) -> Iterator[int]:
    """Lines where an attribute of a function is named by a string."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant() if _is_key(node, UNMISTAKABLE):
                yield node.lineno
            case ast.Subscript(value=base, slice=key) if _is_attrs(base) and _is_key(key, KEYS):
                yield node.lineno
            case ast.Compare(left=left, comparators=[base]) if _is_attrs(base) and _is_key(left, KEYS):
                yield node.lineno
            case ast.Call(func=ast.Attribute(attr="get", value=base), args=[key, *_]) if _is_attrs(base):
                if _is_key(key, KEYS):
                    yield node.lineno
            case ast.Call(func=ast.Attribute(attr="with_attr" | "without_attr"), args=[key, *_]) if _is_key(key, KEYS):
                yield node.lineno
            case ast.Call() if any(_is_key(k, KEYS) for d in _dictionaries(node) for k in d.keys):
                yield node.lineno


def test_no_attribute_of_a_function_is_named_by_a_string() -> None:
    suspects = [p for p in sources() if QUOTED.search(p.read_text())]
    found = {f"{p.relative_to(ROOT)}:{line}" for p in suspects for line in raw_keys(ast.parse(p.read_text()))}
    assert not found, (
        f"name the declaration of {DECLARING} instead (COMPILER.get(func), COMPILER.key): {', '.join(sorted(found))}"
    )


@pytest.mark.parametrize(
    "text",
    [
        'f("Primitive")',
        'func.attrs.get("view")',
        'func.get_attrs()["hash"]',
        'x = "target" in func.attrs',
        'func.with_attr("room", 1)',
        'func.with_attr({"room": 1})',
        'func.without_attr("room")',
        'Function([], x, attrs={"in_place": 1})',
        'PrimFunc([], body, None, {}, {"tir.noalias": True})',
    ],
)
def test_a_string_that_names_an_attribute_is_found(text: str) -> None:
    assert set(raw_keys(ast.parse(text))) == {1}


def test_each_declaration_is_used() -> None:
    words = {word for p in sources() for word in re.findall(r"\b[A-Z_]{4,}\b", p.read_text())}
    unused = sorted(set(declarations()) - words)
    assert not unused, f"declared in {DECLARING}, and used nowhere: {unused}"


def table() -> str:
    """The table of docs/passes.md."""
    rows = ["| key | value | on | what it says | written by | read by | until |", "|---|---|---|---|---|---|---|"]
    short = {kind: name.removeprefix("a ").removeprefix("an ").split(" of ")[0] for kind, name in CARRIER_NAMES.items()}
    for declared in declarations_once():
        on = ", ".join(word for kind, word in short.items() if kind & declared.carriers)
        on = "any function" if declared.carriers == Carrier.FUNCTION else on
        cells = (f"`{declared.key}`", declared.kind.name, on, declared.meaning, declared.writers, declared.readers)
        rows.append(f"| {' | '.join(cells)} | {declared.last.end} |")
    return "\n".join(rows) + "\n"


def declarations_once() -> list[FunctionAttribute]:
    """Every declaration, Relay's first, each once."""
    order = {**vars(of_relay), **vars(of_tir)}
    return list({v.key: v for v in order.values() if isinstance(v, FunctionAttribute)}.values())


def _parts(text: str) -> tuple[str, str, str]:
    before, rest = text.split(BEGIN)
    inside, after = rest.split(END)
    return before, inside, after


def test_the_guide_has_the_table_of_the_declarations() -> None:
    assert _parts(GUIDE.read_text())[1] == table(), f"run python {Path(__file__).relative_to(ROOT)}"


if __name__ == "__main__":
    before, _, after = _parts(GUIDE.read_text())
    GUIDE.write_text(f"{before}{BEGIN}{table()}{END}{after}")
