"""Indices divided between a block and the loops around it: checked by going through all values of the variables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from tests.arith.evaluate import evaluate

from tilewright import arith, tir
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.prim_vars import expr_vars
from tilewright.tir import floordiv, floormod

X, Y, Z, W, C = (tir.Var(n) for n in "xyzwc")
EXTENTS = {X: 3, Y: 4, Z: 6, W: 2}
POINTS = [{**dict(zip(EXTENTS, v, strict=True)), C: 5} for v in itertools.product(*map(range, EXTENTS.values()))]


def divide(indices: Sequence[PrimExpr], inside: Sequence[tir.Var], predicate: Any = True) -> list[list[arith.IterMark]]:
    domains = {v: tir.Range(0, n) for v, n in EXTENTS.items() if any(v in expr_vars(i) for i in indices)}
    return arith.subspace_divide(indices, domains, inside, predicate)


@pytest.mark.parametrize(
    ("indices", "inside", "predicate"),
    [
        ([Z * 12 + Y * 3 + X + C], [X], True),
        ([Z * 12 + Y * 3 + X + C], [Y, X], True),
        ([Z * 12 + Y * 3 + X], [X], Z * 4 + Y < 18),
        ([Y * 3 + X], [X, Y], Y * 3 + X < 10),
        ([Y, floordiv(Z, 2), floormod(Z, 2) * 3 + X], [Z, X], True),
        ([floordiv(Y * 6 + Z, 6), floormod(Y * 6 + Z, 6)], [Z], True),
        ([floordiv(Z * 4 + Y, 4), floormod(Z * 4 + Y, 4) * 2 + W], [Y, W], True),
        ([Y, X], [], True),
    ],
)
def test_outer_times_extent_plus_inner_is_the_index(
    indices: list[PrimExpr], inside: list[tir.Var], predicate: Any
) -> None:
    divided = divide(indices, inside, predicate)
    assert len(divided) == len(indices) + 1
    allowed = [p for p in POINTS if predicate is True or evaluate(predicate, p)]
    for index, (outer, inner) in zip(indices, divided, strict=False):
        values = [arith.normalize_iter_map_to_expr(mark.source) for mark in (outer, inner)]
        assert not set(expr_vars(values[0])) & set(inside)
        assert not set(expr_vars(values[1])) & (set(EXTENTS) - set(inside))
        whole = values[0] * inner.extent + values[1]
        assert all(evaluate(index, p) == evaluate(whole, p) for p in allowed)
    around, within = (mark.extent for mark in divided[-1])
    assert [p for p in POINTS if evaluate(around, p) and evaluate(within, p)] == allowed


@pytest.mark.parametrize(
    ("indices", "inside", "predicate"),
    [
        ([Y * 3 + X], [Y], True),  # the block is around the loop
        ([floordiv(Z * 4 + Y, 8), floormod(Z * 4 + Y, 8)], [Y], Z * 4 + Y < 20),  # a condition on both
        ([floordiv(Y * 3 + X, 6), floormod(Y * 3 + X, 6)], [X, W], Y * 3 + X < 7),
        ([X * X], [X], True),
    ],
)
def test_what_does_not_divide_gives_nothing(indices: list[PrimExpr], inside: list[tir.Var], predicate: Any) -> None:
    assert divide(indices, inside, predicate) == []
