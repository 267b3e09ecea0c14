"""Compiles tables of rewrite rules, written as text, into one matching function for each root node class.

A rule is ``(pattern, result)`` or ``(pattern, result, condition)``, in Python syntax::

    ("min(x, max(x, y))", "x"),                               # absorption
    ("x // c1 < c2", "x < c1*c2", "c1 > 0"),                  # multiply out

``x y z w s t`` stand for any expression, ``p q r`` for any truth value, ``c1 c2 ...`` for integer literals, ``n m`` for
numbers of lanes. ``& | ~`` are And, Or, Not. In a result, arithmetic over literals only is done while rewriting. A
condition is Python over the literals; ``lower(x)`` and ``upper(x)`` are constant bounds, and ``fits_block(x, c, s)``
says that ``x .. x + s`` does not cross a multiple of ``c``.

Operands of commutative operators match in either order, unless the rule is ``ordered``. The same tables are read by
the z3 proofs in the tests.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tilewright.ir import prim_expr as p

_BINARY: dict[type, str] = {
    ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.FloorDiv: "FloorDiv", ast.Mod: "FloorMod", ast.BitAnd: "And",
    ast.BitOr: "Or",
}  # fmt: skip
_COMPARE: dict[type, str] = {
    ast.Lt: "LT", ast.LtE: "LE", ast.Gt: "GT", ast.GtE: "GE", ast.Eq: "EQ", ast.NotEq: "NE",
}  # fmt: skip
_CALL = {
    "min": "Min", "max": "Max", "truncdiv": "Div", "truncmod": "Mod", "floordiv": "FloorDiv", "floormod": "FloorMod",
}  # fmt: skip
_COMMUTATIVE = {"Add", "Mul", "And", "Or", "EQ", "NE", "Min", "Max"}
_FIELDS: dict[str, tuple[str, ...]] = {
    "Select": ("condition", "true_value", "false_value"), "Ramp": ("base", "stride", "lanes"),
    "Broadcast": ("value", "lanes"), "Not": ("a",),
}  # fmt: skip
_NAMED = {"select": "Select", "ramp": "Ramp", "broadcast": "Broadcast"}


@dataclass(frozen=True)
class Term:
    """A parsed pattern: a node class with operands, or a leaf (name or number)."""

    head: str
    operands: tuple[Term, ...] = ()
    leaf: str | int | None = None


def parse(text: str) -> Term:
    """Read the text of a pattern or result."""
    return _term(ast.parse(text.strip(), mode="eval").body)


def _term(node: ast.expr) -> Term:
    match node:
        case ast.Name(id=name):
            return Term("name", leaf=name)
        case ast.Constant(value=int(value)):
            return Term("number", leaf=value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return Term("number", leaf=-value)
        case ast.UnaryOp(op=ast.Invert(), operand=inner):
            return Term("Not", (_term(inner),))
        case ast.BinOp(left=left, op=op, right=right):
            return Term(_BINARY[type(op)], (_term(left), _term(right)))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return Term(_COMPARE[type(op)], (_term(left), _term(right)))
        case ast.Call(func=ast.Name(id=name), args=args):
            head = _CALL.get(name) or _NAMED.get(name) or f"call:{name}"
            return Term(head, tuple(_term(a) for a in args))
    raise ValueError(f"a rule cannot say {ast.unparse(node)!r}")


@dataclass(frozen=True)
class Rule:
    """One line of a table; ``guard`` tests dtypes, which the algebra does not see."""

    pattern: str
    result: str
    condition: str = "True"
    guard: str = "True"
    ordered: bool = field(default=False, kw_only=True)


def variants(term: Term) -> Iterator[Term]:
    """Yield ``term`` with the operands of commutative operators in every order."""
    if not term.operands:
        yield term
        return
    for operands in itertools.product(*[list(variants(o)) for o in term.operands]):
        yield Term(term.head, operands)
        if term.head in _COMMUTATIVE:
            yield Term(term.head, operands[::-1])


def is_literal_name(name: str) -> bool:
    """Return whether a pattern variable stands for an integer literal."""
    return name[0] == "c" and name[1:].isdigit()


class _RuleWriter:
    """Writes the source of the match of one rule; ``maker`` goes before the classes of the result's nodes."""

    def __init__(self, maker: str = "") -> None:
        self.maker = maker
        self.lines: list[str] = []
        self.depth = 1
        self.bound: set[str] = set()
        self.dtype_source: tuple[int, str] | None = None
        self.counter = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def test(self, condition: str) -> None:
        self.emit(f"if {condition}:")
        self.depth += 1

    def match(self, term: Term, value: str, known_class: bool = False) -> None:
        if term.head == "name":
            self._match_name(str(term.leaf), value)
        elif term.head == "number":
            self.test(f"type({value}) is IntImm and {value}.value == {term.leaf}")
        else:
            self._match_node(term, value, known_class)

    def _match_name(self, name: str, value: str) -> None:
        if name in ("true", "false"):
            self.test(f"{value} is {name.upper()}")
        elif is_literal_name(name):
            self.test(f"type({value}) is IntImm" + (f" and {value}.value == {name}" if name in self.bound else ""))
            if name not in self.bound:
                self.emit(f"{name} = {value}.value")
                self._offer_dtype(0, value)
        elif name in self.bound:
            self.test(f"{value} == {name}" if name in "nm" else f"{value} is {name}")
        else:
            self.emit(f"{name} = {value}")
            if name not in "nmpqr":
                self._offer_dtype(1, value)
        self.bound.add(name)

    def _offer_dtype(self, rank: int, value: str) -> None:
        if self.dtype_source is None or rank < self.dtype_source[0]:
            self.dtype_source = (rank, f"{value}.dtype")

    def _match_node(self, term: Term, value: str, known_class: bool) -> None:
        if term.head.startswith("call:"):
            name = term.head.removeprefix("call:")
            self.test(f"type({value}) is Call and {value}.op is OPS['tir.{name}']")
            fields = [f"args[{i}]" for i in range(len(term.operands))]
        else:
            if not known_class:
                self.test(f"type({value}) is {term.head}")
            fields = list(_FIELDS.get(term.head, ("a", "b")))
        # literals and known names first: they fail soonest
        for place, operand in sorted(zip(fields, term.operands, strict=True), key=lambda fo: bool(fo[1].operands)):
            self.counter += 1
            inner = f"v{self.counter}"
            self.emit(f"{inner} = {value}.{place}")
            self.match(operand, inner)

    def build(self, term: Term) -> str:
        """Return source text of the result expression."""
        if (arithmetic := self.arithmetic(term)) is not None:
            assert self.dtype_source is not None
            return f"IntImm({self.dtype_source[1]}, {arithmetic})"
        if term.head == "name":
            name = str(term.leaf)
            return name.upper() if name in ("true", "false") else name
        if term.head.startswith("call:"):
            name = term.head.removeprefix("call:")
            inner = ", ".join(self.build(o) for o in term.operands)
            return f"Call(e.dtype, OPS['tir.{name}'], ({inner},))"
        if term.head in ("Ramp", "Broadcast"):
            *values, lanes = term.operands
            return f"{term.head}({', '.join(self.build(v) for v in values)}, {self.arithmetic(lanes)})"
        return f"{self.maker}{term.head}({', '.join(self.build(o) for o in term.operands)})"

    _OPERATORS: ClassVar[dict[str, str]] = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%"}

    def arithmetic(self, term: Term) -> str | None:
        """Return source text of a computation over literals, or None if an expression takes part."""
        if term.head == "number":
            return str(term.leaf)
        if term.head == "name":
            name = str(term.leaf)
            return name if is_literal_name(name) or name in "nm" else None
        parts = [self.arithmetic(o) for o in term.operands]
        if None in parts:
            return None
        if term.head in self._OPERATORS:
            return f"({parts[0]} {self._OPERATORS[term.head]} {parts[1]})"
        return f"{term.head.lower()}({parts[0]}, {parts[1]})" if term.head in ("Min", "Max") else None


