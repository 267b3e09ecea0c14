"""Modular sets: ``e = coeff * k + base`` for some integer k; ``coeff`` 0 means that ``e`` is the constant ``base``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tilewright.arith.affine import Terms, affine
from tilewright.arith.bounds import INDEX_DTYPES
from tilewright.arith.context import Context
from tilewright.ir.prim_expr import (
    Add,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    PrimExpr,
    Select,
    SizeVar,
    Sub,
    Var,
)  # fmt: skip
from tilewright.ir.prim_functor import DEPTH_STEP, ensure_room

Pair = tuple[int, int]
_ANY: Pair = (1, 0)


class ModularSet(NamedTuple):
    """All integers ``coeff * k + base``."""

    coeff: int
    base: int


def _make(coeff: int, base: int) -> Pair:
    return (coeff, base % coeff) if coeff else (0, base)


def _union(a: Pair, b: Pair) -> Pair:
    coeff = math.gcd(a[0], b[0], a[1] - b[1])
    return _make(coeff, a[1])


class ModularAnalyzer:
    """Works out modular sets from the context."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.depth = 0

    def modular(self, e: PrimExpr) -> Pair:
        """(coeff, base) of ``e``."""
        memo = self.context.modular_memo
        known = memo.get(e)
        if known is None:
            handler = _HANDLERS.get(type(e))
            if handler is None or e.dtype not in INDEX_DTYPES:
                known = _ANY
            else:
                self.depth += 1
                if not self.depth % DEPTH_STEP:
                    ensure_room()
                known = handler(self, e)
                self.depth -= 1
            memo[e] = known
        return known

    def of_affine(self, terms: Terms, const: int) -> Pair:
        """(coeff, base) of ``sum(terms) + const``."""
        coeff, base = 0, const
        for atom, scale in terms.items():
            c, b = self.modular(atom)
            coeff = math.gcd(coeff, c * scale)
            base += b * scale
        return _make(coeff, base)

    def _sum(self, e: PrimExpr) -> Pair:
        terms, const = affine(e, self.context.affine_memo)
        if e in terms:
            (c1, b1), (c2, b2) = self.modular(e.a), self.modular(e.b)  # type: ignore[attr-defined]
            return _make(math.gcd(c1 * c2, c1 * b2, c2 * b1), b1 * b2)
        return self.of_affine(terms, const)

    def _literal(self, e: IntImm) -> Pair:
        return 0, e.value

    def _var(self, e: Var) -> Pair:
        return self.context.var_modular.get(e, _ANY)

    def _floordiv(self, e: Any) -> Pair:
        if type(e.b) is IntImm and e.b.value > 0:
            coeff, base = self.modular(e.a)
            if coeff % e.b.value == 0:
                return _make(coeff // e.b.value, base // e.b.value)
        return _ANY

    def _floormod(self, e: Any) -> Pair:
        if type(e.b) is IntImm and e.b.value > 0:
            coeff, base = self.modular(e.a)
            gcd = math.gcd(coeff, e.b.value)
            return (0, base % e.b.value) if gcd == e.b.value else _make(gcd, base)
        return _ANY

    def _choice(self, e: Any) -> Pair:
        return _union(self.modular(e.a), self.modular(e.b))

    def _select(self, e: Select) -> Pair:
        return _union(self.modular(e.true_value), self.modular(e.false_value))

    def _cast(self, e: Cast) -> Pair:
        return self.modular(e.value)

    def _let(self, e: Let) -> Pair:
        self.context.var_modular.setdefault(e.var, self.modular(e.value))
        return self.modular(e.body)


_HANDLERS: dict[type, Callable[[ModularAnalyzer, Any], Pair]] = {
    IntImm: ModularAnalyzer._literal, Var: ModularAnalyzer._var, SizeVar: ModularAnalyzer._var,
    Add: ModularAnalyzer._sum, Sub: ModularAnalyzer._sum, Mul: ModularAnalyzer._sum,
    FloorDiv: ModularAnalyzer._floordiv, FloorMod: ModularAnalyzer._floormod, Min: ModularAnalyzer._choice,
    Max: ModularAnalyzer._choice, Select: ModularAnalyzer._select, Cast: ModularAnalyzer._cast,
    Let: ModularAnalyzer._let,
}  # fmt: skip
