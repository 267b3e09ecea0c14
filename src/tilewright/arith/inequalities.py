"""Systems of linear inequalities over the integers, by Fourier and Motzkin's elimination.

With each variable in turn between what is below it and what is above it, in terms of the variables after it::

    x + y <= 20, x - y >= 10, 0 <= y    ->    x in [y + 10, y + 20], y in [0, 5], x <= 20 - y

A range begins at what the later variables say, and is as long as it is for any of them; the relations cut it off. It
may be larger still: between two bounds of multiples of a variable there may be no integer, which elimination does not
notice.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.int_set import eval_set
from tilewright.arith.int_solver import IntConstraints, IntConstraintsTransform
from tilewright.arith.linear import detect_linear_equation
from tilewright.ir import prim_ops as ops
from tilewright.ir.iter_var import Range
from tilewright.ir.node import Node
from tilewright.ir.prim_expr import EQ, GE, GT, LE, LT, And, IntImm, PrimExpr, Var
from tilewright.ir.prim_vars import expr_vars, substitute
from tilewright.runtime.registry import register_func


class IntGroupBounds(Node):
    """Bounds of ``coef * v`` for a variable v: the ``lower`` and ``upper`` bounds, and the ``equal`` values."""

    coef: PrimExpr
    lower: tuple[PrimExpr, ...]
    equal: tuple[PrimExpr, ...]
    upper: tuple[PrimExpr, ...]

    def __init__(
        self, coef: Any, lower: Sequence[Any] = (), equal: Sequence[Any] = (), upper: Sequence[Any] = ()
    ) -> None:
        parts = (tuple(ops.as_expr(e) for e in group) for group in (lower, equal, upper))
        self._init(ops.as_expr(coef), *parts)

    @staticmethod
    def from_range(rng: Range) -> IntGroupBounds:
        """Return the bounds of a variable in a range."""
        last = Analyzer().simplify(rng.min + rng.extent - 1)
        return IntGroupBounds(1, [rng.min], [], [last])

    def find_best_range(self) -> Range | None:
        """Return the smallest range that provably contains the variable; None if an end is open.

        ``coef`` is more than 0: the variable is no less than ``lower / coef`` rounded up, no more than ``upper / coef``
        rounded down, and equal to ``equal / coef`` exactly.
        """
        analyzer = Analyzer()
        best: Range | None = None
        for low, high in itertools.product((*self.equal, *self.lower), (*self.equal, *self.upper)):
            first = -ops.floordiv(-low, self.coef)
            extent = analyzer.simplify(ops.floordiv(high, self.coef) - first + 1)
            if best is None or analyzer.can_prove(extent < best.extent):
                best = Range.from_min_extent(analyzer.simplify(first), extent)
        return best


class _Row:
    """The inequality ``sum(coefficients * variables) + rest <= 0``."""

    def __init__(self, coefficients: Sequence[int], rest: PrimExpr, analyzer: Analyzer) -> None:
        by = functools.reduce(math.gcd, coefficients, 0)
        rest = analyzer.simplify(rest)
        if by > 1:  # the variables are whole: c*v <= -r means v <= floor(-r / c)
            rest = analyzer.simplify(-ops.floordiv(-rest, by))
            coefficients = [c // by for c in coefficients]
        self.coefficients, self.rest = tuple(coefficients), rest


def _below_zero(relation: PrimExpr) -> list[PrimExpr] | None:
    """The relation as expressions that are at most 0; None for one of another kind."""
    if isinstance(relation, (LE, LT)):
        return [relation.a - relation.b + int(isinstance(relation, LT))]
    if isinstance(relation, (GE, GT)):
        return [relation.b - relation.a + int(isinstance(relation, GT))]
    return [relation.a - relation.b, relation.b - relation.a] if isinstance(relation, EQ) else None


class _System:
    def __init__(self, src: IntConstraints) -> None:
        self.src, self.analyzer = src, Analyzer()
        for var, dom in src.ranges.items():
            if var not in src.variables:
                self.analyzer.bind(var, dom)
        self.others: list[PrimExpr] = []
        self.rows: list[_Row] = []
        for relation in src.relations:
            self._add(relation)
        for var in src.variables:
            if var in src.ranges:
                dom = src.ranges[var]
                self._add(var >= dom.min)
                self._add(var <= dom.min + dom.extent - 1)

    def _add(self, relation: PrimExpr) -> None:
        if isinstance(relation, And):
            self._add(relation.a)
            self._add(relation.b)
            return
        parts = _below_zero(relation)
        if parts is None:
            self.others.append(relation)
            return
        for part in parts:
            coefficients, rest = self._separate(part)
            self.rows.append(_Row(coefficients, rest, self.analyzer))

    def _separate(self, part: PrimExpr) -> tuple[list[int], PrimExpr]:
        """Return the number by which each variable is multiplied, and the rest.

        A variable that is multiplied by anything else, as by another one, belongs to the rest, and so do those behind
        it: bounds speak of variables that come later.
        """
        coefficients, rest = [0] * len(self.src.variables), part
        for k, var in enumerate(self.src.variables):
            found = detect_linear_equation(rest, [var])
            if not found or not isinstance(found[0], IntImm):
                break
            coefficients[k], rest = found[0].value, found[1]
        return coefficients, rest

    def eliminate(self, position: int) -> list[_Row]:
        """Eliminate a variable: replace the rows that contain it by their consequences for the others; return those
        rows.
        """
        of = [row for row in self.rows if row.coefficients[position]]
        rows = [row for row in self.rows if not row.coefficients[position]]
        for low in (row for row in of if row.coefficients[position] < 0):
            for high in (row for row in of if row.coefficients[position] > 0):
                a, b = high.coefficients[position], -low.coefficients[position]
                both = [a * x + b * y for x, y in zip(low.coefficients, high.coefficients, strict=True)]
                rows.append(_Row(both, low.rest * a + high.rest * b, self.analyzer))
        self.rows = self._tightest(rows)
        return of

    def _tightest(self, rows: Sequence[_Row]) -> list[_Row]:
        """Keep the strongest of rows with the same coefficients and literal constants; drop those that always hold."""
        literal: dict[tuple[int, ...], _Row] = {}
        kept: dict[tuple[tuple[int, ...], PrimExpr], _Row] = {}
        for row in rows:
            if not isinstance(row.rest, IntImm):
                kept[row.coefficients, row.rest] = row
            elif any(row.coefficients) or row.rest.value > 0:
                known = literal.get(row.coefficients)
                if known is None or row.rest.value > int(known.rest):  # type: ignore[call-overload]
                    literal[row.coefficients] = row
        return [*kept.values(), *literal.values()]


def _strongest(candidates: Sequence[PrimExpr], largest: bool, analyzer: Analyzer) -> list[PrimExpr]:
    """Return the candidates that are not known to be below another one, or above it."""
    kept: list[PrimExpr] = []
    for one in candidates:

        def worse(a: PrimExpr, b: PrimExpr) -> bool:
            return analyzer.can_prove(a <= b if largest else a >= b)

        if any(worse(one, k) for k in kept):
            continue
        kept = [k for k in kept if not worse(k, one)] + [one]
    return kept


def _strongest_bounds(
    rows: Sequence[_Row], position: int, variables: Sequence[Var], analyzer: Analyzer
) -> tuple[list[PrimExpr], list[PrimExpr]]:
    """Return the strongest lower and upper bounds of the variable by the rows that contain it."""
    lows, highs = [], []
    for row in rows:
        c = row.coefficients[position]
        rest = row.rest
        for k, other in zip(row.coefficients, variables, strict=True):
            if k and other is not variables[position]:
                rest = rest + other * k
        if c > 0:
            highs.append(analyzer.simplify(ops.floordiv(-rest, c)))
        else:
            lows.append(analyzer.simplify(-ops.floordiv(-rest, -c)))
    return _strongest(lows, True, analyzer), _strongest(highs, False, analyzer)


def _solved(src: IntConstraints) -> tuple[_System, list[list[_Row]], list[PrimExpr]]:
    """Return the system after elimination, the rows that bound each variable, and the relations without variables."""
    system = _System(src)
    found = [system.eliminate(k) for k in range(len(src.variables))]
    return system, found, [row.rest <= 0 for row in system.rows]


def _never(relations: Sequence[PrimExpr]) -> bool:
    return any(isinstance(r, IntImm) and not r.value for r in relations)


def _one_value(lows: Sequence[PrimExpr], highs: Sequence[PrimExpr]) -> PrimExpr | None:
    """Return what is both a lower and an upper bound, a literal if there is one."""
    equal = _sorted_out(lows, highs)[1]
    return next((e for e in equal if isinstance(e, IntImm)), equal[0] if equal else None)


def _sorted_out(
    lows: Sequence[PrimExpr], highs: Sequence[PrimExpr]
) -> tuple[list[PrimExpr], list[PrimExpr], list[PrimExpr]]:
    """Return the bounds that are only lower ones, those that are both, and those that are only upper ones."""
    below, above = set(lows), set(highs)
    return [e for e in lows if e not in above], [e for e in lows if e in above], [e for e in highs if e not in below]


def _most(extent: PrimExpr, variables: Sequence[Var], ranges: Mapping[Var, Range], analyzer: Analyzer) -> PrimExpr:
    """Return the largest value of an extent that speaks of variables in ranges; the extent if there is none."""
    most: PrimExpr = extent
    for _ in variables:  # the range of one speaks of the next
        if not any(v in variables for v in expr_vars(most)):
            return most
        high = eval_set(most, ranges, analyzer).high
        if high is None:
            return extent
        most = analyzer.simplify(high)
    return extent if any(v in variables for v in expr_vars(most)) else most


def _solve(src: IntConstraints) -> IntConstraints:
    system, found, relations = _solved(src)
    if _never(relations):
        return IntConstraints((), {}, [ops.const(False, "bool")])
    ranges = {var: dom for var, dom in src.ranges.items() if var not in src.variables}
    left: list[PrimExpr] = []
    analyzer = system.analyzer
    for k in reversed(range(len(src.variables))):
        var = src.variables[k]
        lows, highs = _strongest_bounds(found[k], k, src.variables, analyzer)
        value = _one_value(lows, highs)
        if value is not None:
            ranges[var] = Range.from_min_extent(value, ops.const(1, var.dtype))
            lows, equal, highs = _sorted_out(lows, highs)
            left += [var.equal(e) for e in equal if e is not value]
        elif lows and highs:
            low, high = functools.reduce(ops.maximum, lows), functools.reduce(ops.minimum, highs)
            extent = analyzer.simplify(high - low + 1)
            most = _most(extent, src.variables, ranges, analyzer)
            ranges[var] = Range.from_min_extent(low, most)
            lows, highs = [], highs if most is not extent else []
        left += [var >= low for low in lows] + [var <= high for high in highs]
        if var in ranges:
            analyzer.bind(var, ranges[var])
    ordered = {var: ranges[var] for var in (*src.variables, *ranges) if var in ranges}
    return IntConstraints(src.variables, ordered, left + relations + system.others)


@register_func("arith.SolveInequalitiesAsCondition", override=True)
def solve_as_condition(
    variables: Sequence[Var], ranges: Mapping[Var, Range] | None, inequalities: Sequence[PrimExpr]
) -> tuple[PrimExpr, ...]:
    """Solve for each variable in terms of those after it, and return all bounds as relations.

    Before and after::

        x in [-100, 100), y in [0, 10), x + y <= 20, x - y >= 10    ->    x >= y + 10, x <= 20 - y, y >= 0, y <= 5

    Args:
        variables: what to solve for; all else is constant.
        ranges: of variables.
        inequalities: relations; those that are not linear are kept.
    """
    system, found, relations = _solved(IntConstraints(variables, ranges, inequalities))
    if _never(relations):
        return (ops.const(False, "bool"),)
    analyzer = system.analyzer
    bounds: list[PrimExpr] = []
    known: dict[Var, Range] = {}
    for k in reversed(range(len(variables))):
        var = variables[k]
        lows, highs = _strongest_bounds(found[k], k, variables, analyzer)
        if lows and highs:
            extent = analyzer.simplify(highs[0] - lows[0] + 1)
            known[var] = Range.from_min_extent(lows[0], _most(extent, variables, known, analyzer))
            analyzer.bind(var, known[var])
        lows, equal, highs = _sorted_out(lows, highs)
        bounds[:0] = [*(var >= e for e in lows), *(var.equal(e) for e in equal), *(var <= e for e in highs)]
    return (*bounds, *relations, *system.others)


def _from_zero(src: IntConstraints, solved: IntConstraints) -> IntConstraintsTransform:
    """Substitute variables whose ranges begin at 0; a variable with one value needs none."""
    if not solved.variables:
        return IntConstraintsTransform(src, solved, {}, {})
    analyzer = Analyzer()
    src_to_dst: dict[Var, PrimExpr] = {}
    dst_to_src: dict[Var, PrimExpr] = {}
    ranges: dict[Var, Range] = {v: r for v, r in solved.ranges.items() if v not in src.variables}
    new = {var: Var(var.name, var.dtype) for var in src.variables}
    for var in reversed(src.variables):
        dom = solved.ranges.get(var)
        if dom is None:
            src_to_dst[var] = dst_to_src[var] = new[var] = var
            continue
        low = analyzer.simplify(substitute(dom.min, src_to_dst))
        if ops.is_const_int(dom.extent, 1):
            src_to_dst[var] = low
            continue
        extent = analyzer.simplify(substitute(dom.extent, src_to_dst))
        src_to_dst[var] = analyzer.simplify(new[var] + low)
        dst_to_src[new[var]] = analyzer.simplify(var - dom.min)
        ranges[new[var]] = Range.from_min_extent(ops.const(0, var.dtype), extent)
        analyzer.bind(new[var], ranges[new[var]])
    relations = [analyzer.simplify(substitute(r, src_to_dst)) for r in solved.relations]
    kept = [new[v] for v in src.variables if new[v] in dst_to_src]
    dst = IntConstraints(kept, ranges, relations)
    return IntConstraintsTransform(src, dst, src_to_dst, dst_to_src)


def solve_linear_inequalities(
    equations: Sequence[Any] | IntConstraints,
    variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None,
    deskew_range: bool = False,
) -> Any:
    """Find the range of each variable, in terms of the variables after it.

    Args:
        equations: relations; those that are not linear are kept. Or all as one ``IntConstraints``.
        variables: what to solve for; all else is constant.
        ranges: of variables.
        deskew_range: introduce new variables whose ranges begin at 0.

    Returns:
        The variables with their ranges, and the relations that must hold besides: of a system without solutions the
        relation False. With ``deskew_range`` the system (``src``) and that of the new variables (``dst``).
    """
    src = equations if isinstance(equations, IntConstraints) else IntConstraints(variables or (), ranges, equations)
    solved = _solve(src)
    return _from_zero(src, solved) if deskew_range else solved
