"""Systems of linear equations over the integers.

``solve_linear_equations`` brings the matrix of coefficients to diagonal form by steps on rows and columns that have
inverses over the integers (as in Smith's normal form, without its chain of divisors): with U A V = D and x = V y the
system A x = b is D y = U b. What D does not determine of y are the new variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.int_set import eval_set
from tilewright.arith.linear import detect_linear_equation
from tilewright.ir import prim_ops as ops
from tilewright.ir.iter_var import Range
from tilewright.ir.node import Node
from tilewright.ir.prim_expr import EQ, LE, IntImm, PrimExpr, Var
from tilewright.ir.prim_vars import substitute


class IntConstraints(Node):
    """Variables, ranges that are known of them and of others, and relations that hold."""

    variables: tuple[Var, ...]
    ranges: dict[Var, Range]
    relations: tuple[PrimExpr, ...]

    def __init__(
        self, variables: Sequence[Var] = (), ranges: Mapping[Var, Range] | None = None, relations: Sequence[Any] = ()
    ) -> None:
        self._init(tuple(variables), dict(ranges or {}), tuple(ops.as_expr(r) for r in relations))


class IntConstraintsTransform(Node):
    """Two systems with the same solutions, and the variables of each by those of the other."""

    src: IntConstraints
    dst: IntConstraints
    src_to_dst: dict[Var, PrimExpr]
    dst_to_src: dict[Var, PrimExpr]


Matrix = list[list[int]]


class _Diagonal:
    """The matrix on its way to diagonal form; ``to`` is V, ``back`` its inverse, ``right`` U b."""

    def __init__(self, matrix: Matrix, right: list[PrimExpr], columns: int) -> None:
        self.a, self.right, self.columns = matrix, right, columns
        self.to = [[int(i == j) for j in range(columns)] for i in range(columns)]
        self.back = [row[:] for row in self.to]
        self.rank = 0
        while self._take_pivot():
            while not self._clear():
                self._take_pivot()
            if self.a[self.rank][self.rank] < 0:
                self._scale_row(self.rank)
            self.rank += 1
        for j in range(self.rank, columns):  # the first variable that a new one is part of has it with a plus
            first = next(row[j] for row in self.to if row[j])
            if first < 0:
                for row in self.to:
                    row[j] = -row[j]
                self.back[j] = [-x for x in self.back[j]]

    def _take_pivot(self) -> bool:
        """Move the smallest remaining number to the next diagonal position; return False when all are 0."""
        k = self.rank
        left = [
            (abs(row[j]), i, j) for i, row in enumerate(self.a) for j in range(k, self.columns) if i >= k and row[j]
        ]
        if not left:
            return False
        _, i, j = min(left)
        self.a[i], self.a[k] = self.a[k], self.a[i]
        self.right[i], self.right[k] = self.right[k], self.right[i]
        for row in (*self.a, *self.to):
            row[j], row[k] = row[k], row[j]
        self.back[j], self.back[k] = self.back[k], self.back[j]
        return True

    def _clear(self) -> bool:
        """Subtract the pivot's row and column from the others; whether nothing is left in them."""
        k = self.rank
        pivot = self.a[k][k]
        for i in range(k + 1, len(self.a)):
            by = self.a[i][k] // pivot
            if by:
                self.a[i] = [x - by * y for x, y in zip(self.a[i], self.a[k], strict=True)]
                self.right[i] = self.right[i] - self.right[k] * by
        for j in range(k + 1, self.columns):
            by = self.a[k][j] // pivot
            if by:
                for row in (*self.a, *self.to):
                    row[j] -= by * row[k]
                self.back[k] = [x + by * y for x, y in zip(self.back[k], self.back[j], strict=True)]
        return not any(self.a[i][k] for i in range(k + 1, len(self.a))) and not any(self.a[k][k + 1 :])

    def _scale_row(self, i: int) -> None:
        self.a[i] = [-x for x in self.a[i]]
        self.right[i] = -self.right[i]


def _combine(coefficients: Sequence[int], values: Sequence[PrimExpr], dtype: str) -> PrimExpr:
    total = ops.const(0, dtype)
    for coef, value in zip(coefficients, values, strict=True):
        total = total + value * coef
    return total


