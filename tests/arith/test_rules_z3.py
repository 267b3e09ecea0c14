"""Every line of the simplifier's tables is proved with z3 over unbounded integers.

Index arithmetic of int32 and int64 is taken not to overflow, as in TVM, so integers without bounds are the right model.
Operations on vectors are proved for an arbitrary lane. A few rules with products of unknowns are beyond z3's decision
procedures; for those the literals, and the divisor, take every value of a small range while the rest stays unbounded.
"""

from __future__ import annotations

import ast
import itertools

import pytest
import z3

from tilewright.arith.pattern import Rule, Term, is_literal_name, parse, variants
from tilewright.arith.rewriting import FORMS, FORMS_AGAIN
from tilewright.arith.rules import TABLES

LITERALS = range(-4, 5)
DIVISORS = [-3, -2, -1, 1, 2, 3, 5]


def floordiv(a, b):
    return z3.If(b > 0, a / b, (-a) / (-b))  # z3 divides like Euclid: rounds down for a positive divisor


def truncdiv(a, b):
    magnitude = z3.If(a >= 0, a, -a) / z3.If(b >= 0, b, -b)
    return z3.If((a >= 0) == (b >= 0), magnitude, -magnitude)


BINARY = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "FloorDiv": floordiv,
    "FloorMod": lambda a, b: a - b * floordiv(a, b), "Div": truncdiv, "Mod": lambda a, b: a - b * truncdiv(a, b),
    "Min": lambda a, b: z3.If(a <= b, a, b), "Max": lambda a, b: z3.If(a >= b, a, b), "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b, "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b, "And": z3.And, "Or": z3.Or,
}  # fmt: skip


class Meaning:
    """The meaning of patterns and conditions, in lane ``i`` where they are vectors."""

    def __init__(self, fixed: dict[str, int]) -> None:
        self.fixed = fixed
        self.lane = z3.Int("i")
        self.facts = [self.lane >= 0, self.lane < self.name("n")]

    def name(self, name: str):
        if name in self.fixed:
            return z3.IntVal(self.fixed[name])
        if name in ("true", "false"):
            return z3.BoolVal(name == "true")
        return z3.Bool(name) if name in "pqr" else z3.Int(name)

    def term(self, t: Term):
        if t.head == "number":
            return z3.IntVal(t.leaf)
        if t.head == "name":
            return self.name(str(t.leaf))
        if t.head == "Ramp":
            return self.term(t.operands[0]) + self.term(t.operands[1]) * self.lane
        if t.head in ("Broadcast", "call:likely"):
            return self.term(t.operands[0])
        parts = [self.term(o) for o in t.operands]
        if t.head == "Not":
            return z3.Not(parts[0])
        if t.head in ("Select", "call:if_then_else"):
            return z3.If(*parts)
        if t.head in ("FloorDiv", "FloorMod", "Div", "Mod"):
            self.facts.append(parts[1] != 0)
        return BINARY[t.head](*parts)

    def condition(self, text: str):
        return self._node(ast.parse(text, mode="eval").body)

    def _node(self, node: ast.expr):
        match node:
            case ast.Constant(value=bool(value)):
                return z3.BoolVal(value)
            case ast.Constant(value=int(value)):
                return z3.IntVal(value)
            case ast.Name(id=name):
                return self.name(name)
            case ast.BoolOp(op=op, values=values):
                return (z3.And if isinstance(op, ast.And) else z3.Or)(*[self._node(v) for v in values])
            case ast.BinOp(left=left, op=op, right=right):
                name = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.FloorDiv: "FloorDiv", ast.Mod: "FloorMod"}
                return BINARY[name[type(op)]](self._node(left), self._node(right))
            case ast.Compare(left=left, ops=operators, comparators=rights):
                items = [self._node(x) for x in (left, *rights)]
                return z3.And(*[self._compare(o, a, b) for o, a, b in zip(operators, items, items[1:], strict=False)])
            case ast.Call(func=ast.Name(id="lower"), args=[x]):
                bound = z3.Int(f"lower_{ast.unparse(x)}")
                self.facts.append(bound <= self._node(x))
                return bound
            case ast.Call(func=ast.Name(id="upper"), args=[x]):
                bound = z3.Int(f"upper_{ast.unparse(x)}")
                self.facts.append(bound >= self._node(x))
                return bound
            case ast.Call(func=ast.Name(id="fits_block"), args=args):
                x, block, span = [self._node(a) for a in args]
                grain, times, step = z3.Ints("grain times step")  # x is step*grain + rest, block a multiple of grain
                rest = z3.Int("rest")
                self.facts += [grain > 0, block == grain * times, x == step * grain + rest, rest >= 0]
                return rest + span < grain
        raise AssertionError(ast.unparse(node))

    @staticmethod
    def _compare(operator: ast.cmpop, a, b):
        match operator:
            case ast.Lt():
                return a < b
            case ast.LtE():
                return a <= b
            case ast.Gt():
                return a > b
            case ast.GtE():
                return a >= b
            case ast.Eq():
                return a == b
            case ast.NotEq():
                return a != b
        raise AssertionError(operator)


def names(t: Term) -> set[str]:
    return {str(t.leaf)} if t.head == "name" else set().union(*[names(o) for o in t.operands]) if t.operands else set()


def divisors(t: Term) -> set[str]:
    """Names that divide, or are divided and multiplied by the same."""
    found = set().union(*[divisors(o) for o in t.operands]) if t.operands else set()
    return found | (names(t.operands[1]) if t.head in ("FloorDiv", "FloorMod", "Div", "Mod") else set())


def refute(rule: Rule, fixed: dict[str, int], milliseconds: int) -> z3.CheckSatResult:
    meaning = Meaning(fixed)
    solver = z3.Solver()
    solver.set("timeout", milliseconds)
    condition = meaning.condition(rule.condition)
    left = meaning.term(parse(rule.pattern))
    solver.add(
        condition, *meaning.facts
    )  # what the pattern divides by is not zero; the result's divisors have to follow
    solver.add(left != meaning.term(parse(rule.result)))
    return solver.check()


RULES = [(table, rule) for table, (_, rules) in {**TABLES, **FORMS, **FORMS_AGAIN}.items() for rule in rules]


@pytest.mark.parametrize(("table", "rule"), RULES, ids=[f"{t}: {r.pattern} -> {r.result}" for t, r in RULES])
def test_rule_is_proved(table: str, rule: Rule) -> None:
    outcome = refute(rule, {}, 300)
    assert outcome != z3.sat, f"{rule} does not hold"
    if outcome == z3.unsat:
        return
    pattern = parse(rule.pattern)
    unknowns = sorted({n for n in names(pattern) if is_literal_name(n) or n == "n"} | divisors(pattern))
    literals = LITERALS if len(unknowns) < 3 else LITERALS[2:-2]
    for values in itertools.product(*[DIVISORS if n in divisors(pattern) else literals for n in unknowns]):
        fixed = dict(zip(unknowns, values, strict=True))
        if fixed.get("n", 1) <= 0:
            continue
        assert refute(rule, fixed, 5000) == z3.unsat, f"{rule} with {fixed}"


def test_a_wrong_rule_is_refuted() -> None:
    assert refute(Rule("(x + y) // c1", "x // c1 + y // c1", "c1 > 0"), {}, 2000) == z3.sat


def test_commutative_operands_match_in_either_order() -> None:
    assert len(set(variants(parse("min(x, max(x, y))")))) == 4
