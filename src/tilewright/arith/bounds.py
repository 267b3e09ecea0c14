"""Constant bounds of integer expressions.

``NEG_INF`` and ``POS_INF`` stand for "no bound". Bounds assume, as all index arithmetic here does, that int32 and
int64 arithmetic does not overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from tilewright.arith.affine import Terms, affine
from tilewright.arith.context import Bound, Context
from tilewright.ir import dtype as dt
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import (
    Broadcast,
    Call,
    Cast,
    DimVar,
    IntImm,
    Let,
    PrimExpr,
    Ramp,
    Select,
    SizeVar,
    Var,
)  # fmt: skip
from tilewright.ir.prim_functor import DEPTH_STEP, ExprFunctor, ensure_stack

POS_INF = 2**63 - 1
NEG_INF = -POS_INF
INDEX_DTYPES = ("int32", "int64")
_ALL: Bound = (NEG_INF, POS_INF)


class ConstIntBound(NamedTuple):
    """``min_value <= e <= max_value``, both inclusive."""

    min_value: int
    max_value: int


ConstIntBound.POS_INF = POS_INF  # type: ignore[attr-defined]  # TVM's names of them
ConstIntBound.NEG_INF = NEG_INF  # type: ignore[attr-defined]


_EXACT = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53}
"""Up to which magnitude a type holds every whole number."""


@cache
def dtype_bound(dtype: str) -> Bound:
    """Return the bound implied by the dtype."""
    info = dt.parse(dtype)
    if info.kind in ("int", "uint") and info.bits < 64:
        return dt.int_range(dt.element(dtype))
    if info.kind == "bool":
        return (0, 1)
    return (0, POS_INF) if info.kind == "uint" else _ALL


def _wrapped(bound: Bound, dtype: str) -> Bound:
    """Return the bound of arithmetic that wraps around: nothing is known once it leaves the type's range."""
    low, high = dtype_bound(dtype)
    return bound if low <= bound[0] and bound[1] <= high else (low, high)


def _clip(value: int) -> int:
    return NEG_INF if value < NEG_INF else POS_INF if value > POS_INF else value


def _union(a: Bound, b: Bound) -> Bound:
    return min(a[0], b[0]), max(a[1], b[1])


def _quotients(a: Bound, b: Bound, divide: Callable[[int, int], int]) -> Bound:
    """Return the bound of quotients; nobody divides by 0."""
    if _is_extent(b):
        return _ALL
    divisors = {d for d in (*b, -1, 1) if d and b[0] <= d <= b[1]}
    corners = [divide(x, d) for x in a for d in divisors]
    return min(corners), max(corners)


def _is_extent(divisor: Bound) -> bool:
    """Return whether a divisor is a number from 0 on, as an extent is that may be empty.

    Its loops then divide by 0, but do not run. What follows of the other numbers, as that a remainder by 0 or 1 is 0,
    would hide from the simplifier how loops are split.
    """
    return divisor[0] == 0


def _floor_divide(a: int, b: int) -> int:
    if abs(a) == POS_INF:
        return a if b > 0 else -a
    return a // b  # by no bound: 0, or -1 where the signs differ


def _truncate_divide(a: int, b: int) -> int:
    if abs(a) == POS_INF:
        return a if b > 0 else -a
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _whole(value: PrimExpr) -> PrimExpr | None:
    """Return the integer that a float is a cast of, if any."""
    made = isinstance(value, Cast) and dt.element(value.dtype) in _EXACT and not dt.is_float(value.value.dtype)
    return value.value if made else None  # type: ignore[attr-defined]


