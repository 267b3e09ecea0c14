"""``rewrite_simplify``: one rule after the other, bottom up, as users of TVM compare the results of.

>>> analyzer.rewrite_simplify(y*x + x)      # x*(y + 1); analyzer.simplify leaves y*x + x
>>> analyzer.rewrite_simplify(x - 10)       # x + -10

The simplifier flattens sums and puts them together again; this one keeps the order in which operands were written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from tilewright.arith.bounds import INDEX_DTYPES
from tilewright.arith.pattern import Rule, compile_rules
from tilewright.arith.rules import TABLES, RuleEngine, forms_choice, forms_division, forms_sums
from tilewright.arith.simplifier import FALSE, TRUE, Simplifier, fold
from tilewright.ir import prim_ops as ops
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    LiteralRangeError,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Select,
)  # fmt: skip

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer

_INDEX = "e.dtype == 'int32' or e.dtype == 'int64'"
_COMPARED = "e.a.dtype == 'int32' or e.a.dtype == 'int64'"
_DEEPEST = 5  # rewrites of rewrites: two rows of AGAIN may turn max + min round and round
_ROUNDS = 2
_DIVISIONS = (Div, Mod, FloorDiv, FloorMod)


def _rules(rows: list[tuple[str, ...]]) -> list[Rule]:
    return [Rule(*row, ordered=True) for row in rows]


def _comparisons(rows: list[tuple[str, ...]], compared: bool) -> list[tuple[str, ...]]:
    return [row for row in rows if ("<" in row[0] or "==" in row[0]) == compared]


FORMS: dict[str, tuple[str, list[Rule]]] = {
    "forms of vectors": ("True", _rules(forms_choice.VECTORS)),
    "vector": TABLES["vector"],
    "vector index division": TABLES["vector index division"],
    "forms of sums": (_INDEX, _rules(forms_sums.SUMS + forms_sums.DIFFERENCES + forms_sums.PRODUCTS)),
    "forms of quotients": (_INDEX, _rules(forms_division.QUOTIENTS + forms_division.REMAINDERS)),
    "forms of extremes": (_INDEX, _rules(forms_choice.EXTREME)),
    "forms of comparisons": (_COMPARED, _rules(forms_choice.COMPARISONS)),
    "forms of selections": ("True", _rules(forms_choice.SELECTIONS)),
    "logic": TABLES["logic"],
    "logic of comparisons": TABLES["logic of comparisons"],
}
FORMS_AGAIN: dict[str, tuple[str, list[Rule]]] = {
    "sums again": (_INDEX, _rules(forms_sums.AGAIN + forms_division.AGAIN)),
    "extremes again": (_INDEX, _rules(_comparisons(forms_choice.AGAIN, False))),
    "comparisons again": (_COMPARED, _rules(_comparisons(forms_choice.AGAIN, True))),
}


def _quotient(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return ops.div(a, b) if ops.dt.is_float(a.dtype) else ops.truncdiv(a, b)


_MAKERS: dict[str, Callable[..., PrimExpr]] = {
    "Add": ops.add, "Sub": ops.sub, "Mul": ops.mul, "Div": _quotient, "Mod": ops.truncmod, "FloorDiv": ops.floordiv,
    "FloorMod": ops.floormod, "Min": ops.minimum, "Max": ops.maximum, "And": ops.logical_and, "Or": ops.logical_or,
    "Not": ops.logical_not, "LT": ops.less, "LE": ops.less_equal, "EQ": ops.equal, "NE": ops.not_equal,
    "Select": Select,
}  # fmt: skip


@cache
def _matchers(again: bool) -> dict[type, Any]:
    tables = FORMS_AGAIN if again else FORMS
    scope = {"TRUE": TRUE, "FALSE": FALSE, "OPS": Op.registry, **{f"make_{n}": f for n, f in _MAKERS.items()}}
    return compile_rules(list(tables.values()), scope, "make_")


class RewriteSimplifier(Simplifier):
    """Rewrites bottom up by the tables of forms, under the facts of an analyzer."""

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__(analyzer.context, analyzer.bounds, analyzer.modular)
        self.analyzer = analyzer
        self.rules = RuleEngine(self, _matchers(again=False))
        self.again = RuleEngine(self, _matchers(again=True))
        self.rewrites = 0

    def simplify(self, e: PrimExpr) -> PrimExpr:
        """Return the form of ``e`` after at most two rounds; ``e`` if a literal of that form does not fit the dtype."""
        depth = self._depth
        try:
            for _ in range(_ROUNDS):
                self.memo = {}
                before, e = e, self.visit_expr(e)
                if e is before:
                    break
        except LiteralRangeError:  # the arithmetic overflows, so its algebra does not hold
            self._depth = depth
        return e

    def lower(self, e: PrimExpr) -> int:
        """Return a constant that ``e`` is never below."""
        return self.bounds.bound(self.visit_expr(e))[0]

    def upper(self, e: PrimExpr) -> int:
        """Return a constant that ``e`` is never above."""
        return self.bounds.bound(self.visit_expr(e))[1]

    def _finish(self, e: PrimExpr) -> PrimExpr:
        better = self.rules.apply(e)
        if better is not None:
            return better
        better = self.again.apply(e)
        if better is not None and self.rewrites < _DEEPEST:
            self.rewrites += 1
            try:
                return self.visit_expr(better)
            finally:
                self.rewrites -= 1
        known = self.context.literals.get(e)
        return e if known is None else TRUE if known else FALSE

    def visit_binary(self, e: Any) -> PrimExpr:
        """Fold literals, then apply rules."""
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if isinstance(e, _DIVISIONS) and ops.is_const_int(b, 0) and not isinstance(b, Broadcast):
            return type(e)(a, b)
        folded = _folded(e, a, b)
        return self._finish(folded) if type(folded) is type(e) else folded

    visit_add = visit_sub = visit_mul = visit_div = visit_floor_div = visit_binary

    def visit_floor_mod(self, e: Any) -> PrimExpr:
        """Take the remainder; of a number whose rest is known it is that rest."""
        new = self.visit_binary(e)
        if isinstance(new, (Mod, FloorMod)) and new.dtype in INDEX_DTYPES and isinstance(new.b, IntImm):
            coeff, base = self.modular.modular(new.a)
            divisor = new.b.value
            if divisor > 0 and coeff % divisor == 0 and (isinstance(new, FloorMod) or self.lower(new.a) >= 0):
                return IntImm(new.dtype, base % divisor)
        return new

    visit_mod = visit_floor_mod

    def _extreme(self, e: Any, fold: Callable[[Any, Any], PrimExpr], sign: int) -> PrimExpr:
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        folded = fold(a, b)
        if type(folded) is not type(e):
            return folded
        if e.dtype in INDEX_DTYPES:
            (a_low, a_high), (b_low, b_high) = self.bounds.bound(a), self.bounds.bound(b)
            lesser = a if a_high <= b_low else b if b_high <= a_low else None
            if lesser is not None:
                return lesser if isinstance(e, Min) else b if lesser is a else a
        return self._finish(folded)

    def visit_lt(self, e: Any) -> PrimExpr:
        """Compare; the bounds of the difference may decide."""
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        folded = fold(e, a, b)
        if type(folded) is not type(e):
            return folded
        if a.dtype in INDEX_DTYPES:
            known = self._known(type(e), a, b)
            if known is not None:
                return known
        return self._finish(folded)

    visit_eq = visit_lt

    def _known(self, cls: type, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        difference = self.visit_expr(ops.sub(a, b))
        low, high = self.bounds.bound(difference)
        if cls is LT:
            return TRUE if high < 0 else FALSE if low >= 0 else None
        if low == high == 0:
            return TRUE
        coeff, base = self.modular.modular(difference)
        differs = low > 0 or high < 0 or (base % coeff if coeff else base) != 0
        return FALSE if differs else None

    def _negation_of(self, e: Any, cls: type[PrimExpr], a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """Compare integers by the negation of another comparison; numbers that may be NaN as they are."""
        if ops.dt.is_float(a.dtype):
            return self.visit_binary(e)
        return self.visit_expr(Not(cls(a, b)))  # type: ignore[call-arg]

    def visit_le(self, e: LE) -> PrimExpr:
        """Return ``not b < a``."""
        return self._negation_of(e, LT, e.b, e.a)

    def visit_ge(self, e: GE) -> PrimExpr:
        """Return ``not a < b``."""
        return self._negation_of(e, LT, e.a, e.b)

    def visit_gt(self, e: GT) -> PrimExpr:
        """Return ``b < a``."""
        return self.visit_expr(LT(e.b, e.a))

    def visit_ne(self, e: NE) -> PrimExpr:
        """Return ``not a == b``."""
        return self.visit_expr(Not(EQ(e.a, e.b)))

    def visit_not(self, e: Not) -> PrimExpr:
        """Negate; comparisons of integers turn round."""
        a = self.visit_expr(e.a)
        if isinstance(a, (EQ, NE)):
            return (NE if isinstance(a, EQ) else EQ)(a.a, a.b)
        if isinstance(a, (LT, LE)) and not ops.dt.is_float(a.a.dtype):
            return (LE if isinstance(a, LT) else LT)(a.b, a.a)
        if isinstance(a, (And, Or)):
            return self.visit_expr((Or if isinstance(a, And) else And)(Not(a.a), Not(a.b)))
        folded = ops.logical_not(a)
        return self._finish(folded) if type(folded) is Not else folded

    def _chosen(self, condition: PrimExpr, taken: PrimExpr, other: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """Simplify both values, each knowing the condition."""
        condition = self.visit_expr(condition)
        values = []
        for value, holds in ((taken, condition), (other, ops.logical_not(condition))):
            memo, self.memo = self.memo, {}
            try:
                with self.analyzer.constraint_scope(holds):
                    values.append(self.visit_expr(value))
            finally:  # what was found under the condition holds nowhere else
                self.memo = memo
        return condition, values[0], values[1]

    def visit_select(self, e: Select) -> PrimExpr:
        """Choose, if the condition is known."""
        condition, taken, other = self._chosen(e.condition, e.true_value, e.false_value)
        if isinstance(condition, IntImm):
            return taken if condition.value else other
        return self._finish(Select(condition, taken, other))

    def visit_call(self, e: Call) -> PrimExpr:
        """Choose for ``if_then_else``, if the condition is known."""
        if isinstance(e.op, Op) and e.op.name == "tir.if_then_else":
            condition, taken, other = self._chosen(*e.args)
            if isinstance(condition, IntImm):
                return taken if condition.value else other
            return self._finish(Call(e.dtype, e.op, (condition, taken, other)))
        return super().visit_call(e)


def _folded(e: PrimExpr, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Return ``e`` of new operands, with literals folded; zeros beside converted integers too, which are never NaN."""
    if isinstance(e, (Add, Mul)) and ops.dt.is_float(e.dtype):
        for zero, other in ((a, b), (b, a)):
            literal = zero.value if isinstance(zero, Broadcast) else zero
            if isinstance(literal, FloatImm) and literal.value == 0 and _is_converted(other):
                return zero if isinstance(e, Mul) else other
    return fold(e, a, b)


def _is_converted(e: PrimExpr) -> bool:
    if isinstance(e, Broadcast):
        e = e.value
    return isinstance(e, Cast) and ops.dt.is_int(e.value.dtype)
