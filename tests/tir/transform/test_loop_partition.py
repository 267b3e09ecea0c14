"""Loops are split so that the main part needs no test."""

from tests.tir.transform.texts import check

from tilewright import tir
from tilewright.tir import ir_builder
from tilewright.tir.transform.loop_partition import loop_partition


def tiled(extent, count) -> tir.Stmt:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, count, "i") as i, ib.for_range(0, 8, "j") as j, ib.if_scope(ib.likely(i * 8 + j < extent)):
        a[i * 8 + j] = 0.0
    return ib.get()


def test_the_main_part_needs_no_test() -> None:
    n = tir.SizeVar("n")
    check(
        tiled(n, (n + 7) // 8),
        loop_partition,
        """
        for (i: int32, 0, floordiv((n + 7), 8)) {
          for (j: int32, 0, 8) {
            if @tir.likely((((i*8) + j) < n), dtype=bool) {
              A[((i*8) + j)] = 0f32
            }
          }
        }
        """,
        """
        for (i: int32, 0, floordiv(n, 8)) {
          for (j: int32, 0, 8) {
            A[((i*8) + j)] = 0f32
          }
        }
        for (i_1: int32, 0, (floordiv((n + 7), 8) - floordiv(n, 8))) {
          for (j, 0, 8) {
            if @tir.likely(((((floordiv(n, 8) + i_1)*8) + j) < n), dtype=bool) {
              A[(((floordiv(n, 8) + i_1)*8) + j)] = 0f32
            }
          }
        }
        """,
    )


def test_constant_loops_stay_unless_asked() -> None:
    stmt = tiled(tir.const(100), 13)
    assert loop_partition(stmt) is stmt
    text = str(loop_partition(stmt, {"partition_const_loop": True}))
    assert "for (i: int32, 0, 12)" in text
    assert text.count("likely") == 1


def test_a_lower_bound_splits_at_the_front() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 20, "i") as i, ib.if_scope(ib.likely(tir.all(i >= 3, i < 17))):
        a[i - 3] = 0.0
    text = str(loop_partition(ib.get(), {"partition_const_loop": True}))
    assert [line for line in text.splitlines() if line.startswith("for")] == [
        "for (i: int32, 0, 3) {",
        "for (i_1: int32, 0, 14) {",
        "for (i_2: int32, 0, 3) {",
    ]
    assert text.count("likely") == 2


def test_unmarked_conditions_do_not_count() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, tir.Var("n"), "i") as i, ib.if_scope(i < 3):
        a[i] = 0.0
    stmt = ib.get()
    assert loop_partition(stmt) is stmt


def test_a_condition_that_always_holds_is_dropped_without_a_split() -> None:
    text = str(loop_partition(tiled(tir.const(104), 13), {"partition_const_loop": True}))
    assert "likely" not in text
    assert text.count("for") == 2


def test_a_variable_of_two_inner_loops_counts_with_neither_range() -> None:
    a, i, j = tir.Var("A", "handle"), tir.Var("i"), tir.Var("j")
    guarded = tir.IfThenElse(tir.likely(i * 4 + j < 30), tir.Store(a, 0.0, i * 4 + j))
    loops = tir.SeqStmt([tir.For(j, 0, 16, 0, guarded), tir.For(j, 0, 4, 0, guarded)])
    stmt = tir.For(i, 0, 8, 0, loops)
    text = str(loop_partition(stmt, {"partition_const_loop": True}))
    assert text.count("for (i") == 1  # only the inner loops are split
