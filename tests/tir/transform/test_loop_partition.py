"""Loops are split so that the main part needs no test."""

import numpy as np
import pytest
from tests.tir.transform.texts import check

import tilewright as tvm
from tilewright import te, tir
from tilewright.testing.tir_interpreter import run
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
    assert "for (i: int32, 0, 12)" in text and "0, 4)" in text  # the last of 13 blocks has 4 of its 8 elements
    assert "likely" not in text


def test_an_equation_splits_off_one_iteration() -> None:
    ib = ir_builder.create()
    a = ib.pointer("int32", "A")
    with ib.for_range(0, 10, "i") as i, ib.if_scope(ib.likely(tir.EQ(i, 4))):
        a[i] = 1
    text = str(loop_partition(ib.get(), {"partition_const_loop": True}))
    assert "for (i: int32, 0, 1) {\n  A[(4 + i)] = 1\n}" in text.replace("i_1", "i")


def test_every_condition_counts_in_a_hinted_loop() -> None:
    a, b = te.placeholder((16,), name="A"), te.placeholder((7,), name="B")
    c = te.compute((23,), lambda i: te.if_then_else(i < 16, a[i], b[i - 16]), name="C")
    s = te.create_schedule(c.op)
    s[c].pragma(c.op.axis[0], "loop_partition_hint", 1)
    func = tvm.lower(s, [a, b, c])["main"]
    assert "if_then_else" not in str(func) and str(func).count("for (") == 2
    data = [np.arange(16, dtype="float32"), -np.arange(7, dtype="float32")]
    out = np.zeros(23, "float32")
    run(func, *data, out)
    np.testing.assert_array_equal(out, np.concatenate(data))


def test_a_loop_variable_s_earlier_range_is_forgotten() -> None:
    a = te.placeholder((94, 62), name="A")
    b = te.compute((94, 62), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].tile(*b.op.axis, 16, 16)
    with tvm.transform.PassContext(config={"tir.LoopPartition": {"partition_const_loop": True}}):
        func = tvm.lower(s, [a, b])["main"]
    assert "if " not in str(func)
    data, out = np.random.default_rng(0).standard_normal((94, 62)).astype("float32"), np.zeros((94, 62), "float32")
    run(func, data, out)
    np.testing.assert_array_equal(out, data + 1)


def test_only_what_a_lower_bound_lets_through_is_left() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(0, 20, "i") as i, ib.if_scope(ib.likely(tir.all(i >= 3, i < 17))):
        a[i - 3] = 0.0
    text = str(loop_partition(ib.get(), {"partition_const_loop": True}))
    assert [line for line in text.splitlines() if line.startswith("for")] == ["for (i: int32, 0, 14) {"]
    assert "likely" not in text


@pytest.mark.parametrize(
    ("extents", "scales", "first", "end", "otherwise"),
    [((7, 5), (5, 1), 3, 31, False), ((6, 9), (4, -1), 2, 17, True), ((5, 3), (-3, 2), -7, 4, True),
     ((1, 8), (1, 1), 0, 6, False), ((4, 4), (4, 1), 20, 30, True)],
)  # fmt: skip
def test_each_iteration_does_what_it_did(extents, scales, first, end, otherwise) -> None:
    out = tir.decl_buffer(extents, "int32", "out")
    ib = ir_builder.create()
    with ib.for_range(0, extents[0], "i") as i, ib.for_range(0, extents[1], "j") as j:
        value = i * scales[0] + j * scales[1]
        with ib.if_scope(ib.likely(tir.all(value >= first, value < end))):
            ib.emit(tir.BufferStore(out, 2, [i, j]))
        if otherwise:
            with ib.else_scope():
                ib.emit(tir.BufferStore(out, 3, [i, j]))
    parameter = tir.Var("p", "handle")
    body = loop_partition(ib.get(), {"partition_const_loop": True})
    result = np.ones(extents, "int32")
    run(tir.PrimFunc([parameter], body, buffer_map={parameter: out}), result)
    values = np.add.outer(np.arange(extents[0]) * scales[0], np.arange(extents[1]) * scales[1])
    np.testing.assert_array_equal(result, np.where((values >= first) & (values < end), 2, 3 if otherwise else 1))


def test_two_splits_that_do_not_divide_need_no_test() -> None:
    a = te.placeholder((46,), name="A")
    b = te.compute((46,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((46,), lambda i: b[i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    s[b].split(b.op.axis[0], 7)
    outer, _ = s[c].split(c.op.axis[0], 30)
    s[b].compute_at(s[c], outer)
    with tvm.transform.PassContext(config={"tir.LoopPartition": {"partition_const_loop": True}}):
        func = tvm.lower(s, [a, c])["main"]
    assert "if " not in str(func)
    data, out = np.arange(46, dtype="float32"), np.zeros(46, "float32")
    run(func, data, out)
    np.testing.assert_array_equal(out, data * 2 + 2)


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
