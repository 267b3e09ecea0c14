"""Sets of integers: intervals with symbolic ends and constant steps, and the values of an expression over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard

from tilewright.arith.affine import affine
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.bounds import INDEX_DTYPES
from tilewright.ir import prim_ops as ops
from tilewright.ir.iter_var import IterVar, Range
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import (
    Add,
    Broadcast,
    Call,
    Cast,
    Div,
    IntImm,
    Let,
    Max,
    Min,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    Var,
)  # fmt: skip
from tilewright.ir.prim_functor import DEPTH_STEP, ExprFunctor, ensure_stack
from tilewright.ir.prim_vars import substitute


class IntSet(Node):
    """The integers from ``min_value`` to ``max_value``, both inclusive; None means no bound on that side.

    Of those, only every ``step``-th, both ends among them, as of ``i * 4 + j`` for one ``j``.
    """

    low: PrimExpr | None
    high: PrimExpr | None
    step: int = 1

    @staticmethod
    def everything() -> IntSet:
        """All integers."""
        return IntSet(None, None)

    @staticmethod
    def single_point(point: Any) -> IntSet:
        """Return the set of one value."""
        expr = ops.as_expr(point)
        return IntSet(expr, expr)

    @staticmethod
    def vector(vec: PrimExpr) -> IntSet:
        """The values in the lanes of a vector."""
        return eval_set(vec, {})

    @staticmethod
    def interval(min_value: Any, max_value: Any) -> IntSet:
        """The values between two ends, both inclusive."""
        if min_value is pos_inf() or max_value is neg_inf():
            return IntSet.nothing()
        if min_value is neg_inf() or max_value is pos_inf():
            return IntSet(
                None if min_value is neg_inf() else ops.as_expr(min_value),
                None if max_value is pos_inf() else ops.as_expr(max_value),
            )
        low, high = ops.match_dtypes(min_value, max_value)
        return IntSet(low, high)

    @staticmethod
    def from_range(dom: Range) -> IntSet:
        """The values of a range."""
        if ops.is_const_int(dom.extent, 1):
            return IntSet(dom.min, dom.min)
        return IntSet(dom.min, dom.min + dom.extent - 1)

    @staticmethod
    def nothing() -> IntSet:
        """No integer."""
        return IntSet(pos_inf(), neg_inf())

    @property
    def min_value(self) -> PrimExpr:
        """The lower end, or :func:`neg_inf`."""
        return neg_inf() if self.low is None else self.low

    @property
    def max_value(self) -> PrimExpr:
        """The upper end, or :func:`pos_inf`."""
        return pos_inf() if self.high is None else self.high

    def is_nothing(self) -> bool:
        """Return whether the set is certainly empty."""
        if self.low is pos_inf() or self.high is neg_inf():
            return True
        return isinstance(self.low, IntImm) and isinstance(self.high, IntImm) and self.low.value > self.high.value

    def is_everything(self) -> bool:
        """Return whether nothing is known."""
        return self.low is None and self.high is None

    def is_bounded(self) -> bool:
        """Return whether both ends are known."""
        return self.low is not None and self.high is not None

    def is_single_point(self) -> bool:
        """Return whether the set is one value."""
        return self.low is not None and self.low is self.high

    @property
    def point_value(self) -> PrimExpr:
        """The value of a single point; raises ValueError for other sets."""
        if self.low is None or self.low is not self.high:
            raise ValueError(f"{self} is not a single point")
        return self.low

    def cover_range(self, default: Range | None = None) -> Range:
        """The smallest range that holds the set; ``default`` when the set is unbounded."""
        if self.low is None or self.high is None:
            if default is None:
                raise ValueError("an unbounded set has no range")
            return default
        if self.low is pos_inf():  # nothing, of which this is the form without a type
            start = ops.const(0) if default is None else default.min
            return Range.from_min_extent(start, ops.const(0, start.dtype))
        if self.low is self.high:
            return Range.from_min_extent(self.low, ops.const(1, self.low.dtype))
        return Range.from_min_extent(self.low, self.high - self.low + 1)

    def __str__(self) -> str:
        show = [("-inf", "+inf")[i] if v is None else repr(v) for i, v in enumerate((self.low, self.high))]
        return f"IntervalSet[{show[0]}, {show[1]}]"


_POS_INF, _NEG_INF = Var("pos_inf", "handle"), Var("neg_inf", "handle")


def pos_inf() -> Var:
    """Return TVM's symbol for no upper end."""
    return _POS_INF


def neg_inf() -> Var:
    """Return TVM's symbol for no lower end."""
    return _NEG_INF


