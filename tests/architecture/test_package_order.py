"""Imports go down the list of packages in docs/architecture.md, and no two modules import each other.

Computed from the syntax tree of every file: imports at top level, inside functions, and for type checkers alike.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
GUIDE = ROOT / "docs" / "architecture.md"
FACES = {"tilewright", "tilewright.relay"}  # their __init__ loads the names of all that is below them, on use


class Import(NamedTuple):
    """One module importing another; ``typing`` where only type checkers do."""

    source: str
    line: int
    target: str
    typing: bool


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for path in sorted((SOURCES / "tilewright").rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _names(node: ast.AST, module: str) -> Iterator[str]:
    """The modules that a statement or call imports, as far as the text tells."""
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom():
            base = _base(node, module)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in modules() else base
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
            yield name


def _base(node: ast.ImportFrom, module: str) -> str:
    if not node.level:
        return node.module or ""
    package = module.split(".") if modules()[module].name == "__init__.py" else module.split(".")[:-1]
    return ".".join([*package[: len(package) + 1 - node.level], *filter(None, [node.module])])


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _statements(node: ast.AST, typing: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the statements inside of one, and whether only type checkers read them; not their expressions."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, field, ())
        unread = typing or (field == "body" and isinstance(node, ast.If) and _is_type_checking(node.test))
        for statement in inner if isinstance(inner, list) else ():
            yield statement, unread
            yield from _statements(statement, unread)


def imports_of(module: str, text: str) -> Iterator[Import]:
    """What the module with this text imports of Tilewright."""
    tree = ast.parse(text)
    calls = ((n, False) for n in ast.walk(tree) if isinstance(n, ast.Call)) if "import_module" in text else ()
    for node, typing in (*_statements(tree), *calls):
        for name in _names(node, module):
            if name.split(".")[0] == "tilewright":
                yield Import(module, getattr(node, "lineno", 0), name, typing)


@cache
def all_imports() -> list[Import]:
    """Every import of the package by itself."""
    return [i for name, path in modules().items() for i in imports_of(name, path.read_text())]


def tables(text: str) -> list[list[list[str]]]:
    """The tables of packages: the rows of each from the highest to the lowest; a row names one or several."""
    section = text.split("\n## Packages", 1)[1].split("\n## ", 1)[0]
    found: list[list[list[str]]] = []
    for line in section.splitlines():
        if line.startswith("|---"):
            found.append([])
        elif line.startswith("| `"):
            found[-1].append(re.findall(r"`([\w.]+)`", line.split("|")[1]))
    return found


@cache
def ranks() -> dict[str, tuple[int, int]]:
    """The row of each package, and for parts of a package the row in its own table; larger numbers are lower."""
    packages, *insides = tables(GUIDE.read_text())
    found = {f"tilewright.{name}": (i, 0) for i, row in enumerate(packages) for name in row}
    for rows in insides:
        whole, _ = found["tilewright." + rows[0][0].split(".")[0]]
        found |= {f"tilewright.{name}": (whole, i) for i, row in enumerate(rows, 1) for name in row}
    return found


def place(module: str) -> str | None:
    """The entry of the guide that a module belongs to: the longest that its name starts with."""
    parts = module.split(".")
    prefixes = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((p for p in prefixes if p in ranks()), None)


def problem(item: Import) -> str | None:
    """What is wrong with an import, or None."""
    source, target = place(item.source), place(item.target)
    if item.source in FACES:
        return None
    where = f"{item.source}:{item.line} imports {item.target}"
    if item.target == "tilewright":
        return (
            None
            if source and ranks()[source] < ranks()["tilewright.contrib"]
            else f"{where}: name the package that is meant"
        )
    if source is None or target is None:
        return f"{where}: {item.source if source is None else item.target} is in no row of docs/architecture.md"
    if source != target and ranks()[source] >= ranks()[target]:
        return f"{where}: {target} is not below {source} in docs/architecture.md; move the code, or let it register"
    return None


def test_imports_go_down_the_list_of_packages() -> None:
    problems = [found for item in all_imports() if (found := problem(item))]
    assert not problems, "\n".join(problems)


def test_every_package_and_every_part_of_relay_has_its_place() -> None:
    missing = [m for m in modules() if m != "tilewright" and place(m) is None]
    assert not missing, f"not in the list of docs/architecture.md: {missing}"
    known = {m.removeprefix("tilewright.") for m in modules()}
    gone = [name for table in tables(GUIDE.read_text()) for row in table for name in row if name not in known]
    assert not gone, f"listed in docs/architecture.md, but there is no such package: {gone}"


# The nodes of scalar expressions and Python's operators on them: one module in two files.
ONE_MODULE = {"tilewright.ir.prim_expr", "tilewright.ir.prim_ops"}


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Sets of modules that import each other (strongly connected components of two and more)."""
    reached: dict[str, set[str]] = {}

    def reach(start: str) -> set[str]:
        if start not in reached:
            seen, stack = set[str](), [start]
            while stack:
                for target in edges.get(stack.pop(), set()):
                    if target not in seen:
                        seen.add(target)
                        stack.append(target)
            reached[start] = seen
        return reached[start]

    found, done = [], set[str]()
    for name in sorted(edges):
        if name not in done and name in reach(name):
            group = sorted(other for other in reach(name) if name in reach(other))
            done |= set(group)
            found.append(group)
    return found