def _rule_source(pattern: Term, rule: Rule, maker: str) -> list[str]:
    writer = _RuleWriter(maker)
    writer.match(pattern, "e", known_class=True)
    for test in (rule.guard, rule.condition):
        if test != "True":
            writer.test(test)
    writer.emit(f"return {writer.build(parse(rule.result))}")
    return writer.lines


def _class_name(term: Term) -> str:
    return "Call" if term.head.startswith("call:") else term.head


def compile_rules(
    tables: Sequence[tuple[str, Sequence[Rule]]], scope: dict[str, Any], maker: str = ""
) -> dict[type, Callable[..., Any]]:
    """Compile tables, each with a guard (Python over ``e``), to functions by node class.

    Each function, of (e, lower, upper, fits_block), tries the rules of its class in order and returns the first result,
    or None. A result's ``Add`` is made by ``scope[maker + "Add"]``, and so on; by the class if there is no ``maker``.
    """
    by_class: dict[str, dict[str, list[list[str]]]] = {}
    for guard, rules in tables:
        for rule in rules:
            seen: set[str] = set()
            pattern = parse(rule.pattern)
            for variant in [pattern] if rule.ordered else variants(pattern):
                source = _rule_source(variant, rule, maker)
                if (text := "\n".join(source)) not in seen:
                    seen.add(text)
                    by_class.setdefault(_class_name(variant), {}).setdefault(guard, []).append(source)
    scope = {**{name: getattr(p, name) for name in dir(p) if name[0].isupper()}, **scope}
    functions: dict[type, Callable[..., Any]] = {}
    for name, groups in by_class.items():
        lines = ["def match(e, lower, upper, fits_block):"]
        for guard, sources in groups.items():
            lines.append(f"    if {guard}:")
            lines += ["    " + line for source in sources for line in source]
        lines.append("    return None")
        namespace = dict(scope)
        exec("\n".join(lines), namespace)
        functions[getattr(p, name)] = namespace["match"]
    return functions
