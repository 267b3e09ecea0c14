"""The part of a buffer that a statement touches, held against running it."""

from __future__ import annotations

import itertools

import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.tir.domain_touched import domain_touched


def _nest(n: object, m: object) -> tuple[tir.Stmt, tir.Buffer, tir.Buffer]:
    """``a[i, j] = b[i*2 - 1, j + 1] + a[i - 1, j - 1]``"""
    a, b = (tir.decl_buffer((n, m), name=name) for name in "ab")
    i, j = te.var("i"), te.var("j")
    value = tir.BufferLoad(b, [i * 2 - 1, j + 1]) + tir.BufferLoad(a, [i - 1, j - 1])
    inner = tir.For(j, 0, m, tir.ForKind.SERIAL, tir.BufferStore(a, value, [i, j]))
    return tir.For(i, 0, n, tir.ForKind.SERIAL, inner), a, b


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 5), (7, 2)])
@pytest.mark.parametrize(("loads", "stores"), [(True, False), (False, True), (True, True)])
def test_it_is_what_running_the_loops_touches(n: int, m: int, loads: bool, stores: bool) -> None:
    stmt, a, b = _nest(n, m)
    touched = {a: set(), b: set()}  # type: dict[tir.Buffer, set[tuple[int, int]]]
    for i, j in itertools.product(range(n), range(m)):
        if loads:
            touched[b].add((i * 2 - 1, j + 1))
            touched[a].add((i - 1, j - 1))
        if stores:
            touched[a].add((i, j))
    for buffer, places in touched.items():
        found = domain_touched(stmt, buffer, loads, stores)
        ends = [(min(axis), max(axis) - min(axis) + 1) for axis in zip(*places, strict=True)]
        assert [(int(r.min), int(r.extent)) for r in found] == ends


def test_extents_may_be_symbols_and_tvm_has_the_function_too() -> None:
    m = te.var("m")
    stmt, a, _ = _nest(100, m)
    _, columns = tvm.arith._ffi_api.DomainTouched(stmt, a, True, False)
    assert columns.min.value == -1
    assert columns.extent is m