class IntervalSet(IntSet):
    """The integers between two ends, both inclusive, which may be :func:`neg_inf` and :func:`pos_inf`."""

    def __init__(self, min_value: Any, max_value: Any) -> None:
        made = IntSet.interval(min_value, max_value)
        self._init(made.low, made.high, 1)


EVERYTHING = IntSet.everything()


def union(sets: Iterable[IntSet], analyzer: Analyzer | None = None) -> IntSet:
    """The smallest interval that holds all of ``sets``."""
    result: IntSet | None = None
    for item in sets:
        if item.is_nothing():
            continue
        result = item if result is None else _union(result, item, analyzer)
    return IntSet.nothing() if result is None else result


def union_lower_bound(sets: Iterable[IntSet]) -> IntSet:
    """Return an interval inside the union of ``sets``, formed by adjacent or overlapping ones.

    It begins with the first set; a set whose place beside the others cannot be proved is left out.
    """
    analyzer = Analyzer()
    result: IntSet | None = None
    for item in sets:
        if item.is_nothing():
            continue
        if result is None:
            result = item
        elif _touch(result, item, analyzer) and _touch(item, result, analyzer):
            result = _union(result, item, analyzer)
    return IntSet.nothing() if result is None else result


def _touch(a: IntSet, b: IntSet, analyzer: Analyzer) -> bool:
    """Return whether ``a`` certainly begins at the latest just behind the end of ``b``."""
    return a.low is None or b.high is None or analyzer.can_prove(a.low <= b.high + 1)


def _union(a: IntSet, b: IntSet, analyzer: Analyzer | None) -> IntSet:
    if a is b or (a.low is b.low and a.high is b.high and a.step == b.step):
        return a
    low = None if a.low is None or b.low is None else _pick(ops.minimum, a.low, b.low, analyzer)
    high = None if a.high is None or b.high is None else _pick(ops.maximum, a.high, b.high, analyzer)
    return IntSet(low, high)


def intersect(sets: Iterable[IntSet], analyzer: Analyzer | None = None) -> IntSet:
    """The values in every one of ``sets``."""
    result = EVERYTHING
    for b in sets:
        a = result
        low = b.low if a.low is None else a.low if b.low is None else _pick(ops.maximum, a.low, b.low, analyzer)
        high = b.high if a.high is None else a.high if b.high is None else _pick(ops.minimum, a.high, b.high, analyzer)
        result = IntSet(low, high)
    return result


def _pick(function: Callable[[Any, Any], PrimExpr], a: PrimExpr, b: PrimExpr, analyzer: Analyzer | None) -> PrimExpr:
    if a is b:
        return a
    chosen = function(a, b)
    return chosen if analyzer is None or isinstance(chosen, IntImm) else analyzer.simplify(chosen)


