"""Reductions in their simplest form have the same value, worked out one combination at a time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tilewright import te, tir
from tilewright.arith import Analyzer, simplify
from tilewright.tir import substitute

K = te.reduce_axis((0, 5), name="k")
J = te.reduce_axis((-2, 1), name="j")
N = tir.Var("n", "int32")


def _pair(both: bool) -> Any:
    """A sum, and a product that may add the sum to itself."""
    return te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] * y[1] + (x[0] * y[0] if both else 0)),
        lambda t0, t1: (tir.const(0, t0), tir.const(5, t1) - 4),
    )


SUM_AND_PRODUCT, ENTANGLED = _pair(False), _pair(True)
CHOSEN = te.comm_reducer(
    lambda x, y: tir.Select(N < 0, x + y, x * y), lambda t: tir.Select(N < 0, tir.const(0, t), tir.const(1, t))
)


def value(e: tir.PrimExpr, n: int) -> int:
    """By brute force: the elements in order, from the identity or the initial value."""
    if not isinstance(e, tir.Reduce):
        return int(simplify(substitute(e, {N: n})))
    c = e.combiner
    total = [simplify(substitute(x, {N: n})) for x in (e.init or c.identity_element)]
    for at in itertools.product(*[range(int(a.dom.min), int(a.dom.min + a.dom.extent)) for a in e.axis]):
        here = {N: n, **{a.var: i for a, i in zip(e.axis, at, strict=True)}}
        if int(simplify(substitute(e.condition, here))):
            right = [simplify(substitute(s, here)) for s in e.source]
            names = dict(zip((*c.lhs, *c.rhs), (*total, *right), strict=True))
            total = [simplify(substitute(r, {**names, N: n})) for r in c.result]
    return int(total[e.value_index])


CASES = [
    (te.sum(tir.Select(K.var + J.var < 9, K.var * N, 0), [K, J]), 1),
    (SUM_AND_PRODUCT((K.var + N, K.var + 1), K)[0], 1),
    (SUM_AND_PRODUCT((K.var + N, K.var + 1), K)[1], 1),
    (ENTANGLED((K.var + N, K.var + 1), K)[0], 1),
    (ENTANGLED((K.var + N, K.var + 1), K)[1], 2),
    (te.sum(K.var * N, K, where=K.var < 3), 1),
    (te.sum(N, [], init=3), 0),
    (te.sum(N, [], where=N > 2, init=3), 0),
    (te.sum(N, [], where=N > 2), 0),
    (SUM_AND_PRODUCT((N, N + 1), [], init=(2, 3))[1], 0),
    (CHOSEN(K.var + 1, K), 1),
    (CHOSEN(K.var + 1, K, init=2), 1),
]


@pytest.mark.parametrize(("reduction", "parts"), CASES)
def test_the_value_stays(reduction: tir.PrimExpr, parts: int) -> None:
    found = Analyzer().canonical_simplify(reduction)
    assert (len(found.source) if isinstance(found, tir.Reduce) else 0) == parts
    for n in (-3, 0, 2, 4):
        assert value(found, n) == value(reduction, n)


def test_the_axes_tell_what_the_source_can_be() -> None:
    found = Analyzer().canonical_simplify(te.sum(tir.Select(K.var + J.var < 9, K.var, 0), [K, J]))
    assert found.source[0] is K.var


def test_facts_choose_the_combination() -> None:
    analyzer = Analyzer()
    with analyzer.constraint_scope(N < -1):
        found = analyzer.canonical_simplify(CHOSEN(K.var, K))
    assert repr(found.combiner.result[0]) == "(lhs + rhs)"


def test_a_source_that_does_more_than_give_a_value_stays() -> None:
    call = tir.call_extern("int32", "count", K.var)
    found = Analyzer().canonical_simplify(SUM_AND_PRODUCT((K.var, call), K)[0])
    assert len(found.source) == 2
