"""The simplifier: affine normal forms of index arithmetic, then the rule tables of ``arith/rules``.

Index arithmetic is that of int32 and int64 scalars, and is taken not to overflow. Floating-point arithmetic keeps its
order; only constants fold. Every result is memoised for the facts in force (``Context``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith.affine import (
    Affine,
    Terms,
    add_affine,
    affine,
    build,
    cancel_products,
    flatten,
    join_named,
    join_splits,
    merge,
    remainders,
)
from tilewright.arith.bounds import INDEX_DTYPES, NEG_INF, POS_INF, BoundAnalyzer, dtype_bound
from tilewright.arith.context import Context
from tilewright.arith.division import Divider
from tilewright.arith.modular import ModularAnalyzer
from tilewright.arith.rules import RuleEngine
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
    Call,
    Cast,
    ConstExpr,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    LiteralRangeError,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    PrimExpr,
    Select,
    Sub,
    Var,
)  # fmt: skip
from tilewright.ir.prim_functor import ExprMutator

TRUE, FALSE = IntImm("bool", 1), IntImm("bool", 0)

_FOLD: dict[type, Callable[[Any, Any], PrimExpr]] = {
    Add: ops.add, Sub: ops.sub, Mul: ops.mul, Min: ops.minimum, Max: ops.maximum, EQ: ops.equal, NE: ops.not_equal,
    LT: ops.less, LE: ops.less_equal, GT: ops.greater, GE: ops.greater_equal, FloorDiv: ops.floordiv,
    FloorMod: ops.floormod, Div: ops.truncdiv, Mod: ops.truncmod,
}  # fmt: skip


class Simplifier(ExprMutator):
    """Rewrites an expression to its simplest equal form under the facts of the context."""

    def __init__(self, context: Context, bounds: BoundAnalyzer, modular: ModularAnalyzer) -> None:
        super().__init__()
        self.context = context
        self.bounds = bounds
        self.modular = modular
        self.divider = Divider(context, bounds, modular)
        self.rules = RuleEngine(self)

    def simplify(self, e: PrimExpr) -> PrimExpr:
        """Return the simplest form found; ``e`` itself when a literal of that form does not fit the dtype."""
        self.memo = self.context.simplify_memo
        depth = self._depth
        try:
            result = self.visit_expr(e)
        except LiteralRangeError:  # the arithmetic overflows, so its algebra does not hold
            self._depth = depth
            result = self.memo[e] = e
        self.memo[result] = result
        return result

    def lower(self, e: PrimExpr) -> int:
        """A constant that ``e`` is never below."""
        return self.bounds.bound(e)[0]

    def upper(self, e: PrimExpr) -> int:
        """A constant that ``e`` is never above."""
        return self.bounds.bound(e)[1]

    def _finish(self, e: PrimExpr) -> PrimExpr:
        """Apply the rule tables to a node whose operands are simple, and look the result up among known conditions."""
        better = self.rules.apply(e)
        if better is not None:
            return self.visit_expr(better)
        if self.context.literals:
            known = self.context.literals.get(e)
            if known is not None:
                return TRUE if known else FALSE
        return e

    def visit_var(self, e: Var) -> PrimExpr:
        """A variable whose value is known becomes that value."""
        value = self.context.var_values.get(e)
        if value is not None:
            return value
        if e.dtype in INDEX_DTYPES:
            low, high = self.bounds.bound(e)
            if low == high:
                return IntImm(e.dtype, low)
        elif self.context.literals:
            known = self.context.literals.get(e)
            if known is not None:
                return TRUE if known else FALSE
        return e

    def visit_binary(self, e: Any) -> PrimExpr:
        """Comparisons and arithmetic that are not index arithmetic: fold constants, then rules."""
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if (isinstance(a, ConstExpr) or isinstance(b, ConstExpr)) and not _may_fault(e, b):
            folded = fold(e, a, b)
            if type(folded) is not type(e):
                return self.visit_expr(folded) if folded is not a and folded is not b else folded
            e = folded
        elif a is not e.a or b is not e.b:
            e = type(e)(a, b)
        return self._finish(e)

    def _index_affine(self, e: PrimExpr) -> Affine:
        """The affine form of the simplified ``e``."""
        simple = self.visit_expr(e)
        return affine(simple, self.context.affine_memo)

    def _build(self, terms: Terms, const: int, dtype: str) -> PrimExpr:
        result = build(terms, const, dtype)
        self.context.affine_memo.setdefault(result, (terms, const))
        return result

    def visit_add(self, e: Any) -> PrimExpr:
        """A sum: flatten, simplify the atoms, merge, and join quotients with their remainders."""
        if e.dtype not in INDEX_DTYPES:
            return self.visit_binary(e)
        atoms, const = flatten(e, self.context.affine_memo)
        simple: list[tuple[PrimExpr, int]] = []
        for atom, coef in atoms:
            new = self.visit_expr(atom) if type(atom) is not Mul else self._product(atom)
            if new is atom:
                simple.append((atom, coef))
            else:
                terms, extra = affine(new, self.context.affine_memo)
                simple += [(a, c * coef) for a, c in terms.items()]
                const += extra * coef
        terms = merge(simple)
        if len(terms) > 1:
            terms, extra = join_splits(terms, self.context.affine_memo)
            terms, more = join_named(terms, self.context.affine_memo)
            terms, const = cancel_products(terms, const + extra + more, e.dtype, self.context.affine_memo)
            terms, const = remainders(terms, const, self.context.affine_memo)
            if any([type(t) is Cast for t in terms]):
                terms, const = self._cancel_casts(terms, const, e.dtype)
        result = self._build(terms, const, e.dtype)
        if len(terms) == 2:  # the tables speak of sums of two
            better = self.rules.apply(result if const == 0 else self._build(terms, 0, e.dtype))
            if better is not None:
                return self.visit_expr(better if const == 0 else Add(better, IntImm(e.dtype, const)))
        return result

    visit_sub = visit_add

    def _cancel_casts(self, terms: Terms, const: int, dtype: str) -> Affine:
        """Convert the terms of sums one by one if some cancel then: ``int64(i + 1) - int64(i)`` is 1."""
        expanded: Terms = {}
        total = const
        for atom, coef in terms.items():
            inner = self._cast_terms(atom, dtype)
            add_affine(expanded, {atom: 1} if inner is None else inner[0], coef)
            total += 0 if inner is None else inner[1] * coef
        return (expanded, total) if len(expanded) < len(terms) else (terms, const)

    def _cast_terms(self, atom: PrimExpr, dtype: str) -> Affine | None:
        """Return the conversion of a sum as a sum of conversions; None if a part may not fit."""
        if type(atom) is not Cast or atom.value.dtype not in INDEX_DTYPES:
            return None
        inner, const = affine(atom.value, self.context.affine_memo)
        low, high = dtype_bound(dtype)
        parts = [self.bounds.of_affine({t: c}, 0) for t, c in inner.items()]
        parts += [self.bounds.bound(t) for t in inner]
        parts.append(self.bounds.bound(atom.value))
        if atom.value.dtype != "int32" and any([a < low or b > high for a, b in parts]):
            return None
        return {Cast(dtype, t): c for t, c in inner.items()}, const

    def visit_mul(self, e: Any) -> PrimExpr:
        """A product: by a literal it is affine."""
        if e.dtype not in INDEX_DTYPES:
            return self.visit_binary(e)
        if type(e.a) is IntImm or type(e.b) is IntImm:
            return self.visit_add(e)
        return self._product(e)

    def _product(self, e: Any) -> PrimExpr:
        """A product of two expressions; literal factors move out."""
        known = self.memo.get(e)
        if known is not None:
            return known
        (a_terms, a_const), (b_terms, b_const) = self._index_affine(e.a), self._index_affine(e.b)
        if not a_terms or not b_terms:
            factor, terms, const = (a_const, b_terms, b_const) if not a_terms else (b_const, a_terms, a_const)
            scaled: Terms = {}
            if factor:
                add_affine(scaled, terms, factor)
            return self._build(scaled, const * factor, e.dtype)
        a, a_factor = self._take_factor(a_terms, a_const, e.dtype)
        b, b_factor = self._take_factor(b_terms, b_const, e.dtype)
        result = self.memo[e] = self._build({self._finish(Mul(a, b)): 1}, 0, e.dtype)
        if a_factor * b_factor != 1:
            terms, const = affine(result, self.context.affine_memo)
            result = self._build({t: c * a_factor * b_factor for t, c in terms.items()}, const, e.dtype)
        self.memo[e] = result
        return result

    def _take_factor(self, terms: Terms, const: int, dtype: str) -> tuple[PrimExpr, int]:
        if len(terms) == 1 and const == 0:
            ((atom, coef),) = terms.items()
            return atom, coef
        return self._build(terms, const, dtype), 1

    def visit_floor_div(self, e: Any) -> PrimExpr:
        """Division rounding down; by a literal through ``Divider``."""
        if e.dtype not in INDEX_DTYPES:
            return self.visit_binary(e)
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if type(b) is not IntImm:
            return self._finish_symbolic(e, a, b)
        terms, const = affine(a, self.context.affine_memo)
        divisor = b.value
        if divisor == 0:
            return FloorDiv(a, b)
        if divisor < 0:
            terms, const, divisor = {t: -c for t, c in terms.items()}, -const, -divisor
        return self._finished(e, *self.divider.floordiv(terms, const, divisor, e.dtype))

    def visit_floor_mod(self, e: Any) -> PrimExpr:
        """Remainder of ``floordiv``."""
        if e.dtype not in INDEX_DTYPES:
            return self.visit_binary(e)
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if type(b) is not IntImm:
            return self._finish_symbolic(e, a, b)
        terms, const = affine(a, self.context.affine_memo)
        if b.value <= 0:
            return self._finish(FloorMod(a, b)) if b.value else FloorMod(a, b)
        return self._finished(e, *self.divider.floormod(terms, const, b.value, e.dtype))

    def _finished(self, e: PrimExpr, terms: Terms, const: int) -> PrimExpr:
        if len(terms) > 1:
            terms, extra = join_splits(terms, self.context.affine_memo)
            const += extra
        return self._build(terms, const, e.dtype)

    def _finish_symbolic(self, e: PrimExpr, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        if type(a) is IntImm and a.value == 0:
            return a
        if a is b:
            return IntImm(e.dtype, 0 if isinstance(e, (FloorMod, Mod)) else 1)
        b_low = self.lower(b)
        a_low, a_high = self.bounds.bound(a)
        if b_low > 0 and a_low >= 0 and a_high < b_low:
            return a if isinstance(e, (FloorMod, Mod)) else IntImm(e.dtype, 0)
        return self._finish(e if a is e.a and b is e.b else type(e)(a, b))  # type: ignore[attr-defined, call-arg]

    def visit_div(self, e: Any) -> PrimExpr:
        """Truncating division: of non-negative numbers it is ``floordiv``."""
        return self._truncated(e, FloorDiv)

    def visit_mod(self, e: Any) -> PrimExpr:
        """Remainder of truncating division: of non-negative numbers it is ``floormod``."""
        return self._truncated(e, FloorMod)

    def _truncated(self, e: Any, floor_class: type[PrimExpr]) -> PrimExpr:
        if e.dtype not in INDEX_DTYPES:
            return self.visit_binary(e)
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if ops.is_const_int(b, 0):
            return e if a is e.a and b is e.b else type(e)(a, b)
        if self.lower(a) >= 0 and self.lower(b) > 0:
            return self.visit_expr(floor_class(a, b))  # type: ignore[call-arg]
        if type(a) is IntImm and type(b) is IntImm:
            return fold(e, a, b)
        if type(b) is IntImm:
            terms, const = affine(a, self.context.affine_memo)
            if not const % b.value and all([c % b.value == 0 for c in terms.values()]):  # there is no remainder
                exact = {t: c // b.value for t, c in terms.items()} if floor_class is FloorDiv else {}
                return self._build(exact, const // b.value if exact else 0, e.dtype)
        return self._finish_symbolic(e, a, b)

    def _extreme(self, e: Any, fold: Callable[[Any, Any], PrimExpr], sign: int) -> PrimExpr:
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if a is b:
            return a
        if e.dtype in INDEX_DTYPES:
            low, high = self._difference_bound(a, b)
            if high * sign <= 0 and low * sign <= 0:
                return a
            if high * sign >= 0 and low * sign >= 0:
                return b
        folded = fold(a, b)
        return self._finish(folded) if type(folded) is type(e) else folded

    def visit_min(self, e: Any) -> PrimExpr:
        """min: decided by bounds of the difference, or by rules."""
        return self._extreme(e, ops.minimum, 1)

    def visit_max(self, e: Any) -> PrimExpr:
        """max: decided by bounds of the difference, or by rules."""
        return self._extreme(e, ops.maximum, -1)

    def difference(self, a: PrimExpr, b: PrimExpr) -> Affine:
        """The affine form of a - b."""
        a_terms, a_const = affine(a, self.context.affine_memo)
        b_terms, b_const = affine(b, self.context.affine_memo)
        terms = dict(a_terms)
        add_affine(terms, b_terms, -1)
        if len(terms) > 1:
            return cancel_products(terms, a_const - b_const, a.dtype, self.context.affine_memo)
        return terms, a_const - b_const

    def _difference_bound(self, a: PrimExpr, b: PrimExpr) -> tuple[int, int]:
        return self.bounds.of_affine(*self.difference(a, b))

    def visit_lt(self, e: Any) -> PrimExpr:
        """a < b"""
        return self._compare(LT, e.a, e.b)

    def visit_gt(self, e: Any) -> PrimExpr:
        """a > b, as b < a"""
        return self._compare(LT, e.b, e.a)

    def visit_le(self, e: Any) -> PrimExpr:
        """a <= b"""
        return self._compare(LE, e.a, e.b)

    def visit_ge(self, e: Any) -> PrimExpr:
        """a >= b, as b <= a"""
        return self._compare(LE, e.b, e.a)

    def visit_eq(self, e: Any) -> PrimExpr:
        """a == b"""
        return self._compare(EQ, e.a, e.b)

    def visit_ne(self, e: Any) -> PrimExpr:
        """a != b"""
        return self._compare(NE, e.a, e.b)

    def _compare(self, cls: Any, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        a, b = self.visit_expr(a), self.visit_expr(b)
        if a.dtype not in INDEX_DTYPES:
            folded = _FOLD[cls](a, b)
            return self._finish(folded) if type(folded) is cls else folded
        terms, const = self.difference(a, b)
        known = self._decide(cls, terms, const)
        if known is not None:
            return known
        left, right = affine(a, self.context.affine_memo), affine(b, self.context.affine_memo)
        kept = len(terms) == len(left[0]) + len(right[0]) and not (left[1] and right[1])
        new_terms, new_const = self._smaller(cls, terms, const)
        if kept and new_terms is terms and not (left[1] and not right[0]):
            return self._finish(cls(a, b))
        positive = {t: c for t, c in new_terms.items() if c > 0}
        negative = {t: -c for t, c in new_terms.items() if c < 0}
        move = new_const > 0 and bool(positive) and bool(negative)
        dtype = a.dtype
        new_a = self._build(positive, new_const if move else 0, dtype)
        new_b = self._build(negative, 0 if move else -new_const, dtype)
        if not positive and negative:
            new_a, new_b = IntImm(dtype, new_const), self._build(negative, 0, dtype)
        return self._finish(cls(new_a, new_b))

    def _decide(self, cls: Any, terms: Terms, const: int) -> PrimExpr | None:
        """Decide ``terms + const cls 0`` by bounds or divisibility; return None if they do not tell."""
        low, high = self.bounds.of_affine(terms, const)
        if cls is LT or cls is LE:
            limit = 0 if cls is LT else 1
            if high < limit:
                return TRUE
            return FALSE if low >= limit else None
        equal: bool | None = None
        if low == high == 0:
            equal = True
        elif low > 0 or high < 0:
            equal = False
        else:
            coeff, base = self.modular.of_affine(terms, const)
            if base if coeff == 0 else base % coeff:
                equal = False
        if equal is None:
            return None
        return TRUE if equal == (cls is EQ) else FALSE

    def _smaller(self, cls: Any, terms: Terms, const: int) -> Affine:
        """Divide ``terms + const cls 0`` by a common factor, dropping a remainder that cannot matter."""
        for g in sorted({abs(c) for c in terms.values()}, reverse=True):
            if g == 1:
                break
            small = {t: c for t, c in terms.items() if c % g}
            if cls is EQ or cls is NE:
                if small or const % g:
                    continue
                return {t: c // g for t, c in terms.items()}, const // g
            # big*g + rest < 0  <=>  big + floor(rest / g) < 0; for <=, rest is one less
            offset = const if cls is LT else const - 1
            low, high = self.bounds.of_affine(small, offset)
            if low == NEG_INF or high == POS_INF or low // g != high // g:
                continue
            shift = low // g if cls is LT else low // g + 1
            return {t: c // g for t, c in terms.items() if c % g == 0}, shift
        common = math.gcd(*terms.values())
        if common > 1 and cls is not EQ and cls is not NE:
            shift = const // common if cls is LT else (const - 1) // common + 1
            return {t: c // common for t, c in terms.items()}, shift
        return terms, const

    def visit_logical(self, e: Any) -> PrimExpr:
        """And, Or: each side is simplified knowing the other's truth matters only when it does not decide."""
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        folded = ops.logical_and(a, b) if type(e) is And else ops.logical_or(a, b)
        return self._finish(folded) if type(folded) is type(e) else folded

    def visit_not(self, e: Not) -> PrimExpr:
        """Not."""
        folded = ops.logical_not(self.visit_expr(e.a))
        return self._finish(folded) if type(folded) is Not else folded

    def visit_select(self, e: Select) -> PrimExpr:
        """A known condition picks its value."""
        new = super().visit_select(e)
        if type(new) is not Select:
            return new
        return new.true_value if new.true_value is new.false_value else self._finish(new)

    def visit_cast(self, e: Cast) -> PrimExpr:
        """Constants are converted at once."""
        new = ops.cast(e.dtype, self.visit_expr(e.value))
        return self._finish(new) if type(new) is Cast else new

    def visit_let(self, e: Let) -> PrimExpr:
        """Replace the name by its value if that is a literal or a variable."""
        value = self.visit_expr(e.value)
        if isinstance(value, (ConstExpr, Var)):
            self.context.var_values[e.var] = value
            self.memo.pop(e.var, None)
            return self.visit_expr(e.body)
        if value.dtype in INDEX_DTYPES:
            self.context.var_bounds.setdefault(e.var, self.bounds.bound(value))
        body = self.visit_expr(e.body)
        return e if value is e.value and body is e.body else Let(e.var, value, body)

    def visit_ramp(self, e: Any) -> PrimExpr:
        """A vector of affine values."""
        return self._finish(super().visit_ramp(e))

    def visit_broadcast(self, e: Any) -> PrimExpr:
        """A vector of copies."""
        return self._finish(super().visit_broadcast(e))

    def visit_call(self, e: Call) -> PrimExpr:
        """Remove ``likely`` and ``if_then_else`` with a known condition; fold bit operations on literals."""
        name = e.op.name if isinstance(e.op, Op) else ""
        if name == "tir.likely":
            cond = self.visit_expr(e.args[0])
            return cond if type(cond) is IntImm else e if cond is e.args[0] else Call(e.dtype, e.op, (cond,))
        if name == "tir.if_then_else":
            cond = self.visit_expr(e.args[0])
            if type(cond) is IntImm:
                return self.visit_expr(e.args[1] if cond.value else e.args[2])
        new = super().visit_call(e)
        fold = _CALL_FOLDS.get(name)
        if fold is not None and type(new) is Call:
            folded = fold(*new.args)
            return folded if type(folded) is not Call else self._finish(folded)
        return self._finish(new)


_CALL_FOLDS: dict[str, Callable[..., PrimExpr]] = {
    "tir.shift_left": ops.shift_left, "tir.shift_right": ops.shift_right, "tir.bitwise_and": ops.bitwise_and,
    "tir.bitwise_or": ops.bitwise_or, "tir.bitwise_xor": ops.bitwise_xor, "tir.bitwise_not": ops.bitwise_not,
}  # fmt: skip


def _may_fault(e: PrimExpr, b: PrimExpr) -> bool:
    return isinstance(e, (Div, Mod, FloorDiv, FloorMod)) and ops.is_const_int(b, 0)


def fold(e: PrimExpr, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Return the node ``e`` of the operands ``a`` and ``b``, with literals folded."""
    if type(e) is Div and ops.dt.is_float(e.dtype):
        return ops.div(a, b)
    if isinstance(e, (FloorDiv, FloorMod)) and ops.dt.is_float(e.dtype):
        return type(e)(a, b)
    return _FOLD[type(e)](a, b)
