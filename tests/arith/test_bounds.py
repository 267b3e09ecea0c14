"""Constant bounds and modular sets, by example."""

from __future__ import annotations

import itertools

import pytest

from tilewright import tir
from tilewright.arith import NEG_INF, POS_INF, Analyzer, ConstIntBound, ModularSet

X, Y = tir.Var("x"), tir.Var("y")
INT32 = (-(2**31), 2**31 - 1)

BOUNDS = [
    (X + Y * 2, (-6, 17)),
    (X - Y, (-4, 12)),
    (X * Y, (-27, 36)),
    (X // 4, (0, 2)),
    (Y // 2, (-2, 2)),
    (X % 4, (0, 3)),
    (Y % 4, (0, 3)),
    (tir.min(X, Y), (-3, 4)),
    (tir.max(X, Y), (0, 9)),
    (tir.Select(X < 3, X, Y + 20), (0, 24)),
    (tir.Cast("int64", X), (0, 9)),
    (tir.Load("uint8", tir.Var("A", "handle"), X), (0, 255)),
    (tir.Load("int32", tir.Var("A", "handle"), X), INT32),
    (tir.Var("free"), INT32),
    (tir.SizeVar("size"), (0, INT32[1])),
    (tir.Var("wide", "int64"), (NEG_INF, POS_INF)),
    (X >> 1, (0, 4)),
    (X & 7, (0, 7)),
]


def analyzer() -> Analyzer:
    """0 <= x <= 9, -3 <= y <= 4."""
    made = Analyzer()
    made.bind(X, tir.Range(0, 10))
    made.bind(Y, tir.Range(-3, 5))
    return made


@pytest.mark.parametrize(("expr", "bound"), BOUNDS, ids=[repr(e) for e, _ in BOUNDS])
def test_bounds(expr: tir.PrimExpr, bound: tuple[int, int]) -> None:
    assert analyzer().const_int_bound(expr) == ConstIntBound(*bound)


MODULAR = [
    (X * 4 + 3, (4, 3)),
    (X * 4 + Y * 6 + 1, (2, 1)),
    (X * 4 * Y, (4, 0)),
    (tir.min(X * 4, Y * 4 + 2), (2, 0)),
    (tir.const(7), (0, 7)),
    (X, (1, 0)),
    ((X * 4 + 6) >> 1, (2, 1)),
    ((X * 4 + 6) >> 3, (1, 0)),
]


@pytest.mark.parametrize(("expr", "expected"), MODULAR, ids=[repr(e) for e, _ in MODULAR])
def test_modular_sets(expr: tir.PrimExpr, expected: tuple[int, int]) -> None:
    assert Analyzer().modular_set(expr) == ModularSet(*expected)


def test_remainders_that_are_known_together() -> None:
    """Chinese remainders: of all numbers that leave both, none is missed and none is added."""
    for first, second in itertools.product(range(1, 9), repeat=2):
        for a, b in itertools.product(range(first), range(second)):
            numbers = [n for n in range(200) if n % first == a and n % second == b]
            if not numbers:
                continue
            made = Analyzer()
            with made.constraint_scope(tir.all(X % first == a, tir.truncmod(X, second) == b)):
                coeff, base = made.modular_set(X)
            assert [n for n in range(200) if (n % coeff if coeff else n) == base] == numbers


def test_arithmetic_that_wraps_has_the_bounds_of_its_dtype() -> None:
    narrow = tir.Var("u", "uint8")
    assert Analyzer().const_int_bound(narrow + tir.const(200, "uint8")) == ConstIntBound(0, 255)


def truncdiv(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


DIVISIONS = {
    "floordiv": (tir.floordiv, lambda a, b: a // b),
    "floormod": (tir.floormod, lambda a, b: a % b),
    "truncdiv": (tir.truncdiv, truncdiv),
    "truncmod": (tir.truncmod, lambda a, b: a - b * truncdiv(a, b)),
}
INTERVALS = [(low, high) for low in range(-4, 5) for high in range(low, 5)]


@pytest.mark.parametrize("name", DIVISIONS)
def test_no_quotient_or_remainder_of_an_interval_is_outside_of_its_bound(name: str) -> None:
    build, compute = DIVISIONS[name]
    for a, b in itertools.product(INTERVALS, repeat=2):
        made = Analyzer()
        made.update(X, ConstIntBound(*a))
        made.update(Y, ConstIntBound(*b))
        low, high = made.bounds.bound(build(X, Y))
        values = [compute(i, j) for i in range(a[0], a[1] + 1) for j in range(b[0], b[1] + 1) if j]
        if values and b[0]:
            assert low <= min(values), (a, b)
            assert max(values) <= high, (a, b)
            assert not name.endswith("div") or (low, high) == (min(values), max(values)), (a, b)


def test_nothing_follows_of_a_divisor_that_is_an_extent() -> None:
    """Loops over an extent of 0 do not run; what follows of the others would hide how they are split."""
    made = Analyzer()
    made.update(Y, ConstIntBound(0, 1))
    for build, _ in DIVISIONS.values():
        assert made.bounds.bound(build(X, Y)) == (NEG_INF, POS_INF)


def test_quotients_of_intervals_without_an_end() -> None:
    made = Analyzer()
    wide, divisor = tir.Var("wide", "int64"), tir.Var("divisor", "int64")
    made.update(wide, ConstIntBound(NEG_INF, 4))
    made.update(divisor, ConstIntBound(2, POS_INF))
    assert made.const_int_bound(tir.floordiv(wide, divisor)) == ConstIntBound(NEG_INF, 2)
    made.update(divisor, ConstIntBound(-2, 1))
    assert made.const_int_bound(tir.truncdiv(wide, divisor)) == ConstIntBound(NEG_INF, POS_INF)


@pytest.mark.parametrize(("shift", "bound"), [((2, 10), (-3, 2)), ((0, 1), (-9, 11)), ((70, 80), INT32)])
def test_shifts_by_several_numbers(shift: tuple[int, int], bound: tuple[int, int]) -> None:
    made = Analyzer()
    made.update(X, ConstIntBound(-9, 11))
    made.update(Y, ConstIntBound(*shift))
    assert made.const_int_bound(X >> Y) == ConstIntBound(*bound)


@pytest.mark.parametrize(("dtype", "bound"), [("float32", (-4096, 4096)), ("float16", INT32)])
def test_whole_numbers_go_through_a_float_that_holds_them(dtype: str, bound: tuple[int, int]) -> None:
    made = Analyzer()
    made.update(X, ConstIntBound(-4096, 4096))
    assert made.const_int_bound(X.astype(dtype).astype("int32")) == ConstIntBound(*bound)


def test_a_bound_given_by_hand() -> None:
    made = Analyzer()
    made.update(X, ConstIntBound(3, 5))
    assert made.can_prove(X < 6)
