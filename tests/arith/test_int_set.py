"""Interval sets with symbolic ends."""

from __future__ import annotations

import itertools

import pytest

from tilewright import tir
from tilewright.arith import (
    Analyzer,
    IntervalSet,
    IntSet,
    deduce_bound,
    detect_clip_bound,
    detect_linear_equation,
    eval_set,
    int_set,
    intersect,
    union,
    union_lower_bound,
)
from tilewright.tir.visitor import substitute

IV, J, N, S = (tir.Var(n) for n in "ijns")
DOMAINS = {IV: tir.Range(0, 8), J: tir.Range(0, N)}

EXAMPLES = [
    (IV * 4 + J, "IntervalSet[0, (n + 27)]"),
    (10 - IV, "IntervalSet[3, 10]"),
    (S + IV, "IntervalSet[s, (s + 7)]"),
    (IV // 2, "IntervalSet[0, 3]"),
    (IV % 3, "IntervalSet[0, 2]"),
    ((IV + 8) % 16, "IntervalSet[8, 15]"),
    (IV * S, "IntervalSet[-inf, +inf]"),
    (tir.min(IV, 5), "IntervalSet[0, 5]"),
    (tir.Select(J < 3, IV, IV + 10), "IntervalSet[0, 17]"),
    (tir.Load("int32", tir.Var("A", "handle"), IV), "IntervalSet[-inf, +inf]"),
    (tir.Load("int32", tir.Var("A", "handle"), S), "IntervalSet[A[s], A[s]]"),
    (IV - IV, "IntervalSet[0, 0]"),
    # every fourth number: what is left of a division by 4 is one value
    ((IV * 4 + S) % 4, "IntervalSet[floormod(s, 4), floormod(s, 4)]"),
    ((3 - IV * 8) % 4, "IntervalSet[3, 3]"),
    (((IV * 8 + 3) // 2) % 4, "IntervalSet[1, 1]"),
    ((IV * 4 + J * 6 + 1) % 2, "IntervalSet[1, 1]"),
    ((IV * 4 + J * 6) % 4, "IntervalSet[0, 3]"),
]


@pytest.mark.parametrize(("expr", "text"), EXAMPLES, ids=[repr(e) for e, _ in EXAMPLES])
def test_values_of_an_expression(expr: tir.PrimExpr, text: str) -> None:
    assert repr(eval_set(expr, DOMAINS)) == text


def test_union_and_intersection() -> None:
    a, b = IntSet.interval(0, 4), IntSet.interval(3, 9)
    assert repr(union([a, b])) == "IntervalSet[0, 9]"
    assert repr(intersect([a, b])) == "IntervalSet[3, 4]"
    assert union([]).is_nothing()
    assert union([a, IntSet.everything()]).is_everything()


def test_covering_ranges() -> None:
    covered = IntSet.interval(2, 5).cover_range()
    assert (int(covered.min), int(covered.extent)) == (2, 4)
    point = IntSet.single_point(IV).cover_range()
    assert point.min is IV
    assert int(point.extent) == 1
    with pytest.raises(ValueError, match="unbounded"):
        IntSet.everything().cover_range()


def test_linear_equations() -> None:
    assert [repr(c) for c in detect_linear_equation(IV * 4 + J * N + 3, [IV, J])] == ["4", "n", "3"]
    assert [repr(c) for c in detect_linear_equation((IV + J) * N, [IV, J])] == ["n", "n", "0"]
    assert detect_linear_equation(IV * J, [IV, J]) == []
    assert detect_linear_equation(IV // 2, [IV]) == []


def test_clip_bounds() -> None:
    bounds = detect_clip_bound(tir.all(IV < N, IV >= 2, J < 5), [IV, J])
    assert [None if b is None else repr(b) for b in bounds] == ["2", "(n - 1)", None, "4"]
    assert detect_clip_bound(IV * IV < 4, [IV]) == []


def test_deduced_bounds() -> None:
    assert repr(deduce_bound(IV, IV * 8 + J < N, {}, {J: tir.Range(0, 8)})) == "IntervalSet[-inf, (floordiv(n, 8) - 1)]"
    assert repr(deduce_bound(IV, IV >= J, {}, {J: tir.Range(0, 8)})) == "IntervalSet[7, +inf]"
    assert deduce_bound(IV, IV * J < N, {}, {}).is_nothing()
    assert deduce_bound(IV, IV + J, {}, {}).is_nothing()
    assert repr(deduce_bound(IV, N + 3 == IV, {}, {})) == "IntervalSet[(n + 3), (n + 3)]"
    assert deduce_bound(IV, IV == J, {}, {J: tir.Range(0, 8)}).is_nothing()
    assert deduce_bound(IV, IV * 4 == N, {}, {}).is_nothing()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("strict", [True, False])
def test_bounds_of_a_variable_times_another_of_known_sign(sign: int, strict: bool) -> None:
    """Every value is compared with the condition: the bound is exact."""
    scale = range(1, 4) if sign > 0 else range(-3, 0)
    cases = [(IV * S + J, lambda i, s, j: i * s + j), (J - IV * S, lambda i, s, j: j - i * s)]
    for e, value in cases:
        found = deduce_bound(
            IV, e < N if strict else e <= N, {S: IntervalSet(scale[0], scale[-1])}, {J: tir.Range(0, 3)}
        )
        assert not found.is_nothing()
        for s, n in itertools.product(scale, range(-5, 6)):
            low, high = end_at(found.low, {S: s, N: n}), end_at(found.high, {S: s, N: n})
            for i in range(-12, 13):
                holds = all(value(i, s, j) < n + (not strict) for j in range(3))
                assert ((low is None or low <= i) and (high is None or i <= high)) == holds


def end_at(end: tir.PrimExpr | None, values: dict[tir.Var, int]) -> int | None:
    return None if end is None else int(Analyzer().simplify(substitute(end, values)))


def test_ends_that_there_are_not() -> None:
    low, high = int_set.neg_inf(), int_set.pos_inf()
    half = IntervalSet(low, 3)
    assert half.min_value is low and int(half.max_value) == 3
    assert not half.is_nothing() and repr(half) == "IntervalSet[-inf, 3]"
    assert IntervalSet(low, high).is_everything()
    assert IntervalSet(high, low).is_nothing() and IntSet.nothing().is_nothing()
    assert repr(eval_set(IV * 2 + 1, {IV: IntervalSet(2, 5)})) == "IntervalSet[5, 11]"


def test_unions_that_are_intervals() -> None:
    def lower_bound(*ends: tuple[object, object]) -> str:
        return repr(union_lower_bound([IntervalSet(*pair) for pair in ends]))

    assert lower_bound((0, 4), (5, 9)) == "IntervalSet[0, 9]"
    assert lower_bound((5, 9), (0, 4)) == "IntervalSet[0, 9]"
    assert lower_bound((0, 4), (6, 9)) == "IntervalSet[0, 4]"
    assert lower_bound((N, N + 4), (N + 2, N + 9)) == "IntervalSet[n, (n + 9)]"
    assert lower_bound((0, 4), (N, 9)) == "IntervalSet[0, 4]"
    assert union_lower_bound([IntervalSet(int_set.neg_inf(), 0), IntervalSet(1, int_set.pos_inf())]).is_everything()
    assert union_lower_bound([]).is_nothing()
