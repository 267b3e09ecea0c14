"""Statements without effect go away."""

from tests.tir.transform.texts import check

from tilewright import tir
from tilewright.tir import ir_builder
from tilewright.tir.transform.remove_no_op import remove_no_op


def test_empty_loops_and_unused_memory_go_away() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    ib.allocate("float32", 4, name="B")
    with ib.for_range(0, 8, "i"):
        ib.emit(tir.Evaluate(0))
    a[0] = 1.0
    check(
        ib.get(),
        remove_no_op,
        """
        allocate(B: Pointer(float32), float32, [4]), storage_scope = global {
          for (i: int32, 0, 8) {
            0
          }
          A[0] = 1f32
        }
        """,
        """
        A[0] = 1f32
        """,
    )


def test_a_branch_that_does_nothing_leaves_the_other() -> None:
    n = tir.Var("n")
    store = tir.Store(tir.Var("A", "handle"), tir.const(1.0), 0)
    assert str(remove_no_op(tir.IfThenElse(n < 4, tir.Evaluate(0), store))) == "if !(n < 4) {\n  A[0] = 1f32\n}\n"
    assert str(remove_no_op(tir.IfThenElse(n < 4, store, tir.Evaluate(0)))) == "if (n < 4) {\n  A[0] = 1f32\n}\n"


def test_a_call_with_effects_stays() -> None:
    call = tir.Evaluate(tir.call_extern("int32", "f"))
    assert remove_no_op(call) is call
