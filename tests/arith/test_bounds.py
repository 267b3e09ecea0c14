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


def test_a_bound_given_by_hand() -> None:
    made = Analyzer()
    made.update(X, ConstIntBound(3, 5))
    assert made.can_prove(X < 6)
