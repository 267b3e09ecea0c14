"""Marked and short loops are written out."""

import time

import pytest
from tests.tir.transform.texts import check

from tilewright import tir
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.tir import ir_builder
from tilewright.tir.transform import UnrollLoop
from tilewright.tir.transform.unroll_loop import UnrollConfig, unroll_loop


def test_a_marked_loop_is_written_out() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 3, "i", kind="unroll") as i:
        a[i] = tir.Cast("float32", i)
    check(
        ib.get(),
        unroll_loop,
        """
        for (i: int32, 0, 3) "unroll" {
          A[i] = cast(float32, i)
        }
        """,
        """
        A[0] = 0f32
        A[1] = 1f32
        A[2] = 2f32
        """,
    )


def serial_nest() -> tir.Stmt:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 100, "x") as x, ib.for_range(0, 2, "y") as y:
        a[x * 2 + y] = 0.0
    return ib.get()


def test_short_inner_loops_unroll_when_asked() -> None:
    assert unroll_loop(serial_nest()) is not None
    assert str(unroll_loop(serial_nest())).count("for") == 2
    assert str(unroll_loop(serial_nest(), UnrollConfig(auto_max_step=16))).count("for") == 1


def test_explicit_unroll_off_leaves_the_mark() -> None:
    loop = tir.For(tir.Var("i"), 0, 2, tir.ForKind.UNROLLED, tir.Evaluate(tir.call_extern("int32", "f")))
    assert unroll_loop(loop, UnrollConfig(explicit_unroll=False)) is loop


def test_the_pragma_sets_the_step_for_its_loops() -> None:
    axis = tir.IterVar(None, "x", 0)
    nest = tir.AttrStmt(axis, "pragma_auto_unroll_max_step", 16, serial_nest())
    assert str(unroll_loop(nest)).count("for") == 1


def test_the_pass_reads_the_context() -> None:
    mod = IRModule.from_expr(tir.PrimFunc([], serial_nest()))
    with PassContext(config={"tir.UnrollLoop": {"auto_max_step": 16}}):
        assert str(UnrollLoop()(mod)).count("for") == 1


def test_copies_have_memory_of_their_own() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 2, "i", kind="unroll") as i:
        b = ib.allocate("float32", 1, name="B")
        b[0] = a[i]
        a[i] = b[0]
    text = str(unroll_loop(ib.get()))
    assert "allocate(B:" in text
    assert "allocate(B_1:" in text


@pytest.mark.parametrize("count", [400])
def test_large_tiles_unroll_quickly(count: int) -> None:
    ib = ir_builder.create()
    a, b = ib.pointer("float32", "A"), ib.pointer("float32", "B")
    with ib.for_range(0, 64, "k") as k, ib.for_range(0, count, "i", kind="unroll") as i:
        a[i] = a[i] + b[k * count + i] * b[k]
    stmt = ib.get()
    start = time.process_time()
    unroll_loop(stmt)
    assert time.process_time() - start < 1.0


def test_loops_that_run_once_are_written_out_on_demand() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 1, "i") as i:
        a[i] = 3.0
        with ib.for_range(0, 9, "j") as j:
            a[i + j] = 4.0
    stmt = unroll_loop(ib.get(), UnrollConfig(auto_max_extent=1, explicit_unroll=False))
    assert isinstance(stmt[0], tir.Store) and isinstance(stmt[1], tir.For)