def test_no_two_modules_import_each_other() -> None:
    edges: dict[str, set[str]] = {}
    for item in all_imports():
        if not item.typing and item.source != item.target:
            edges.setdefault(item.source, set()).add(item.target)
    found = [group for group in cycles(edges) if set(group) != ONE_MODULE]
    assert not found, "modules that import each other: " + "; ".join(", ".join(group) for group in found)


@pytest.mark.parametrize(
    ("source", "text", "wrong"),
    [
        ("tilewright.te.tensor", "from tilewright import topi", True),
        ("tilewright.te.tensor", "def f():\n    from tilewright.topi import add", True),
        ("tilewright.te.tensor", "if TYPE_CHECKING:\n    from tilewright.topi import add", True),
        ("tilewright.te.tensor", "import importlib\nimportlib.import_module('tilewright.topi')", True),
        ("tilewright.te.tensor", "import tilewright as tvm", True),
        ("tilewright.te.tensor", "from tilewright.tir.expr import Var", False),
        ("tilewright.te.tensor", "from tilewright.te import tag", False),
        ("tilewright.topi.nn.dense", "from tilewright.te.tensor import Tensor", False),
        ("tilewright.relay.expr", "def f():\n    from tilewright.relay.op import cast", True),
        ("tilewright.relay.transform.fusion.fuse_ops", "from tilewright.relay.backend import te_compiler", True),
        ("tilewright.relay.expr", "from tilewright import relay", True),
        ("tilewright.relay.expr", "from . import op", True),
        ("tilewright.relay.expr", "from tilewright.topi import add", False),
        ("tilewright.newcomer", "from tilewright.ir.op import Op", True),
    ],
)
def test_the_checker_tells_imports_up_from_imports_down(source: str, text: str, wrong: bool) -> None:
    assert any(problem(item) for item in imports_of(source, text)) == wrong


def test_the_checker_finds_modules_that_import_each_other() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    assert cycles({"a": {"b"}, "b": {"c"}}) == []


def test_what_the_guide_says_where_to_look_is_there() -> None:
    section = GUIDE.read_text().split("\n## Where would you look?", 1)[1].split("\n## ", 1)[0]
    paths = [p for p in re.findall(r"`([\w/.]+)`", section) if "/" in p]
    assert len(paths) > 20
    missing = [p for p in paths if not (SOURCES / "tilewright" / p).exists() and not (ROOT / p).exists()]
    assert not missing, f"docs/architecture.md names files that are not there: {missing}"
