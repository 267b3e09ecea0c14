"""Random expressions have the same value before and after simplification."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.arith.evaluate import evaluate_all

from tilewright import tir
from tilewright.arith import Analyzer, IntSet, eval_set
from tilewright.ir import prim_ops as ops
from tilewright.tir import expr as e

X, Y, Z = tir.Var("x"), tir.Var("y"), tir.Var("z")
DOMAINS = {X: (0, 7), Y: (-5, 12), Z: (0, 3)}
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")
SLOW = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))

literals = st.integers(-9, 17).map(lambda v: e.IntImm("int32", v))
divisors = st.sampled_from([-3, 1, 2, 3, 4, 6, 8, 16]).map(lambda v: e.IntImm("int32", v))
positive = st.sampled_from([1, 2, 3, 4, 6, 8, 16]).map(lambda v: e.IntImm("int32", v))


LEAVES = [X, Y, Z, e.Mul(X, Y), e.Mul(Y, X), e.Mul(e.Add(X, e.IntImm("int32", 1)), Y)]
leaf = st.one_of(st.sampled_from(LEAVES), literals)


def parted(draw, leaves: int, count: int) -> list[int]:
    """Draw ``count`` positive numbers whose sum is ``leaves``."""
    cuts = sorted(draw(st.sets(st.integers(1, leaves - 1), min_size=count - 1, max_size=count - 1)))
    return [high - low for low, high in itertools.pairwise([0, *cuts, leaves])]


# What st.recursive draws it throws away where it has too many leaves: that took nine tenths of these tests' time.
@st.composite
def indices_of(draw, leaves: int):
    """Index expressions of at most so many leaves, numbers that multiply or divide not counted."""
    if leaves == 1:
        return draw(leaf)
    kind = draw(st.sampled_from(["pair", "scaled", "divided", *["chosen"] * (leaves >= 4)]))
    match kind:
        case "pair":
            a, b = (draw(indices_of(n)) for n in parted(draw, leaves, 2))
            return draw(st.sampled_from([e.Add, e.Sub, e.Min, e.Max]))(a, b)
        case "scaled":
            return e.Mul(draw(indices_of(leaves - 1)), draw(literals))
        case "divided":
            cls = draw(st.sampled_from([e.FloorDiv, e.FloorMod, e.Div, e.Mod]))
            by = draw(positive if cls in (e.Div, e.Mod) else st.one_of(divisors, positive))
            return cls(draw(indices_of(leaves - 1)), by)
        case _:
            rest, a, b = parted(draw, leaves - 1, 3)  # a condition has two leaves
            chosen = draw(conditions_of(rest + 1)), draw(indices_of(a)), draw(indices_of(b))
            return draw(st.sampled_from([e.Select, tir.if_then_else]))(*chosen)


@st.composite
def conditions_of(draw, leaves: int):
    """Conditions on indices of at most so many leaves, of two at least."""
    kind = draw(st.sampled_from(["compare", "compare", "not", "likely", *["and", "or"] * (leaves >= 4)]))
    match kind:
        case "compare":
            a, b = (draw(indices_of(n)) for n in parted(draw, leaves, 2))
            return draw(st.sampled_from([e.LT, e.LE, e.GT, e.GE, e.EQ, e.NE]))(a, b)
        case "not" | "likely":
            inner = draw(conditions_of(leaves - 1 if leaves > 2 else 2))
            return e.Not(inner) if kind == "not" else tir.likely(inner)
        case _:
            n = draw(st.integers(2, leaves - 2))
            cls = e.And if kind == "and" else e.Or
            return cls(draw(conditions_of(n)), draw(conditions_of(leaves - n)))


indices = st.integers(1, 9).flatmap(indices_of)
conditions = st.integers(2, 18).flatmap(conditions_of)


def points():
    """A grid of values in the domains, with all corners."""
    axes = [sorted({low, high, *range(low, high + 1, 2)}) for low, high in DOMAINS.values()]
    return [dict(zip(DOMAINS, point, strict=True)) for point in itertools.product(*axes)]


POINTS = points()


def bound_analyzer() -> Analyzer:
    analyzer = Analyzer()
    for var, (low, high) in DOMAINS.items():
        analyzer.bind(var, tir.Range(low, high + 1))
    return analyzer


def assert_equal_everywhere(before, after, where=POINTS) -> None:
    assert before.dtype == after.dtype
    if where:
        values, message = evaluate_all(before, where), f"{before} and {after}, a row for each point"
        np.testing.assert_array_equal(values, evaluate_all(after, where), message)


def whole_numbers(expr) -> np.ndarray:
    """The values of an index at all points, without bounds."""
    return evaluate_all(expr, POINTS).astype(object)


@SLOW
@given(indices)
def test_index_expressions_keep_their_value(expr) -> None:
    assert_equal_everywhere(expr, bound_analyzer().simplify(expr))


@SLOW
@given(conditions)
def test_conditions_keep_their_value(expr) -> None:
    assert_equal_everywhere(expr, bound_analyzer().simplify(expr))


@SLOW
@given(indices)
def test_simplifying_twice_changes_nothing_more_in_value(expr) -> None:
    analyzer = bound_analyzer()
    once = analyzer.simplify(expr)
    assert analyzer.simplify(once) is once


@SLOW
@given(indices)
def test_bounds_and_modular_sets_hold(expr) -> None:
    analyzer = bound_analyzer()
    low, high = analyzer.const_int_bound(expr)
    coeff, base = analyzer.modular_set(expr)
    values = whole_numbers(expr)
    assert low <= values.min() and values.max() <= high
    assert np.all((values - base) % coeff == 0 if coeff else values == base)


@SLOW
@given(indices)
def test_raw_bounds_hold_without_simplification(expr) -> None:
    analyzer = bound_analyzer()
    low, high = analyzer.bounds.bound(expr)
    values = whole_numbers(expr)
    assert low <= values.min() and values.max() <= high


@SLOW
@given(conditions, indices)
def test_under_a_condition_values_are_kept_where_it_holds(condition, expr) -> None:
    holds = evaluate_all(condition, POINTS)[:, 0]
    where = [point for point, held in zip(POINTS, holds, strict=True) if held]
    analyzer = bound_analyzer()
    with analyzer.constraint_scope(condition):
        simple = analyzer.simplify(expr)
    assert_equal_everywhere(expr, simple, where)
    assert_equal_everywhere(expr, analyzer.simplify(expr))


@SLOW
@given(indices)
def test_interval_sets_hold_all_values(expr) -> None:
    values = eval_set(expr, {X: IntSet.interval(*DOMAINS[X]), Z: IntSet.interval(*DOMAINS[Z])}, bound_analyzer())
    found = whole_numbers(expr)
    assert values.low is None or np.all(whole_numbers(values.low) <= found)
    assert values.high is None or np.all(found <= whole_numbers(values.high))


lanes = st.sampled_from([2, 4, 8])


@st.composite
def vectors(draw):
    """Arithmetic on ramps and broadcasts."""
    n = draw(lanes)

    def lanes_of():
        index = draw(st.integers(1, 3).flatmap(indices_of))
        if draw(st.booleans()):
            return e.Broadcast(index, n)
        return e.Ramp(index, draw(literals), n)

    result = lanes_of()
    for _ in range(draw(st.integers(1, 4))):
        cls = draw(st.sampled_from([e.Add, e.Sub, e.Mul, e.Min, e.Max, e.FloorDiv, e.FloorMod, e.LT]))
        if cls in (e.FloorDiv, e.FloorMod):
            other = e.Broadcast(draw(positive), n)
        else:
            other = lanes_of()
        if cls is e.LT:
            return e.LT(result, other)
        result = cls(result, other)
    return result


@SLOW
@given(vectors())
def test_vectors_keep_their_lanes(expr) -> None:
    assert_equal_everywhere(expr, bound_analyzer().simplify(expr))


@settings(SLOW, max_examples=20)
@given(st.one_of(indices, conditions, vectors()))
def test_rewriting_step_by_step_keeps_values(expr) -> None:
    assert_equal_everywhere(expr, bound_analyzer().rewrite_simplify(expr))


NARROW = ["uint8", "int8", "int16", "uint16", "uint32", "float32", "float64"]


@st.composite
def narrow_expressions(draw):
    """Arithmetic that wraps around, or rounds."""
    dtype = draw(st.sampled_from(NARROW))
    a, b = tir.Var("a", dtype), tir.Var("b", dtype)

    def leaf():
        low = 0 if dtype.startswith("uint") else -100
        return draw(st.one_of(st.sampled_from([a, b]), st.integers(low, 100).map(lambda v: ops.const(v, dtype))))

    result = leaf()
    for _ in range(draw(st.integers(1, 6))):
        cls = draw(st.sampled_from([e.Add, e.Sub, e.Mul, e.Min, e.Max]))
        result = cls(result, leaf()) if draw(st.booleans()) else cls(leaf(), result)
    if draw(st.booleans()):
        result = e.LT(result, leaf())
    samples = [0, 1, 7, 100] if dtype.startswith("uint") else [-100, -1, 0, 1, 100]
    return result, [{a: x, b: y} for x in samples for y in samples]


@SLOW
@given(narrow_expressions())
def test_other_dtypes_wrap_and_round_as_before(sample) -> None:
    expr, where = sample
    for simplified in (Analyzer().simplify(expr), Analyzer().rewrite_simplify(expr)):
        assert_equal_everywhere(expr, simplified, where)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(SLOW, max_examples=4_000)
@given(st.one_of(indices, conditions))
def test_many_expressions_keep_their_value(expr) -> None:
    for simplified in (bound_analyzer().simplify(expr), bound_analyzer().rewrite_simplify(expr)):
        assert_equal_everywhere(expr, simplified)
