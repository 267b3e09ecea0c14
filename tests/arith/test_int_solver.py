"""Solved systems of equations have the solutions of the system: compared by going through all values."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
from tests.arith.evaluate import evaluate, holding, mapped

from tilewright import arith, tir
from tilewright.ir import structural_equal
from tilewright.ir.prim_expr import PrimExpr

X, Y, Z, P = (tir.Var(n) for n in "xyzp")


Point = dict[tir.Var, int]


def values_of(dom: tir.Range, fixed: Point) -> range:
    low = int(evaluate(dom.min, fixed))
    return range(low, low + int(evaluate(dom.extent, fixed)))


def solutions(constraints: arith.IntConstraints, fixed: Point) -> list[Point]:
    """All values of the variables for which ranges and relations hold."""
    spaces = [values_of(constraints.ranges[var], fixed) for var in constraints.variables]
    points = [{**fixed, **dict(zip(constraints.variables, v, strict=True))} for v in itertools.product(*spaces)]
    return list(itertools.compress(points, holding(constraints.relations, points)))


def check(solved: arith.IntConstraintsTransform, fixed: Point) -> int:
    """Solutions of one system are those of the other, one for one; gives their number."""

    def through(points: list[Point], by: Mapping[tir.Var, PrimExpr]) -> list[Point]:
        return [{**fixed, **point} for point in mapped(by, points)]

    source, target = solutions(solved.src, fixed), solutions(solved.dst, fixed)
    if solved.src_to_dst or not solved.src.variables:
        back = through(target, solved.src_to_dst)
        assert all(point in source for point in back)
        assert all(point in target for point in through(source, solved.dst_to_src))
        assert through(back, solved.dst_to_src) == target
    else:
        assert not target
    assert len(source) == len(target)
    return len(source)


def random_system(numbers: np.random.Generator, variables: list[tir.Var]) -> list[PrimExpr]:
    def side() -> PrimExpr:
        total = tir.const(int(numbers.integers(-5, 6)))
        for var in variables:
            total = total + var * int(numbers.integers(-3, 4))
        return total

    kinds = [tir.EQ, tir.EQ, tir.EQ, tir.LE, tir.LT, tir.GE]
    return [kinds[numbers.integers(len(kinds))](side(), side()) for _ in range(int(numbers.integers(1, 5)))]


def test_random_systems() -> None:
    numbers = np.random.default_rng(0)
    counts = []
    for _ in range(60):
        variables = [X, Y, Z][: int(numbers.integers(1, 4))]
        ranges = {v: tir.Range(int(low := numbers.integers(-6, 2)), int(low + 8)) for v in (*variables, P)}
        fixed = {P: int(ranges[P].min.value) + 3}  # type: ignore[attr-defined]
        system = random_system(numbers, [*variables, P])
        counts.append(check(arith.solve_linear_equations(system, variables, ranges), fixed))
    assert 0 in counts and sum(count > 0 for count in counts) > 10


def test_one_solution() -> None:
    solved = arith.solve_linear_equations([tir.EQ(X + Y, 20), tir.EQ(X - Y, 10)], [X, Y])
    assert {var: int(value) for var, value in solved.src_to_dst.items()} == {X: 15, Y: 5}
    assert solved.dst.variables == () and solved.dst.relations == ()


def test_no_solution() -> None:
    for system in ([tir.EQ(X + Y, 0), tir.EQ(X - Y, 0), tir.EQ(X, 5)], [tir.EQ(X * 2 + Y * 4, 3)]):
        solved = arith.solve_linear_equations(system, [X, Y])
        (relation,) = solved.dst.relations
        assert structural_equal(relation, False)
        assert solved.src_to_dst == {} and solved.dst.variables == ()


def test_what_is_constant_must_fit() -> None:
    solved = arith.solve_linear_equations([tir.EQ(X * 2, P), tir.EQ(X + Y, P), tir.EQ(X + Y, Z)], [X, Y])
    relations = {repr(relation) for relation in solved.dst.relations}
    assert any("floormod(p, 2)" in relation for relation in relations) and len(relations) == 2
    assert solved.dst.variables == ()


def test_ranges_of_new_variables() -> None:
    ranges = {X: tir.Range(-5, 5), Y: tir.Range(0, 10)}
    solved = arith.solve_linear_equations([tir.EQ(X + Y, 0)], [X, Y], ranges)
    (new,) = solved.dst.variables
    assert (int(solved.dst.ranges[new].min), int(solved.dst.ranges[new].extent)) == (-9, 10)
    assert solved.src_to_dst[X] is new
    assert [repr(relation) for relation in solved.dst.relations] == ["(-5 <= n0)"]


def test_nothing_to_solve_for() -> None:
    system = [tir.EQ(X + Y, 20), tir.EQ(X - Y, 10)]
    solved = arith.solve_linear_equations(system)
    assert solved.src_to_dst == {} and solved.src is solved.dst
    assert solved.src.relations == tuple(system)