class BoundAnalyzer(ExprFunctor[Bound]):
    """Computes bounds from the context; ``bound(e)`` returns (min, max)."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    def visit_expr(self, expr: PrimExpr) -> Bound:
        """The bound of ``expr``."""
        memo = self.context.bound_memo
        known = memo.get(expr)
        if known is None:
            method = self._methods.get(type(expr)) or self._resolve(type(expr))
            self._depth += 1
            if not self._depth % DEPTH_STEP:
                ensure_stack()
            known = method(self, expr)
            self._depth -= 1
            if expr.dtype not in INDEX_DTYPES:
                known = _wrapped(known, expr.dtype)
            elif self.context.form_bounds:
                known = self._refine(affine(expr, self.context.affine_memo), known)
            memo[expr] = known
        return known

    bound = visit_expr

    def visit_prim(self, e: PrimExpr) -> Bound:
        """Any number of the type."""
        return dtype_bound(e.dtype)

    def _refine(self, form: tuple[Terms, int], bound: Bound) -> Bound:
        terms, const = form
        fact = self.context.form_bounds.get(frozenset(terms.items()))
        if fact is None:
            return bound
        low = fact[0] + const if fact[0] != NEG_INF else NEG_INF
        high = fact[1] + const if fact[1] != POS_INF else POS_INF
        return max(bound[0], low), min(bound[1], high)

    def of_affine(self, terms: Terms, const: int) -> Bound:
        """The bound of ``sum(terms) + const``."""
        low = high = const
        for atom, coef in terms.items():
            atom_low, atom_high = self.bound(atom)
            if coef < 0:
                atom_low, atom_high = atom_high, atom_low
            if low != NEG_INF:
                low = NEG_INF if abs(atom_low) >= POS_INF else low + coef * atom_low
            if high != POS_INF:
                high = POS_INF if abs(atom_high) >= POS_INF else high + coef * atom_high
        bound = (_clip(low), _clip(high))
        return self._refine((terms, const), bound) if self.context.form_bounds else bound

    def visit_add(self, e: PrimExpr) -> Bound:
        """Sums and products, as affine forms."""
        if e.dtype not in INDEX_DTYPES:
            return dtype_bound(e.dtype)
        terms, const = affine(e, self.context.affine_memo)
        if e in terms:
            return self._product(e)
        return self.of_affine(terms, const)

    visit_sub = visit_add
    visit_mul = visit_add

    def _product(self, e: Any) -> Bound:
        (a_low, a_high), (b_low, b_high) = self.bound(e.a), self.bound(e.b)
        corners = [x * y for x in (a_low, a_high) for y in (b_low, b_high)]
        return _clip(min(corners)), _clip(max(corners))

    def visit_int_imm(self, e: IntImm) -> Bound:
        """The number itself."""
        return e.value, e.value

    def visit_var(self, e: Var) -> Bound:
        """Return the bound of a variable from the context, or else from its dtype."""
        known = self.context.var_bounds.get(e)
        if known is not None:
            return known
        low, high = dtype_bound(e.dtype)
        if isinstance(e, DimVar):
            return e.low, high if e.high is None else e.high
        return (0, high) if isinstance(e, SizeVar) else (low, high)

    def visit_floor_div(self, e: Any) -> Bound:
        """Division that rounds down."""
        return _quotients(self.bound(e.a), self.bound(e.b), _floor_divide)

    def visit_floor_mod(self, e: Any) -> Bound:
        """Its remainder, which has the sign of the divisor."""
        (a_low, a_high), (b_low, b_high) = self.bound(e.a), self.bound(e.b)
        if _is_extent((b_low, b_high)):
            return _ALL
        if a_low >= 0 and a_high < b_low:
            return a_low, a_high
        low = 0 if b_low > 0 else NEG_INF if b_low == NEG_INF else min(b_low + 1, 0)
        high = 0 if b_high < 0 else POS_INF if b_high == POS_INF else max(b_high - 1, 0)
        return (low if a_high > 0 else max(low, min(a_low, 0))), (high if a_low < 0 else min(high, a_high))

    def visit_div(self, e: Any) -> Bound:
        """C's division."""
        if dt.is_float(e.dtype):
            return _ALL
        return _quotients(self.bound(e.a), self.bound(e.b), _truncate_divide)

    def visit_mod(self, e: Any) -> Bound:
        """C's remainder, which has the sign of the dividend."""
        (a_low, a_high), (b_low, b_high) = self.bound(e.a), self.bound(e.b)
        if _is_extent((b_low, b_high)):
            return _ALL
        most = POS_INF if b_low == NEG_INF or b_high == POS_INF else max(abs(b_low), abs(b_high)) - 1
        return (0 if a_low >= 0 else max(a_low, -most)), (0 if a_high <= 0 else min(a_high, most))

    def visit_min(self, e: Any) -> Bound:
        """The smaller one."""
        a, b = self.bound(e.a), self.bound(e.b)
        return min(a[0], b[0]), min(a[1], b[1])

    def visit_max(self, e: Any) -> Bound:
        """The larger one."""
        a, b = self.bound(e.a), self.bound(e.b)
        return max(a[0], b[0]), max(a[1], b[1])

    def visit_select(self, e: Select) -> Bound:
        """Either value."""
        return _union(self.bound(e.true_value), self.bound(e.false_value))

    def visit_cast(self, e: Cast) -> Bound:
        """Return the operand's bound, if it fits."""
        limits = dtype_bound(e.dtype)
        value = _whole(e.value) if dt.is_float(e.value.dtype) else e.value
        if value is None:
            return limits
        inner = self.bound(value)
        if value is not e.value and max(map(abs, inner)) > _EXACT[dt.element(e.value.dtype)]:
            return limits
        return inner if limits[0] <= inner[0] and inner[1] <= limits[1] else limits

    def visit_let(self, e: Let) -> Bound:
        """Bind the value, and return the bound of the body."""
        if e.var not in self.context.var_bounds:
            self.context.var_bounds[e.var] = self.bound(e.value)
        return self.bound(e.body)

    def visit_ramp(self, e: Ramp) -> Bound:
        """All lanes."""
        base, stride = self.bound(e.base), self.bound(e.stride)
        ends = [_clip(b + s * i) for b in base for s in stride for i in (0, e.lanes - 1)]
        return (min(ends) if NEG_INF not in base else NEG_INF), (max(ends) if POS_INF not in base else POS_INF)

    def visit_broadcast(self, e: Broadcast) -> Bound:
        """The one value."""
        return self.bound(e.value)

    def visit_call(self, e: Call) -> Bound:
        """Return the bound by the intrinsic's name."""
        handler = _CALLS.get(e.op.name) if isinstance(e.op, Op) else None
        return dtype_bound(e.dtype) if handler is None else handler(self, e)

    def _first_argument(self, e: Call) -> Bound:
        return self.bound(e.args[0])

    def _if_then_else(self, e: Call) -> Bound:
        return _union(self.bound(e.args[1]), self.bound(e.args[2]))

    def _shift_right(self, e: Call) -> Bound:
        low, high = self.bound(e.args[0])
        by_low, by_high = self.bound(e.args[1])
        if by_high < 0 or by_low >= 64:  # of which C says nothing
            return dtype_bound(e.dtype)
        least, most = max(by_low, 0), min(by_high, 63)
        return (
            low if low == NEG_INF else low >> (least if low < 0 else most),
            high if high == POS_INF else high >> (most if high < 0 else least),
        )

    def _bitwise_and(self, e: Call) -> Bound:
        a, b = self.bound(e.args[0]), self.bound(e.args[1])
        if a[0] < 0 and b[0] < 0:
            return dtype_bound(e.dtype)
        tops = [x[1] for x in (a, b) if x[0] >= 0]
        return 0, min(tops)


_CALLS: dict[str, Callable[[BoundAnalyzer, Any], Bound]] = {
    "tir.likely": BoundAnalyzer._first_argument, "tir.if_then_else": BoundAnalyzer._if_then_else,
    "tir.shift_right": BoundAnalyzer._shift_right, "tir.bitwise_and": BoundAnalyzer._bitwise_and,
}  # fmt: skip
