"""Modular sets: ``e = coeff * k + base`` for some integer k; ``coeff`` 0 means that ``e`` is the constant ``base``."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tilewright.arith.affine import Terms, affine
from tilewright.arith.bounds import INDEX_DTYPES
from tilewright.arith.context import Context
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import (
    Call,
    Cast,
    IntImm,
    Let,
    PrimExpr,
    Select,
    Var,
)  # fmt: skip
from tilewright.ir.prim_functor import DEPTH_STEP, ExprFunctor, ensure_stack

Pair = tuple[int, int]
_ANY: Pair = (1, 0)


class ModularSet(NamedTuple):
    """All integers ``coeff * k + base``."""

    coeff: int
    base: int


def _make(coeff: int, base: int) -> Pair:
    return (coeff, base % coeff) if coeff else (0, base)


def intersect(a: Pair, b: Pair) -> Pair:
    """Return the intersection; ``a`` when it is empty, which happens only in unreachable code."""
    if a[0] == 0 or b == _ANY:
        return a
    if b[0] == 0:
        return b
    gcd = math.gcd(a[0], b[0])
    if (a[1] - b[1]) % gcd:
        return a
    # a[1] + a[0] * k = b[1] modulo b[0]
    k = (b[1] - a[1]) // gcd * pow(a[0] // gcd, -1, b[0] // gcd)
    return _make(a[0] // gcd * b[0], a[1] + a[0] * k)


def _union(a: Pair, b: Pair) -> Pair:
    coeff = math.gcd(a[0], b[0], a[1] - b[1])
    return _make(coeff, a[1])


class ModularAnalyzer(ExprFunctor[Pair]):
    """Works out modular sets from the context."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    def visit_expr(self, expr: PrimExpr) -> Pair:
        """Return (coeff, base) of ``expr``."""
        memo = self.context.modular_memo
        known = memo.get(expr)
        if known is None:
            known = _ANY
            if expr.dtype in INDEX_DTYPES:
                method = self._methods.get(type(expr)) or self._resolve(type(expr))
                self._depth += 1
                if not self._depth % DEPTH_STEP:
                    ensure_stack()
                known = method(self, expr)
                self._depth -= 1
            memo[expr] = known
        return known

    modular = visit_expr

    def visit_prim(self, e: PrimExpr) -> Pair:
        """Any number."""
        return _ANY

    def of_affine(self, terms: Terms, const: int) -> Pair:
        """Return (coeff, base) of ``sum(terms) + const``."""
        coeff, base = 0, const
        for atom, scale in terms.items():
            c, b = self.modular(atom)
            coeff = math.gcd(coeff, c * scale)
            base += b * scale
        return _make(coeff, base)

    def visit_add(self, e: PrimExpr) -> Pair:
        """Sums and products, as affine forms."""
        terms, const = affine(e, self.context.affine_memo)
        if e in terms:
            (c1, b1), (c2, b2) = self.modular(e.a), self.modular(e.b)  # type: ignore[attr-defined]
            return _make(math.gcd(c1 * c2, c1 * b2, c2 * b1), b1 * b2)
        return self.of_affine(terms, const)

    visit_sub = visit_add
    visit_mul = visit_add

    def visit_int_imm(self, e: IntImm) -> Pair:
        """The number itself."""
        return 0, e.value

    def visit_var(self, e: Var) -> Pair:
        """Return the modular set of a variable from the context."""
        return self.context.var_modular.get(e, _ANY)

    def visit_floor_div(self, e: Any) -> Pair:
        """Division that rounds down."""
        if type(e.b) is IntImm and e.b.value > 0:
            coeff, base = self.modular(e.a)
            if coeff % e.b.value == 0:
                return _make(coeff // e.b.value, base // e.b.value)
        return _ANY

    def visit_call(self, e: Call) -> Pair:
        """A shift to the right by a number divides, and rounds down."""
        if isinstance(e.op, Op) and e.op.name == "tir.shift_right" and type(e.args[1]) is IntImm:
            coeff, base = self.modular(e.args[0])
            by = e.args[1].value
            if 0 <= by < 64 and coeff % (1 << by) == 0:
                return _make(coeff >> by, base >> by)
        return _ANY

    def visit_floor_mod(self, e: Any) -> Pair:
        """Its remainder."""
        if type(e.b) is IntImm and e.b.value > 0:
            coeff, base = self.modular(e.a)
            gcd = math.gcd(coeff, e.b.value)
            return (0, base % e.b.value) if gcd == e.b.value else _make(gcd, base)
        return _ANY

    def visit_min(self, e: Any) -> Pair:
        """The smaller one."""
        return _union(self.modular(e.a), self.modular(e.b))

    visit_max = visit_min

    def visit_select(self, e: Select) -> Pair:
        """Either value."""
        return _union(self.modular(e.true_value), self.modular(e.false_value))

    def visit_cast(self, e: Cast) -> Pair:
        """Return the operand's modular set, if it fits."""
        return self.modular(e.value)

    def visit_let(self, e: Let) -> Pair:
        """Bind the value, and return the modular set of the body."""
        self.context.var_modular.setdefault(e.var, self.modular(e.value))
        return self.modular(e.body)