def _equations(
    relations: Sequence[PrimExpr], variables: Sequence[Var]
) -> tuple[Matrix, list[PrimExpr], list[PrimExpr]]:
    """Return coefficients and right sides of the linear equations, and the other relations."""
    matrix: Matrix = []
    right: list[PrimExpr] = []
    others: list[PrimExpr] = []
    for relation in relations:
        found = detect_linear_equation(relation.a - relation.b, variables) if isinstance(relation, EQ) else []
        literals = [c.value for c in found[:-1] if isinstance(c, IntImm)]
        if found and len(literals) == len(variables):
            matrix.append(literals)
            right.append(-found[-1])
        else:
            others.append(relation)
    return matrix, right, others


class _Infeasible(Exception):
    """Raised when there is no solution."""


def _condition(
    conditions: list[PrimExpr], relation: PrimExpr, analyzer: Analyzer, shown: PrimExpr | None = None
) -> None:
    """Add a relation that must hold, unless it does anyway."""
    simple = analyzer.simplify(relation)
    if not isinstance(simple, IntImm):
        conditions.append(simple if shown is None else shown)
    elif not simple.value:
        raise _Infeasible


def solve_linear_equations(
    equations: Sequence[Any] | IntConstraints,
    variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None,
) -> IntConstraintsTransform:
    """Solve a system for variables, expressing them by as few new variables as possible.

    Args:
        equations: relations; those that are no linear equations are kept. Or all as one ``IntConstraints``.
        variables: what to solve for; all else is constant.
        ranges: of variables.

    Returns:
        The system (``src``) and the solved one (``dst``), whose relations are what must still hold. A system without
        solutions becomes one with the relation False.
    """
    src = equations if isinstance(equations, IntConstraints) else IntConstraints(variables or (), ranges, equations)
    if not src.variables:
        return IntConstraintsTransform(src, src, {}, {})
    try:
        return _solve(src)
    except _Infeasible:
        nothing = IntConstraints((), {}, (ops.const(False, "bool"),))
        return IntConstraintsTransform(src, nothing, {}, {})


def _solve(src: IntConstraints) -> IntConstraintsTransform:
    analyzer, dtype, count = Analyzer(), src.variables[0].dtype, len(src.variables)
    for var, dom in src.ranges.items():
        if var not in src.variables:
            analyzer.bind(var, dom)
    matrix, right, others = _equations(src.relations, src.variables)
    system = _Diagonal(matrix, right, count)
    conditions: list[PrimExpr] = []
    values: list[PrimExpr] = []
    for i, side in enumerate(system.right):
        if i >= system.rank:
            _condition(conditions, ops.equal(side, ops.const(0, side.dtype)), analyzer)
            continue
        divisor = system.a[i][i]
        _condition(conditions, ops.equal(ops.floormod(side, divisor), 0), analyzer)
        values.append(analyzer.simplify(ops.floordiv(side, divisor)))
    new = [Var(f"n{i}", dtype) for i in range(count - system.rank)]
    values += new
    src_to_dst = {
        var: analyzer.simplify(_combine(row, values, dtype))
        for var, row in zip(src.variables, system.to, strict=True)
    }  # fmt: skip
    dst_to_src = {
        var: analyzer.simplify(_combine(row, src.variables, dtype))
        for var, row in zip(new, system.back[system.rank :], strict=True)
    }  # fmt: skip
    found = {var: dom for var, dom in src.ranges.items() if var not in src.variables}
    for var, value in dst_to_src.items():
        if all(
            v in src.ranges for v, c in zip(src.variables, system.back[system.rank + new.index(var)], strict=True) if c
        ):
            found[var] = eval_set(value, src.ranges, analyzer).cover_range()
            analyzer.bind(var, found[var])
    _carry_over(src, others, src_to_dst, conditions, analyzer)
    return IntConstraintsTransform(src, IntConstraints(new, found, conditions), src_to_dst, dst_to_src)


def _carry_over(
    src: IntConstraints,
    others: Sequence[PrimExpr],
    src_to_dst: Mapping[Var, PrimExpr],
    conditions: list[PrimExpr],
    analyzer: Analyzer,
) -> None:
    """Express the ranges of the old variables, and the other relations, by the new variables."""
    for var, value in src_to_dst.items():
        if var in src.ranges:
            low, last = src.ranges[var].min, src.ranges[var].min + src.ranges[var].extent - 1
            for a, b in ((low, value), (value, last)):
                _condition(conditions, LE(a, b), analyzer, shown=LE(a, analyzer.simplify(b)))
    for relation in others:
        _condition(conditions, substitute(relation, src_to_dst), analyzer)
