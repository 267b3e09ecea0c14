"""Systems of inequalities: the ranges and relations that are found hold for all solutions, and for nothing else."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.arith.evaluate import evaluate, evaluate_all, holding, mapped

from tilewright import arith, tir
from tilewright.arith.inequalities import solve_as_condition
from tilewright.ir import assert_structural_equal
from tilewright.ir.prim_expr import PrimExpr

X, Y, Z = (tir.Var(n) for n in "xyz")
VARIABLES = (X, Y, Z)
Point = dict[tir.Var, int]


def inside(constraints: arith.IntConstraints, points: Sequence[Point]) -> np.ndarray:
    """Whether ranges and relations hold, for each point."""
    held = holding(constraints.relations, points)
    for var, dom in constraints.ranges.items():
        low, extent = (evaluate_all(x, points)[:, 0] for x in (dom.min, dom.extent))
        at = np.array([point[var] for point in points])
        held &= (low <= at) & (at < low + extent)
    return held


def solutions(relations: Sequence[PrimExpr], ranges: dict[tir.Var, tir.Range]) -> list[Point]:
    spaces = [range(int(r.min), int(r.min) + int(r.extent)) for r in ranges.values()]  # type: ignore[call-overload]
    points = [dict(zip(ranges, values, strict=True)) for values in itertools.product(*spaces)]
    return list(itertools.compress(points, holding(relations, points)))


@pytest.mark.parametrize("seed", range(12))
def test_random_systems(seed: int) -> None:
    rng = random.Random(seed)
    variables = VARIABLES[: rng.randint(1, 3)]
    ranges = {v: tir.Range(-4, rng.randint(-1, 4)) for v in variables}
    relations: list[PrimExpr] = []
    for _ in range(rng.randint(1, 3)):
        left: Any = tir.const(rng.randint(-3, 3))
        for v in variables:
            left = left + v * rng.randint(-2, 2)
        kind = rng.choice([tir.LE, tir.LT, tir.GE, tir.GT])
        relations.append(kind(left, tir.const(rng.randint(-4, 4))))
    wanted = solutions(relations, ranges)
    solved = arith.solve_linear_inequalities(relations, variables, ranges)
    box = [dict(zip(variables, p, strict=True)) for p in itertools.product(range(-8, 9), repeat=len(variables))]
    assert list(itertools.compress(box, inside(solved, box))) == wanted
    moved = arith.solve_linear_inequalities(relations, variables, ranges, deskew_range=True)
    found = []
    there = mapped(moved.dst_to_src, box)
    for p, new, back, held in zip(box, there, mapped(moved.src_to_dst, there), inside(moved.dst, there), strict=True):
        if held and (back == p or len(new) == len(p)):  # a variable of one value has no new one
            assert back == p
            found.append(p)
    assert found == wanted


def test_ranges_speak_of_the_variables_after() -> None:
    ranges = {X: tir.Range(-100, 100), Y: tir.Range(0, 10)}
    problem = [tir.LE(X + Y, 20), tir.GE(X - Y, 10)]
    solved = arith.solve_linear_inequalities(problem, [X, Y], ranges)
    assert_structural_equal(solved.ranges[Y], tir.Range(0, 6))
    assert_structural_equal(solved.ranges[X], tir.Range.from_min_extent(Y + 10, 11))
    (relation,) = solved.relations
    assert_structural_equal(relation, tir.LE(X, 20 - Y))
    moved = arith.solve_linear_inequalities(problem, [X, Y], ranges, deskew_range=True)
    assert [moved.dst.ranges[v].extent.value for v in moved.dst.variables] == [11, 6]
    assert len(moved.dst.relations) == 1


def test_other_variables_are_constants() -> None:
    n = tir.SizeVar("n")
    solved = arith.solve_linear_inequalities([tir.GE(X, n), tir.LE(X * 2, n * 2 + 7)], [X])
    assert_structural_equal(solved.ranges[X].min, n)
    assert evaluate(solved.ranges[X].extent, {n: 9}) == 4


def test_what_has_one_bound_has_no_range() -> None:
    solved = arith.solve_linear_inequalities([X >= 3, X * X <= 50], [X])
    assert not solved.ranges
    assert np.flatnonzero(inside(solved, [{X: p} for p in range(12)])).tolist() == [3, 4, 5, 6, 7]


def test_a_system_without_solutions() -> None:
    solved = arith.solve_linear_inequalities([X >= 3, X <= 2], [X])
    assert [r.value for r in solved.relations] == [0]
    moved = arith.solve_linear_inequalities([X >= 3, X <= 2], [X], deskew_range=True)
    assert not moved.dst.variables and not moved.src_to_dst
    assert [r.value for r in moved.dst.relations] == [0]


def test_bounds_as_conditions() -> None:
    ranges = {X: tir.Range(-100, 100), Y: tir.Range(0, 10)}
    found = solve_as_condition([X, Y], ranges, [tir.LE(X + Y, 20), tir.GE(X - Y, 10)])
    for relation, wanted in zip(found, [X >= Y + 10, X <= 20 - Y, Y >= 0, Y <= 5], strict=True):
        assert_structural_equal(relation, wanted)
    by_name = arith._ffi_api.SolveInequalitiesAsCondition([X], {}, [tir.LE(X, 4), tir.GE(X, 4)])
    assert_structural_equal(by_name[0], X.equal(4))


@pytest.mark.parametrize("seed", range(4))
def test_random_conditions(seed: int) -> None:
    rng = random.Random(seed)
    ranges = {v: tir.Range(-3, 4) for v in VARIABLES}
    relations = [tir.LE(sum((v * rng.randint(-2, 2) for v in VARIABLES), tir.const(rng.randint(-3, 3))), 0)] * 2
    found = solve_as_condition(VARIABLES, ranges, relations)
    box = [dict(zip(VARIABLES, p, strict=True)) for p in itertools.product(range(-4, 5), repeat=3)]
    assert list(itertools.compress(box, holding(found, box))) == solutions(relations, ranges)


def test_a_variable_of_one_value() -> None:
    problem = [tir.LE(X, 6), tir.GE(X, 6), tir.GE(X - Z * Y, 0), tir.LE(X - Z * Y, 0)]
    solved = arith.solve_linear_inequalities(problem, [X, Y, Z])
    assert_structural_equal(solved.ranges[X], tir.Range.from_min_extent(6, 1))
    wanted = [p for p in ({X: 6, Y: y, Z: z} for y in range(8) for z in range(8)) if p[Y] * p[Z] == 6]
    box = [dict(zip(VARIABLES, p, strict=True)) for p in itertools.product(range(5, 8), range(8), range(8))]
    assert list(itertools.compress(box, inside(solved, box))) == wanted
    moved = arith.solve_linear_inequalities(problem, [X, Y, Z], deskew_range=True)
    assert [v.name for v in moved.dst.variables] == ["y", "z"]
    assert_structural_equal(moved.src_to_dst[X], tir.const(6))


def test_bounds_of_a_range() -> None:
    bounds: Any = arith.IntGroupBounds.from_range(tir.Range(2, 10))
    assert [b.value for b in (bounds.coef, *bounds.lower, *bounds.upper)] == [1, 2, 9]
