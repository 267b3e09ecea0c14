"""Random expressions have the same value before and after simplification."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.arith.evaluate import evaluate

from tilewright import tir
from tilewright.arith import Analyzer, IntSet, eval_set
from tilewright.ir import prim_ops as ops
from tilewright.tir import expr as e

X, Y, Z = tir.Var("x"), tir.Var("y"), tir.Var("z")
DOMAINS = {X: (0, 7), Y: (-5, 12), Z: (0, 3)}
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")
SLOW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))

literals = st.integers(-9, 17).map(lambda v: e.IntImm("int32", v))
divisors = st.sampled_from([-3, 1, 2, 3, 4, 6, 8, 16]).map(lambda v: e.IntImm("int32", v))
positive = st.sampled_from([1, 2, 3, 4, 6, 8, 16]).map(lambda v: e.IntImm("int32", v))


def grow_index(inner):
    pair = st.tuples(inner, inner)
    return st.one_of(
        pair.map(lambda p: e.Add(*p)), pair.map(lambda p: e.Sub(*p)), pair.map(lambda p: e.Min(*p)),
        pair.map(lambda p: e.Max(*p)), st.tuples(inner, literals).map(lambda p: e.Mul(*p)),
        st.tuples(inner, divisors).map(lambda p: e.FloorDiv(*p)),
        st.tuples(inner, divisors).map(lambda p: e.FloorMod(*p)),
        st.tuples(inner, positive).map(lambda p: e.FloorDiv(*p)),
        st.tuples(inner, positive).map(lambda p: e.FloorMod(*p)),
        st.tuples(inner, positive).map(lambda p: e.Div(*p)), st.tuples(inner, positive).map(lambda p: e.Mod(*p)),
        st.tuples(conditions(inner), inner, inner).map(lambda p: e.Select(*p)),
        st.tuples(conditions(inner), inner, inner).map(lambda p: tir.if_then_else(*p)),
    )  # fmt: skip


def conditions(index):
    compare = st.tuples(st.sampled_from([e.LT, e.LE, e.GT, e.GE, e.EQ, e.NE]), index, index).map(
        lambda p: p[0](p[1], p[2])
    )
    return st.recursive(
        compare,
        lambda c: st.one_of(
            st.tuples(c, c).map(lambda p: e.And(*p)), st.tuples(c, c).map(lambda p: e.Or(*p)), c.map(e.Not),
            c.map(tir.likely),
        ),
        max_leaves=3,
    )  # fmt: skip


LEAVES = [X, Y, Z, e.Mul(X, Y), e.Mul(Y, X), e.Mul(e.Add(X, e.IntImm("int32", 1)), Y)]
indices = st.recursive(st.one_of(st.sampled_from(LEAVES), literals), grow_index, max_leaves=9)


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
    for point in where:
        np.testing.assert_array_equal(
            evaluate(before, point), evaluate(after, point), f"{before} and {after} at {point}"
        )


@SLOW
@given(indices)
def test_index_expressions_keep_their_value(expr) -> None:
    assert_equal_everywhere(expr, bound_analyzer().simplify(expr))


@SLOW
@given(conditions(indices))
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
    for point in POINTS:
        value = int(evaluate(expr, point))
        assert low <= value <= high
        assert (value - base) % coeff == 0 if coeff else value == base


@SLOW
@given(indices)
def test_raw_bounds_hold_without_simplification(expr) -> None:
    analyzer = bound_analyzer()
    low, high = analyzer.bounds.bound(expr)
    for point in POINTS:
        assert low <= int(evaluate(expr, point)) <= high


@SLOW
@given(conditions(indices), indices)
def test_under_a_condition_values_are_kept_where_it_holds(condition, expr) -> None:
    where = [p for p in POINTS if evaluate(condition, p)]
    analyzer = bound_analyzer()
    with analyzer.constraint_scope(condition):
        simple = analyzer.simplify(expr)
    assert_equal_everywhere(expr, simple, where)
    assert_equal_everywhere(expr, analyzer.simplify(expr))


@SLOW
@given(indices)
def test_interval_sets_hold_all_values(expr) -> None:
    values = eval_set(expr, {X: IntSet.interval(*DOMAINS[X]), Z: IntSet.interval(*DOMAINS[Z])}, bound_analyzer())
    for point in POINTS:
        value = int(evaluate(expr, point))
        assert values.low is None or int(evaluate(values.low, point)) <= value
        assert values.high is None or value <= int(evaluate(values.high, point))


lanes = st.sampled_from([2, 4, 8])


@st.composite
def vectors(draw):
    """Arithmetic on ramps and broadcasts."""
    n = draw(lanes)

    def leaf():
        index = draw(st.recursive(st.one_of(st.sampled_from([X, Y]), literals), grow_index, max_leaves=3))
        if draw(st.booleans()):
            return e.Broadcast(index, n)
        return e.Ramp(index, draw(literals), n)

    result = leaf()
    for _ in range(draw(st.integers(1, 4))):
        cls = draw(st.sampled_from([e.Add, e.Sub, e.Mul, e.Min, e.Max, e.FloorDiv, e.FloorMod, e.LT]))
        if cls in (e.FloorDiv, e.FloorMod):
            other = e.Broadcast(draw(positive), n)
        else:
            other = leaf()
        if cls is e.LT:
            return e.LT(result, other)
        result = cls(result, other)
    return result


@SLOW
@given(vectors())
def test_vectors_keep_their_lanes(expr) -> None:
    assert_equal_everywhere(expr, bound_analyzer().simplify(expr))


@settings(SLOW, max_examples=10)
@given(st.one_of(indices, conditions(indices), vectors()))
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
@given(st.one_of(indices, conditions(indices)))
def test_many_expressions_keep_their_value(expr) -> None:
    for simplified in (bound_analyzer().simplify(expr), bound_analyzer().rewrite_simplify(expr)):
        assert_equal_everywhere(expr, simplified)
