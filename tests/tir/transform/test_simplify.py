"""Expressions of a statement in simplest form."""

from tests.tir.transform.texts import check

from tilewright import tir
from tilewright.tir import ir_builder
from tilewright.tir.transform.simplify import simplify


def test_expressions_and_conditions_known_from_loop_ranges() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 8, "i") as i, ib.if_scope(i < 10):
        a[tir.truncdiv(i * 8 + 2, 2)] = tir.Add(tir.const(1.0), tir.const(1.0))
    check(
        ib.get(),
        simplify,
        """
        for (i: int32, 0, 8) {
          if (i < 10) {
            A[(((i*8) + 2) / 2)] = (1f32 + 1f32)
          }
        }
        """,
        """
        for (i: int32, 0, 8) {
          A[((i*4) + 1)] = 2f32
        }
        """,
    )


def test_a_loop_that_runs_once_gives_way_to_its_body() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(3, 4, "i") as i:
        a[i] = 0.0
    check(ib.get(), simplify, "for (i: int32, 3, 4) {\n  A[i] = 0f32\n}\n", "A[3] = 0f32\n")


def test_a_branch_is_simplified_under_its_condition() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    n = tir.SizeVar("n")
    with ib.if_scope(n < 4):
        a[tir.min(n, 5)] = 0.0
    with ib.else_scope():
        a[tir.max(n, 3)] = 1.0
    after = "if (n < 4) {\n  A[n] = 0f32\n} else {\n  A[n] = 1f32\n}\n"
    assert str(simplify(ib.get())) == after


def test_a_condition_on_memory_is_not_remembered_across_stores() -> None:
    ib = ir_builder.create()
    a = ib.pointer("int32", "A")
    with ib.if_scope(a[0] < 4):
        a[0] = 7
        with ib.if_scope(a[0] < 4):
            a[1] = 1
    text = str(ib.get())
    assert text.count("if") == 2
    ib = ir_builder.create()
    a = ib.pointer("int32", "A")
    with ib.if_scope(a[0] < 4):
        a[0] = 7
        with ib.if_scope(a[0] < 4):
            a[1] = 1
    assert str(simplify(ib.get())) == text


def test_an_unchanged_statement_stays_the_same_object() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 8, "i") as i:
        a[i * 4 + 1] = a[i] + 1.0
    stmt = ib.get()
    assert simplify(stmt) is stmt
