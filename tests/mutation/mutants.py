"""Mutants: one small change of one source file each, drawn at random."""

from __future__ import annotations

import ast
import copy
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

AREAS = tuple(
    f"src/tilewright/{area}"
    for area in (
        "arith",
        "tir/transform",
        "te/schedule",
        "relay/transform",
        "relay/op",
        "topi/cpu",
        "target/codegen",
        "relay/frontend",
    )
)
SWAPS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.FloorDiv, ast.Add),
    ast.FloorDiv: (ast.Mult,),
    ast.Div: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
OPERATORS = re.compile(r"(?<= )(<=|>=|==|!=|<|>|\+|-)(?= )")
OF_TEXTS = {"<=": "<", ">=": ">", "==": "!=", "!=": "==", "<": "<=", ">": ">=", "+": "-", "-": "+"}
Change = Callable[[random.Random], ast.AST]


@dataclass(frozen=True)
class Mutant:
    """What stands in lines ``line`` and following of a file, and what stands there instead."""

    path: str
    line: int
    kind: str
    before: str
    after: str

    def apply(self, text: str) -> str | None:
        """Return the file's text with the change, wherever its lines have moved to; None where they went."""
        lines, old = text.split("\n"), self.before.split("\n")
        places = [i for i in range(len(lines) - len(old) + 1) if lines[i : i + len(old)] == old]
        if not places:
            return None
        at = min(places, key=lambda i: abs(i + 1 - self.line))
        return "\n".join([*lines[:at], *self.after.split("\n"), *lines[at + len(old) :]])

    def record(self) -> dict[str, Any]:
        return asdict(self)


def _swapped(node: Any, field: str) -> Change:
    def change(draw: random.Random) -> ast.AST:
        new = copy.copy(node)
        old = getattr(node, field)
        if isinstance(old, list):
            at = draw.randrange(len(old))
            setattr(new, field, [*old[:at], draw.choice(SWAPS[type(old[at])])(), *old[at + 1 :]])
        else:
            setattr(new, field, draw.choice(SWAPS[type(old)])())
        return new

    return change


def _constant(node: ast.Constant) -> Change:
    def change(draw: random.Random) -> ast.AST:
        return ast.Constant(not node.value if isinstance(node.value, bool) else node.value + draw.choice((-1, 1)))

    return change


def _of_text(node: ast.Constant) -> Change:
    """One operator in a rule of the simplifier."""

    def change(draw: random.Random) -> ast.AST:
        found = draw.choice(list(OPERATORS.finditer(node.value)))
        return ast.Constant(node.value[: found.start()] + OF_TEXTS[found[0]] + node.value[found.end() :])

    return change


def _arguments(node: ast.Call) -> Change:
    return lambda draw: ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)


def _negated(node: ast.expr) -> Change:
    return lambda draw: node.operand if isinstance(node, ast.UnaryOp) else ast.UnaryOp(ast.Not(), node)


def _expressions(node: ast.AST) -> Iterator[tuple[str, ast.AST, Change]]:
    """The changes of an expression: their kind, what they replace and how."""
    match node:
        case ast.Compare():
            yield "comparison", node, _swapped(node, "ops")
        case ast.BinOp(op=op) if type(op) in SWAPS:
            yield "arithmetic", node, _swapped(node, "op")
        case ast.BoolOp():
            yield "and/or", node, _swapped(node, "op")
        case ast.UnaryOp(op=ast.Not()):
            yield "negation", node, _negated(node)
        case ast.Constant(value=bool() | int()):
            yield "constant", node, _constant(node)
        case ast.Constant(value=str(text)) if OPERATORS.search(text) and "(" in text:
            yield "rule", node, _of_text(node)
        case ast.Call(args=[first, second, *_]) if (
            not isinstance(first, ast.Starred) and type(second) is not ast.Starred
        ):
            yield "arguments", node, _arguments(node)
        case ast.IfExp() | ast.If() | ast.While():
            yield "condition", node.test, _negated(node.test)
        case ast.comprehension(ifs=[test, *_]):
            yield "condition", test, _negated(test)


def _statements(node: ast.AST) -> Iterator[tuple[str, ast.AST, Change]]:
    match node:
        case ast.Expr(value=ast.Call()):
            yield "removal", node, lambda draw: ast.Pass()
        case ast.AugAssign(op=op) if type(op) in SWAPS:
            yield "assignment", node, _swapped(node, "op")
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return", node, lambda draw: ast.Return(ast.Constant(None))
        case ast.Break():
            yield "break", node, lambda draw: ast.Continue()
        case ast.Continue():
            yield "break", node, lambda draw: ast.Break()


def sites(node: ast.AST, rules: bool) -> Iterator[tuple[str, ast.AST, Change]]:
    """Walk over all possible changes; nothing in annotations, formatted texts and what only type checkers read.

    Neither is ``strict=True`` changed: a program without errors does not notice.
    """
    for found in (*_expressions(node), *_statements(node)):
        if rules or found[0] != "rule":
            yield found
    if isinstance(node, ast.JoinedStr) or getattr(node, "arg", None) == "strict":
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from sites(child, rules)


def mutant(path: str, text: str, kind: str, node: Any, new: ast.AST) -> Mutant | None:
    """Return the change as whole lines, as many as before; None where the result does not parse."""
    lines = text.split("\n")
    first, last = node.lineno - 1, node.end_lineno
    old = lines[first:last]
    head = old[0].encode()[: node.col_offset].decode()
    tail = old[-1].encode()[node.end_col_offset :].decode()
    written = ast.unparse(ast.fix_missing_locations(new))
    rest = "\n" * (len(old) - 1)
    changed = f"{head}({written}{rest}){tail}" if isinstance(node, ast.expr) else f"{head}{written}{tail}{rest}"
    try:
        ast.parse("\n".join([*lines[:first], *changed.split("\n"), *lines[last:]]))
    except SyntaxError:
        return None
    return Mutant(path, node.lineno, kind, "\n".join(old), changed)


def draw_area(root: Path, area: str, count: int, draw: random.Random) -> list[Mutant]:
    """Return mutants of an area: the kind by the root of how many sites it has, then any site."""
    texts = {str(f.relative_to(root)): f.read_text() for f in sorted((root / area).rglob("*.py"))}
    of_kind: dict[str, list[tuple[str, ast.AST, Change]]] = defaultdict(list)
    for path, text in texts.items():
        for kind, node, change in sites(ast.parse(text), rules="/rules/" in path):
            of_kind[kind].append((path, node, change))
    kinds = sorted(of_kind)
    found: dict[Mutant, None] = {}
    while len(found) < count:
        kind = draw.choices(kinds, [len(of_kind[k]) ** 0.5 for k in kinds])[0]
        path, node, change = draw.choice(of_kind[kind])
        if new := mutant(path, texts[path], kind, node, change(draw)):
            found[new] = None
    return list(found)


def draw_mutants(root: Path, seed: int, count: int) -> list[Mutant]:
    """Return mutants in which areas take turns, so that a part of them is spread as evenly as all."""
    each = -(-count // len(AREAS))
    columns = [draw_area(root, area, each, random.Random(f"{seed} {area}")) for area in AREAS]
    return [m for row in zip(*columns, strict=True) for m in row][:count]
