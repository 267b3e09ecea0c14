"""Checks that a program stays inside its buffers, and leaving out checks."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.transform import PassContext
from tilewright.te.lower import schedule_to_primfunc
from tilewright.tir.transform.instrument_bound_checkers import instrument_bound_checkers
from tilewright.tir.transform.simplify import simplify
from tilewright.tir.transform.skip_assert import skip_assert

CHECKED = {"tir.instrument_bound_checkers": True}


def count_asserts(stmt: tir.Stmt) -> int:
    found: list[tir.Stmt] = []
    tir.post_order_visit(stmt, lambda n: found.append(n) if isinstance(n, tir.AssertStmt) else None)
    return len(found)


def shifted(guard: bool) -> tuple[te.Schedule, list]:
    """B[i] = A[i + 1] for 7 elements, of an A of ``n``."""
    n = te.size_var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((9,), lambda i: te.if_then_else(i < 7, a[i + 1], 0.0) if guard else a[i + 1], name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], 4)
    s[b].vectorize(inner)
    s[b].parallel(outer)
    return s, [n, a, b]


@pytest.mark.parametrize(("guard", "enough"), [(True, 8), (False, 10)])
def test_a_read_outside_is_an_error(guard: bool, enough: int) -> None:
    s, args = shifted(guard)
    with PassContext(config=CHECKED):
        func = tvm.build(s, args, "llvm")
    out = tvm.nd.array(np.full(9, -1, "float32"))
    func(enough, tvm.nd.array(np.arange(enough, dtype="float32")), out)
    expected = np.arange(1.0, 10.0)
    np.testing.assert_array_equal(out.numpy(), np.where(np.arange(9) < 7, expected, 0) if guard else expected)
    with pytest.raises(tvm.TVMError, match="A is read outside of its n elements"):
        func(enough - 1, tvm.nd.array(np.zeros(enough - 1, "float32")), out)


def test_a_store_outside_is_an_error() -> None:
    n = te.size_var("n")
    b = te.extern((3,), [], lambda _, outs: _fill(outs[0], n), name="B", dtype="int32")
    with PassContext(config=CHECKED):
        func = tvm.build(te.create_schedule(b.op), [n, b], "llvm")
    out = tvm.nd.array(np.zeros(3, "int32"))
    func(3, out)
    assert out.numpy().tolist() == [0, 1, 2]
    with pytest.raises(tvm.TVMError, match="B is written outside of its 3 elements"):
        func(4, out)


def _fill(buffer: tir.Buffer, count: tir.PrimExpr) -> tir.Stmt:
    ib = tir.ir_builder.create()
    data = ib.buffer_ptr(buffer)
    with ib.for_range(0, count) as i:
        data[i] = i
    return ib.get()


def test_what_certainly_stays_inside_is_not_checked() -> None:
    a = te.placeholder((12, 5), name="A")
    b = te.compute((12, 5), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((5, 12), lambda i, j: b[j, i], name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], 3)
    s[b].compute_at(s[c], outer)
    assert count_asserts(instrument_bound_checkers(schedule_to_primfunc(s, [a, c])).body) == 0


def test_checks_survive_simplification_and_can_be_left_out() -> None:
    n, m = tir.Var("n"), tir.Var("m")
    buf = tir.Var("A", "handle")
    stmt = tir.AssertStmt(n < 9, "too many", tir.Store(buf, tir.Select(n < 9, m, n), n))
    once = simplify(stmt)
    assert count_asserts(once) == count_asserts(simplify(once)) == 1
    assert once.body.value is m
    assert count_asserts(skip_assert(stmt)) == 0


def test_options_of_lower() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    assert tvm.lower(s, [a, b])["main"].attrs["tir.noalias"]
    with PassContext(config={"tir.noalias": False}):
        assert "tir.noalias" not in tvm.lower(s, [a, b])["main"].attrs
    func = tir.PrimFunc(
        [tir.Var("n")], tir.AssertStmt(tir.Var("n") < 3, "few", tir.Evaluate(tir.Var("f", "int32") * 2))
    )
    with PassContext(config={"tir.disable_assert": True}):
        assert count_asserts(tvm.lower(func)["main"].body) == 0
