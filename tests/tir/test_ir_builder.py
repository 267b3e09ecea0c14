"""ir_builder: loops written as a Python program."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tir.interpret import run

from tilewright import te, tir
from tilewright.tir import ir_builder


def test_a_matrix_product_through_buffers() -> None:
    a, b, c = (tir.decl_buffer(s, name=n) for s, n in (((3, 4), "A"), ((4, 5), "B"), ((3, 5), "C")))
    ib = ir_builder.create()
    pa, pb, pc = (ib.buffer_ptr(x) for x in (a, b, c))
    with ib.for_range(0, 3, "i") as i, ib.for_range(0, 5, "j") as j:
        pc[i, j] = 0.0
        with ib.for_range(0, 4, "k") as k:
            pc[i, j] = pc[i, j] + pa[i, k] * pb[k, j]
    params = [tir.Var(n, "handle") for n in "ABC"]
    func = tir.PrimFunc(params, ib.get(), None, dict(zip(params, (a, b, c), strict=True)))
    x, y = np.random.rand(3, 4).astype("float32"), np.random.rand(4, 5).astype("float32")
    out = np.zeros((3, 5), "float32")
    run(func, A=x, B=y, C=out)
    np.testing.assert_allclose(out, x @ y, rtol=1e-6)


def test_a_declaration_covers_what_follows_in_its_scope() -> None:
    ib = ir_builder.create()
    a = ib.pointer("int32", "A")
    a[0] = 1
    b = ib.allocate("int32", (2, 3), name="B")
    b[1, 2] = 5
    ib.scope_attr(tir.const(0), "pragma_x", 1)
    a[1] = b[1, 2]
    assert (
        str(ib.get())
        == """\
A[0] = 1
allocate(B: Pointer(int32), int32, [2, 3]), storage_scope = global {
  B[5] = 5
  attr [0] "pragma_x" = 1;
  A[1] = (int32*)B[5]
}
"""
    )


def test_else_must_follow_an_if() -> None:
    ib = ir_builder.create()
    with pytest.raises(RuntimeError, match="must directly follow an if_scope"):
        ib.else_scope()


def test_get_inside_a_scope_is_an_error() -> None:
    ib = ir_builder.create()
    with ib.for_range(0, 4), pytest.raises(RuntimeError, match="leave all with-blocks first"):
        ib.get()


def test_storing_another_dtype_is_an_error() -> None:
    ib = ir_builder.create()
    a = ib.allocate("int32", 4, name="A")
    with pytest.raises(ValueError, match="a float32 is stored to A, which holds int32"):
        a[0] = tir.const(1.5)


def test_an_unknown_kind_of_loop_is_an_error() -> None:
    with pytest.raises(ValueError, match="a loop is one of serial"):
        ir_builder.create().for_range(0, 4, kind="sideways")


def test_an_exception_inside_a_scope_is_not_hidden() -> None:
    ib = ir_builder.create()
    with pytest.raises(KeyError), ib.for_range(0, 4):
        raise KeyError("mine")


def test_a_scope_of_its_own_ends_what_holds_in_it() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.new_scope():
        ib.scope_attr(a.asobject(), "note", 1)
        a[0] = 1.0
    a[1] = 2.0
    stmt = ib.get()
    assert isinstance(stmt[0], tir.AttrStmt) and isinstance(stmt[1], tir.Store)


def test_how_often_a_loop_runs_is_simplified() -> None:
    ib = ir_builder.create()
    n = tir.Var("n")
    with ib.for_range(n, n + 2) as i:
        ib.emit(tir.Evaluate(i + n))
    assert int(ib.get().extent) == 2


def test_a_thread_axis_of_extent_0_has_one_thread() -> None:
    """As TVM's runtime launches it."""
    ib = tir.ir_builder.create()
    a = ib.pointer("int32", "A")
    ib.scope_attr(te.thread_axis("blockIdx.x"), "thread_extent", 0)
    a[0] = 1
    assert '"thread_extent" = 1' in str(ib.get())


def test_an_attribute_of_a_pointer_is_one_of_its_variable() -> None:
    ib = ir_builder.create()
    a = ib.pointer("int32", "A")
    ib.scope_attr(a, "storage_scope", 1)
    a[0] = 1
    assert ib.get().node is a.asobject()


def test_a_float_says_how_often_a_loop_runs() -> None:
    ib = ir_builder.create()
    n = tir.Var("n", "float32")
    with ib.for_range(0, n) as i:
        ib.emit(tir.Evaluate(tir.call_extern("int32", "f", i >> 1)))
    loop = ib.get()
    assert loop.loop_var.dtype == "int32" and int(loop.min) == 0
    assert str(loop.extent) == str(tir.Cast("int32", tir.ceil(n)))