class IntSetEvaluator(ExprFunctor[IntSet]):
    """Evaluates expressions over sets; results are memoised."""

    def __init__(self, dom_map: Mapping[Any, IntSet | Range], analyzer: Analyzer) -> None:
        super().__init__()
        self.domains: dict[Var, IntSet] = {}
        for key, dom in dom_map.items():
            var = key.var if isinstance(key, IterVar) else key
            self.domains[var] = IntSet.from_range(dom) if isinstance(dom, Range) else dom
        self.analyzer = analyzer
        self.dependence: dict[PrimExpr, int] = {}

    def visit_expr(self, expr: PrimExpr) -> IntSet:
        """The set of values of ``expr``."""
        known = self.memo.get(expr)
        if known is None:
            if isinstance(expr, IntImm):
                known = IntSet(expr, expr)
            elif isinstance(expr, Var):
                known = self.domains.get(expr) or IntSet(expr, expr)
            else:
                method = self._methods.get(type(expr)) or self._resolve(type(expr))
                self._depth += 1
                if not self._depth % DEPTH_STEP:
                    ensure_stack()
                known = method(self, expr)
                self._depth -= 1
            self.memo[expr] = known
        return known

    evaluate = visit_expr

    def _simple(self, e: PrimExpr) -> PrimExpr:
        return self.analyzer.simplify(e)

    def _dependence(self, e: PrimExpr) -> int:
        """Classify ``e``: 0 without domain variables; 1 with single-valued ones only; 2 varying over the domains."""
        memo = self.dependence
        stack = [e]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
            elif isinstance(node, Var):
                dom = self.domains.get(node)
                memo[node] = 0 if dom is None else 1 if dom.is_single_point() else 2
            else:
                parts = _sub_expressions(node)
                pending = [x for x in parts if x not in memo]
                if pending:
                    stack += pending
                else:
                    memo[node] = max([memo[x] for x in parts], default=0)
        return memo[e]

    def _is_fixed(self, e: PrimExpr) -> bool:
        return self._dependence(e) < 2

    def visit_prim(self, e: PrimExpr) -> IntSet:
        """Return a point if the operation depends on no domain, else everything."""
        dependence = self._dependence(e)
        if dependence == 0:
            return IntSet(e, e)
        if dependence == 1:
            points = {v: d.point_value for v, d in self.domains.items() if d.is_single_point()}
            return IntSet.single_point(substitute(e, points))
        low, high = self.analyzer.bounds.bound(e)
        info = ops.dt.parse(e.dtype)
        if info.kind in ("int", "uint") and info.bits <= 16 and info.lanes == 1:
            return IntSet(IntImm(e.dtype, low), IntImm(e.dtype, high))
        return EVERYTHING

    def visit_add(self, e: Any) -> IntSet:
        """Sums and products, as affine forms."""
        if e.dtype not in INDEX_DTYPES:
            return self._vector_or_opaque(e)
        terms, const = affine(e, self.analyzer.context.affine_memo)
        if e in terms:
            return self._product(e)
        low: PrimExpr | None = None
        high: PrimExpr | None = None
        low_open = high_open = False
        point = True
        step = 0
        for atom, coef in terms.items():
            values = self.evaluate(atom)
            atom_low, atom_high = (values.low, values.high) if coef > 0 else (values.high, values.low)
            if not values.is_single_point():
                point, step = False, math.gcd(step, coef * values.step)
            low_open |= atom_low is None
            high_open |= atom_high is None
            if atom_low is not None:
                low = _plus(low, atom_low, coef)
            if atom_high is not None:
                high = _plus(high, atom_high, coef)
        bias = ops.const(const, e.dtype)
        lower = None if low_open else self._simple(bias if low is None else low + bias)
        if point:
            return IntSet(lower, lower)
        upper = None if high_open else self._simple(bias if high is None else high + bias)
        return IntSet(lower, upper, 1 if lower is None else step)

    visit_sub = visit_add
    visit_mul = visit_add

    def _vector_or_opaque(self, e: Any) -> IntSet:
        if ops.dt.lanes(e.dtype) == 1 or not isinstance(e, (Add, Sub)):
            return self.visit_prim(e)
        a, b = self.evaluate(e.a), self.evaluate(e.b)
        if isinstance(e, Sub):
            b = IntSet(None if b.high is None else -b.high, None if b.low is None else -b.low)
        low = None if a.low is None or b.low is None else self._simple(a.low + b.low)
        return IntSet(low, None if a.high is None or b.high is None else self._simple(a.high + b.high))

    def _product(self, e: Any) -> IntSet:
        a, b = self.evaluate(e.a), self.evaluate(e.b)
        if b.is_single_point() and not a.is_single_point():
            a, b = b, a
        if not a.is_single_point():
            return EVERYTHING
        factor = a.point_value
        if b.is_single_point():
            return IntSet.single_point(self._simple(factor * b.point_value))
        if self.analyzer.can_prove_greater_equal(factor, 0):
            low, high = b.low, b.high
        elif self.analyzer.can_prove(factor <= 0):
            low, high = b.high, b.low
        else:
            return EVERYTHING
        return IntSet(
            None if low is None else self._simple(low * factor), None if high is None else self._simple(high * factor)
        )

    def visit_floor_div(self, e: Any) -> IntSet:
        """Division that rounds down."""
        a, b = self.evaluate(e.a), self.evaluate(e.b)
        if not b.is_single_point():
            return EVERYTHING
        divisor = b.point_value
        if a.is_single_point():
            return IntSet.single_point(self._simple(ops.floordiv(a.point_value, divisor)))
        if not self.analyzer.can_prove_greater_equal(divisor, 1):
            return EVERYTHING
        return IntSet(
            None if a.low is None else self._simple(ops.floordiv(a.low, divisor)),
            None if a.high is None else self._simple(ops.floordiv(a.high, divisor)),
            a.step // divisor.value if _divides(divisor, a.step) else 1,
        )

    def visit_floor_mod(self, e: Any) -> IntSet:
        """Its remainder."""
        a, b = self.evaluate(e.a), self.evaluate(e.b)
        if not b.is_single_point():
            return EVERYTHING
        divisor = b.point_value
        if a.is_single_point():
            return IntSet.single_point(self._simple(ops.floormod(a.point_value, divisor)))
        if not self.analyzer.can_prove_greater_equal(divisor, 1):
            return EVERYTHING
        if a.low is not None and _divides(divisor, a.step):
            return IntSet.single_point(self._simple(ops.floormod(a.low, divisor)))
        if a.low is not None and a.high is not None:
            first, last = self._simple(ops.floordiv(a.low, divisor)), self._simple(ops.floordiv(a.high, divisor))
            if self.analyzer.can_prove_equal(first, last):
                shift = first * divisor
                return IntSet(self._simple(a.low - shift), self._simple(a.high - shift))
        return IntSet(ops.const(0, e.dtype), self._simple(divisor - 1))

    def visit_div(self, e: Any) -> IntSet:
        """C's division."""
        a = self.evaluate(e.a)
        if a.low is not None and self.analyzer.can_prove_greater_equal(a.low, 0):
            return self.visit_floor_div(e) if isinstance(e, Div) else self.visit_floor_mod(e)
        return self.visit_prim(e)

    visit_mod = visit_div

    def visit_min(self, e: Any) -> IntSet:
        """The smaller one."""
        a, b = self.evaluate(e.a), self.evaluate(e.b)
        function = ops.minimum if isinstance(e, Min) else ops.maximum
        low = high = None
        if a.low is not None and b.low is not None:
            low = _pick(function, a.low, b.low, self.analyzer)
        if a.high is not None and b.high is not None:
            high = _pick(function, a.high, b.high, self.analyzer)
        if isinstance(e, Min) and high is None:
            high = a.high if a.high is not None else b.high
        if isinstance(e, Max) and low is None:
            low = a.low if a.low is not None else b.low
        return IntSet(low, high)

    visit_max = visit_min

    def visit_select(self, e: Select) -> IntSet:
        """Either value."""
        if self._is_fixed(e):
            return self.visit_prim(e)
        return _union(self.evaluate(e.true_value), self.evaluate(e.false_value), self.analyzer)

    def visit_cast(self, e: Cast) -> IntSet:
        """Return the operand's set, if it fits."""
        inner = self.evaluate(e.value)
        if ops.dt.is_float(e.value.dtype) or not ops.dt.is_int(e.dtype):
            return self.visit_prim(e)
        if ops.dt.bits(e.dtype) < ops.dt.bits(e.value.dtype) and e.dtype not in INDEX_DTYPES:
            return self.visit_prim(e)
        if inner.is_single_point():
            return IntSet.single_point(ops.cast(e.dtype, inner.point_value))
        return IntSet(
            None if inner.low is None else ops.cast(e.dtype, inner.low),
            None if inner.high is None else ops.cast(e.dtype, inner.high),
        )

    def visit_ramp(self, e: Ramp) -> IntSet:
        """All lanes."""
        base = self.evaluate(e.base)
        low, high = self.analyzer.bounds.bound(e.stride)
        last = e.stride * (e.lanes - 1)
        if low >= 0:
            return IntSet(base.low, None if base.high is None else self._simple(base.high + last))
        return (
            IntSet(None if base.low is None else self._simple(base.low + last), base.high) if high <= 0 else EVERYTHING
        )

    def visit_broadcast(self, e: Broadcast) -> IntSet:
        """The one value."""
        return self.evaluate(e.value)

    def visit_let(self, e: Let) -> IntSet:
        """Bind the value, and return the set of the body."""
        self.domains[e.var] = self.evaluate(e.value)
        self.dependence.clear()
        return self.evaluate(e.body)

    def visit_call(self, e: Call) -> IntSet:
        """Return the set by the intrinsic's name."""
        name = e.op.name if isinstance(e.op, Op) else ""
        if name == "tir.likely":
            return self.evaluate(e.args[0])
        if name == "tir.if_then_else" and not self._is_fixed(e):
            return _union(self.evaluate(e.args[1]), self.evaluate(e.args[2]), self.analyzer)
        return self.visit_prim(e)


def _sub_expressions(e: PrimExpr) -> list[PrimExpr]:
    found: list[PrimExpr] = []
    for _, value in e.field_values():
        found += [v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, PrimExpr)]
    return found


def _divides(divisor: PrimExpr, step: int) -> TypeGuard[IntImm]:
    return isinstance(divisor, IntImm) and step % divisor.value == 0


def _plus(total: PrimExpr | None, term: PrimExpr, coef: int) -> PrimExpr:
    scaled = term * coef if coef != 1 else term
    return scaled if total is None else total + scaled


def eval_set(e: Any, dom_map: Mapping[Any, IntSet | Range], analyzer: Analyzer | None = None) -> IntSet:
    """Return the values of ``e`` when the variables of ``dom_map`` run over their sets, others being fixed."""
    return IntSetEvaluator(dom_map, analyzer or Analyzer()).evaluate(ops.as_expr(e))


def _evaluate_set(analyzer: Analyzer, e: PrimExpr, dom_map: Mapping[Any, IntSet | Range]) -> IntSet:
    return eval_set(e, dom_map, analyzer)


Analyzer.evaluate_set = staticmethod(_evaluate_set)
