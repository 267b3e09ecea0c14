"""Indices as iterators and offsets: what is found is checked by going through all values of the variables."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from tests.arith.evaluate import evaluate

from tilewright import arith, tir
from tilewright.ir.prim_expr import PrimExpr

X, Y, Z, C = (tir.Var(n) for n in "xyzc")
Domains = Mapping[tir.Var, tuple[int, int]]  # first, and one behind the last
SMALL: Domains = {X: (0, 3), Y: (0, 4), Z: (0, 6)}


def ranges(domains: Domains) -> dict[tir.Var, tir.Range]:
    return {var: tir.Range(*ends) for var, ends in domains.items()}


def points(domains: Domains, predicate: Any) -> list[dict[tir.Var, int]]:
    """All values of the variables that the predicate allows; c is 5."""
    spaces = [range(*ends) for ends in domains.values()]
    every = [{**dict(zip(domains, values, strict=True)), C: 5} for values in itertools.product(*spaces)]
    return [p for p in every if predicate is True or evaluate(predicate, p)]


def check(indices: Sequence[PrimExpr], domains: Domains, predicate: Any = True) -> list[arith.IterSumExpr]:
    """What is found takes the values that the indices take, and all that its extents say, in all combinations."""
    found = arith.detect_iter_map(indices, ranges(domains), predicate)
    assert len(found) == len(indices)
    allowed = points(domains, predicate)
    for index, one in zip(indices, found, strict=True):
        back = arith.normalize_iter_map_to_expr(one)
        assert all(evaluate(index, p) == evaluate(back, p) for p in allowed)
    reached = {tuple(evaluate(index, p) for index in indices) for p in allowed}
    said = [
        [
            evaluate(one.base, {C: 5}) + (evaluate(one.args[0].scale, {C: 5}) * i if one.args else 0)
            for i in range(evaluate(one.args[0].extent, {C: 5}) if one.args else 1)
        ]
        for one in found
    ]
    assert reached == set(itertools.product(*said))
    return found


FOUND: list[tuple[list[PrimExpr], Domains, Any]] = [
    ([X, Y + 7, tir.const(3)], SMALL, True),
    ([Y * 3 + X + 1 + C], SMALL, True),
    ([(Y * 3 + X) * 2 - 5], SMALL, True),
    ([Z // 2, Z % 2 * 4 + 1], SMALL, True),
    ([Z // 2 + Y * 3, X], SMALL, True),
    ([(Y * 6 + Z) // 4, (Y * 6 + Z) % 4], SMALL, True),
    ([Z * 2 // 4, Z * 2 % 4], SMALL, True),
    ([Y * 3 + X], SMALL, Y * 3 + X < 10),
    ([Y * 3 + X], SMALL, tir.all(Y * 3 + X < 10, Y * 3 + X <= 7)),
    ([Y * 3 + X], SMALL, Y * 3 + X < 100),
    ([(Y * 3 + X) * 6 + Z], SMALL, tir.all(Y * 3 + X < 10, (Y * 3 + X) * 6 + Z < 55)),
    ([X, Y], SMALL, Y < 2),
    ([X + Y * 3], {X: (0, 3), Y: (5, 9)}, True),
    ([X + Y * 3], {X: (2, 3), Y: (-1, 3)}, True),
    ([X * 4 - Y * 0 + Y], SMALL, True),
]


@pytest.mark.parametrize(("indices", "domains", "predicate"), FOUND, ids=[repr(f[0]) for f in FOUND])
def test_what_is_found_is_so(indices: list[PrimExpr], domains: Domains, predicate: Any) -> None:
    check(indices, domains, predicate)


NOT_FOUND: list[tuple[list[PrimExpr], Any]] = [
    ([X, X], True),
    ([Y * 3 + X, Y], True),
    ([Y * 4 + X], True),  # with gaps
    ([Y * 2 + X], True),  # with overlaps
    ([X * Y], True),
    ([Z // 4], True),  # does not divide 6
    ([Z % X], True),
    ([tir.min(X, 1)], True),
    ([Y * 3 + X], X < 2),  # of the fused iterator no more than parts are there
    ([Y], Y * 3 + X < 5),
    ([(Y * 3 + X) * 6 + Z], tir.all(Y * 3 + X < 10, X * 6 + Z < 9)),
    ([X], tir.NE(X, 1)),
]


@pytest.mark.parametrize(("indices", "predicate"), NOT_FOUND, ids=[f"{f[0]} {f[1]}" for f in NOT_FOUND])
def test_what_is_not_of_the_form(indices: list[PrimExpr], predicate: Any) -> None:
    assert arith.detect_iter_map(indices, ranges(SMALL), predicate) == []


def test_random_indices() -> None:
    """Splits and fusions of splits, with conditions: whatever is found is so."""
    numbers = np.random.default_rng(0)
    found = 0
    for _ in range(120):
        extents = [int(e) for e in numbers.choice([1, 2, 3, 4, 6], 3)]
        domains = {var: (0, e) for var, e in zip((X, Y, Z), extents, strict=True)}
        terms = []
        for var in numbers.permutation(3):
            factor = int(numbers.choice([1, 2, 3]))
            part = list(domains)[var]
            terms += [part // factor, part % factor]
        index, scale = tir.const(0), 1
        for term in terms[: int(numbers.integers(1, 5))]:
            index, scale = index + term * scale, scale * int(numbers.choice([1, 2, 3, 4]))
        predicate = index < int(numbers.integers(1, 30)) if numbers.random() < 0.4 else True
        if arith.detect_iter_map([index], ranges(domains), predicate):
            check([index], domains, predicate)
            found += 1
    assert found > 20


def test_symbolic_extents() -> None:
    n, m = tir.SizeVar("n"), tir.SizeVar("m")
    (fused,) = arith.detect_iter_map([(Y + 1) * n + X], {X: tir.Range(0, n), Y: tir.Range(0, 4)})
    assert repr(fused.base) == "n" and repr(fused.args[0].extent) in ("(n*4)", "(4*n)")
    outer, inner = arith.detect_iter_map([X // n, X % n], {X: tir.Range(0, m * n)})
    assert outer.args[0].extent is m and inner.args[0].extent is n


def test_bijections() -> None:
    domains = ranges(SMALL)
    assert arith.detect_iter_map([X, Z // 2], domains)
    assert not arith.detect_iter_map([X, Y, Z // 2], domains, require_bijective=True)
    assert not arith.detect_iter_map([X, Z], domains, require_bijective=True)
    assert arith.detect_iter_map([X * 4 + Y, Z % 2, Z // 2], domains, require_bijective=True)


def test_inverse() -> None:
    indices = [(Z % 2 * 4 + Y) * 3 + X, Z // 2 + 10]
    found = arith.detect_iter_map(indices, ranges(SMALL), require_bijective=True)
    a, b = tir.Var("a"), tir.Var("b")
    inverse = arith.inverse_affine_iter_map(found, [a, b])
    for p in points(SMALL, True):
        outputs = {a: evaluate(indices[0], p), b: evaluate(indices[1], p)}
        assert {var: evaluate(value, outputs) for var, value in inverse.items()} == {v: p[v] for v in SMALL}
    with pytest.raises(ValueError, match="a map of 2 values has no inverse of 1"):
        arith.inverse_affine_iter_map(found, [a])


def test_lower_bounds_of_regions() -> None:
    def bound(region: list[tir.Range], predicate: Any = True) -> list[tuple[int, int]] | None:
        found = arith.estimate_region_lower_bound(region, ranges(SMALL), predicate)
        return None if found is None else [(int(s.min_value), int(s.max_value)) for s in found]

    assert bound([tir.Range(X * 4, X * 4 + 8)]) == [(0, 15)]
    assert bound([tir.Range(X * 4, X * 4 + 2)]) is None  # with gaps
    assert bound([tir.Range(X, X + 2), tir.Range(X + 1, X + 4)]) is None  # a diagonal
    assert bound([tir.Range(X, X + 2), tir.Range(Y * 2 + 1, Y * 2 + 4)]) == [(0, 3), (1, 9)]
    assert bound([tir.Range(Y * 3 + X, Y * 3 + X + 1)], Y * 3 + X < 10) == [(0, 9)]
    assert bound([tir.Range(10 - X, 11 - X)]) is None
