"""Passes that change one thing: each with its text before and after."""

import numpy as np
import pytest
from tests.tir.interpret import Interpreter, run
from tests.tir.transform.texts import check

from tilewright import arith, te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.tir import ir_builder
from tilewright.tir import transform as T
from tilewright.tir.transform.bf16_legalize import bf16_legalize
from tilewright.tir.transform.combine_context_call import combine_context_call
from tilewright.tir.transform.hoist_if_then_else import hoist_if_then_else
from tilewright.tir.transform.inject_double_buffer import inject_double_buffer
from tilewright.tir.transform.inject_prefetch import inject_prefetch, shared_prefetch
from tilewright.tir.transform.inject_virtual_thread import inject_virtual_thread
from tilewright.tir.transform.narrow_data_type import narrow_data_type
from tilewright.tir.transform.rewrite_unsafe_select import rewrite_unsafe_select
from tilewright.tir.transform.storage_flatten import storage_flatten
from tilewright.tir.visitor import stmt_vars, substitute


def test_hoist_if_then_else() -> None:
    ib = ir_builder.create()
    a, n = ib.pointer("float32", "A"), tir.Var("n")
    with ib.for_range(0, 8, "i") as i, ib.if_scope(n < 4):
        a[i] = 0.0
    check(
        ib.get(),
        hoist_if_then_else,
        """
        for (i: int32, 0, 8) {
          if (n < 4) {
            A[i] = 0f32
          }
        }
        """,
        """
        if (n < 4) {
          for (i: int32, 0, 8) {
            A[i] = 0f32
          }
        }
        """,
    )


def test_hoist_takes_only_the_part_that_the_loop_does_not_change() -> None:
    ib = ir_builder.create()
    a, n = ib.pointer("float32", "A"), tir.Var("n")
    with ib.for_range(0, 8, "i") as i, ib.if_scope(ib.likely(tir.all(n < 4, i < n))):
        a[i] = 0.0
    text = str(hoist_if_then_else(ib.get())).splitlines()
    assert text[0] == "if @tir.likely((n < 4), dtype=bool) {"
    assert text[2].strip() == "if @tir.likely((i < n), dtype=bool) {"


def test_hoist_takes_conditions_inside_one_another() -> None:
    ib = ir_builder.create()
    a, n, m = ib.pointer("float32", "A"), tir.Var("n"), tir.Var("m")
    with ib.for_range(0, 8, "i") as i, ib.if_scope(n < 4), ib.if_scope(m < 4):
        a[i] = 0.0
    lines = [line.strip() for line in str(hoist_if_then_else(ib.get())).splitlines()]
    assert lines[:3] == ["if (n < 4) {", "if (m < 4) {", "for (i: int32, 0, 8) {"]


def test_hoist_takes_a_condition_out_of_one_that_stays() -> None:
    ib = ir_builder.create()
    a, n, m = ib.pointer("float32", "A"), tir.Var("n"), tir.Var("m")
    with ib.for_range(0, 8, "i") as i, ib.if_scope(i < n), ib.if_scope(m < 4):
        a[i] = 0.0
    lines = [line.strip() for line in str(hoist_if_then_else(ib.get())).splitlines()]
    assert lines[:3] == ["if (m < 4) {", "for (i: int32, 0, 8) {", "if (i < n) {"]


def test_hoist_leaves_a_condition_whose_memory_another_one_guards() -> None:
    ib = ir_builder.create()
    a, n = ib.pointer("float32", "A"), tir.Var("n")
    with ib.for_range(0, 8, "i") as i, ib.if_scope(i < n), ib.if_scope(a[n] < 4.0):
        a[i] = 0.0
    stmt = ib.get()
    assert hoist_if_then_else(stmt) is stmt


def test_conditions_on_threads_move_only_on_demand() -> None:
    ib = ir_builder.create()
    a, tx = ib.pointer("float32", "A"), te.thread_axis("threadIdx.x")
    ib.scope_attr(tx, "thread_extent", 16)
    with ib.for_range(0, 8, "i") as i:
        ib.scope_attr(te.thread_axis("blockIdx.x"), "thread_extent", 4)
        with ib.if_scope(tx < 3):
            a[i] = 0.0
    stmt = ib.get()
    assert hoist_if_then_else(stmt) is stmt
    moved = hoist_if_then_else(stmt, over_threads=True).body
    assert isinstance(moved, tir.IfThenElse) and isinstance(moved.then_case, tir.For)


def test_rewrite_unsafe_select() -> None:
    ib = ir_builder.create()
    a, b, i = ib.pointer("float32", "A"), ib.pointer("float32", "B"), tir.Var("i")
    b[i] = tir.Select(i < 3, a[i], 0.0)
    check(
        ib.get(),
        rewrite_unsafe_select,
        """
        B[i] = select((i < 3), (float32*)A[i], 0f32)
        """,
        """
        B[i] = @tir.if_then_else((i < 3), (float32*)A[i], 0f32, dtype=float32)
        """,
    )


def test_a_select_of_safe_values_stays() -> None:
    i = tir.Var("i")
    store = tir.Store(tir.Var("A", "handle"), tir.Select(i < 3, i * 2, i // 3), 0)
    assert rewrite_unsafe_select(store) is store


def test_narrow_data_type() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(tir.const(0, "int64"), tir.const(8, "int64"), "i", dtype="int64") as i:
        a[i * 4 + 1] = 0.0
    check(
        ib.get(),
        narrow_data_type,
        """
        for (i: int64, 0i64, 8i64) {
          A[((i*4i64) + 1i64)] = 0f32
        }
        """,
        """
        for (i: int32, 0, 8) {
          A[((i*4) + 1)] = 0f32
        }
        """,
    )


def test_an_index_that_may_not_fit_stays_wide() -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    with ib.for_range(tir.const(0, "int64"), tir.const(8, "int64"), "i", dtype="int64") as i:
        a[i * 2**30] = 0.0
    assert "A[(i*1073741824i64)]" in str(narrow_data_type(ib.get()))


def test_loops_of_an_index_that_may_not_fit_stay_wide_everywhere() -> None:
    ib = ir_builder.create()
    a, wide = ib.pointer("float32", "A"), tir.const(2**16, "int64")
    with ib.for_range(tir.const(0, "int64"), wide, "i", dtype="int64") as i:
        with ib.for_range(tir.const(0, "int64"), wide, "j", dtype="int64") as j:
            a[i * wide + j] = a[j]
        with ib.for_range(tir.const(0, "int64"), wide, "k", dtype="int64") as k:
            a[k] = 0.0
    text = str(narrow_data_type(ib.get()))
    assert "for (i: int64" in text
    assert "for (j: int64" in text
    assert "(float32*)A[j]" in text
    assert "for (k: int32" in text


@pytest.mark.parametrize(("threads", "dtype"), [(2**10, "int32"), (2**30, "int64")])
def test_axes_of_threads_get_the_dtype_that_their_indices_need(threads: int, dtype: str) -> None:
    ib = ir_builder.create()
    a = ib.pointer("float32", "A")
    block = te.thread_axis("blockIdx.x")
    ib.scope_attr(block, "thread_extent", tir.const(threads, "int64"))
    a[tir.Cast("int64", block.var) * 32] = 0.0
    new = narrow_data_type(ib.get())
    assert new.node.var.dtype == dtype
    assert new.body.index.dtype == dtype


def test_bf16_legalize() -> None:
    ib = ir_builder.create()
    a, b, c = (ib.pointer("bfloat16", n) for n in "ABC")
    i = tir.Var("i")
    c[i] = a[i] + b[i]
    check(
        ib.get(),
        bf16_legalize,
        """
        C[i] = ((bfloat16*)A[i] + (bfloat16*)B[i])
        """,
        """
        C[i] = cast(bfloat16, (cast(float32, (bfloat16*)A[i]) + cast(float32, (bfloat16*)B[i])))
        """,
    )


def test_bf16_copies_are_not_converted() -> None:
    ib = ir_builder.create()
    a, b, i = ib.pointer("bfloat16", "A"), ib.pointer("bfloat16", "B"), tir.Var("i")
    b[i] = a[i]
    assert str(bf16_legalize(ib.get())) == "B[i] = (bfloat16*)A[i]\n"


def test_inject_virtual_thread() -> None:
    ib = ir_builder.create()
    a, c = ib.pointer("float32", "A"), ib.pointer("float32", "C")
    thread = tir.IterVar(tir.Range(0, 2), "vthread", 1, "vthread")
    ib.scope_attr(thread, "virtual_thread", 2)
    b = ib.allocate("float32", 1, name="B")
    b[0] = a[thread.var]
    c[thread.var] = b[0]
    check(
        ib.get(),
        inject_virtual_thread,
        """
        attr [IterVar(vthread: int32, [0:2], "ThreadIndex", "vthread")] "virtual_thread" = 2;
        allocate(B: Pointer(float32), float32, [1]), storage_scope = global {
          B[0] = (float32*)A[vthread]
          C[vthread] = (float32*)B[0]
        }
        """,
        """
        allocate(B: Pointer(float32), float32, [2, 1]), storage_scope = global {
          B[0] = (float32*)A[0]
          B[1] = (float32*)A[1]
          C[0] = (float32*)B[0]
          C[1] = (float32*)B[1]
        }
        """,
    )


def virtual_threads(ib: ir_builder.IRBuilder, count: int, tag: str = "vthread") -> tir.Var:
    thread = tir.IterVar(tir.Range(0, count), tag, 1, tag)
    ib.scope_attr(thread, "virtual_thread", count)
    return thread.var


def test_virtual_threads_share_what_is_the_same_for_all() -> None:
    ib = ir_builder.create()
    a, c = ib.pointer("float32", "A"), ib.pointer("float32", "C")
    thread = virtual_threads(ib, 2)
    tile = ib.allocate("float32", 8, name="tile", scope="shared")
    with ib.for_range(0, 8, "k") as k:
        tile[k] = a[k]
    c[thread] = tile[thread]
    done = str(inject_virtual_thread(ib.get()))
    assert done.count("float32, [8]") == done.count("tile[k] = ") == 1
    assert "C[0] = (float32*)tile[0]" in done and "C[1] = (float32*)tile[1]" in done


def test_virtual_threads_of_the_tag_cthread_share_nothing() -> None:
    ib = ir_builder.create()
    c = ib.pointer("float32", "C")
    thread = virtual_threads(ib, 2, "cthread")
    tile = ib.allocate("float32", 8, name="tile", scope="shared")
    tile[3] = 1.0
    c[thread] = tile[3]
    done = str(inject_virtual_thread(ib.get()))
    assert "float32, [2, 8]" in done and "tile[11] = 1f32" in done and "C[1] = (float32*)tile[11]" in done


def test_a_loop_that_differs_is_repeated_whole() -> None:
    ib = ir_builder.create()
    a, c = ib.pointer("float32", "A"), ib.pointer("float32", "C")
    thread = virtual_threads(ib, 2)
    total = ib.allocate("float32", 1, name="total", scope="local")
    total[0] = 0.0
    with ib.for_range(0, thread + 1, "k") as k:
        total[0] = total[0] + a[k]
    c[thread] = total[0]
    done = str(inject_virtual_thread(ib.get()))
    assert "float32, [2, 1]" in done and "total[1] = 0f32" in done
    assert "0, 1) {" in done and "0, 2) {" in done and "total[1] = ((float32*)total[1] + (float32*)A[k])" in done


def test_many_virtual_threads_make_a_loop() -> None:
    ib = ir_builder.create()
    a, c = ib.pointer("float32", "A"), ib.pointer("float32", "C")
    thread = virtual_threads(ib, 32)
    own = ib.allocate("float32", 1, name="own", scope="local")
    own[0] = a[thread]
    c[thread] = own[0]
    done = str(inject_virtual_thread(ib.get()))
    assert "float32, [32, 1]" in done and done.count("for (vthread.s: int32, 0, 32)") == 1
    assert "own[vthread.s] = (float32*)A[vthread.s]" in done


def test_memory_whose_address_is_handed_out_is_not_moved() -> None:
    ib = ir_builder.create()
    a, c = ib.pointer("float32", "A"), ib.pointer("float32", "C")
    thread = virtual_threads(ib, 2)
    own = ib.allocate("float32", 4, name="own", scope="local")
    ib.emit(tir.call_extern("int32", "fill", own.asobject(), a[thread]))
    c[thread] = own[0]
    done = str(inject_virtual_thread(ib.get()))
    assert done.count("float32, [4]") == 2 and 'fill", own_1, (float32*)A[1]' in done


def test_memory_that_a_function_fills_with_what_differs_has_a_part_for_each_index() -> None:
    ib = ir_builder.create()
    a, c = ib.pointer("float32", "A"), ib.pointer("float32", "C")
    thread = virtual_threads(ib, 2)
    own = ib.allocate("float32", 4, name="own", scope="local")

    def pointer(buffer: tir.Var, offset: tir.PrimExpr, mode: int) -> tir.PrimExpr:
        return tir.call_intrin("handle", "tir.tvm_access_ptr", tir.const(0, "float32"), buffer, offset, 4, mode)

    ib.emit(tir.call_extern("int32", "load", pointer(own.asobject(), 0, 2), pointer(a.asobject(), thread * 4, 1)))
    c[thread] = own[0]
    done = str(inject_virtual_thread(ib.get()))
    assert "float32, [2, 4]" in done and "C[1] = (float32*)own[4]" in done
    assert "own, 4, 4, 2, dtype=handle), @tir.tvm_access_ptr(0f32, A, 4, 4, 1" in done


def double_buffered(extent: int | tir.Var = 8) -> tir.Stmt:
    ib = ir_builder.create()
    a, out = ib.pointer("float32", "A"), ib.pointer("float32", "C")
    with ib.for_range(0, extent, "x") as x:
        b = ib.allocate("float32", 4, name="B")
        c = tir.Var("c")
        fill = tir.For(c, 0, 4, 0, tir.Store(b.asobject(), a[x * 4 + c], c))
        ib.emit(tir.AttrStmt(b.asobject(), "double_buffer_scope", 1, fill))
        with ib.for_range(0, 4, "d") as d:
            out[x * 4 + d] = b[d]
    return ib.get()


def test_nothing_is_fetched_ahead_of_a_loop_that_may_have_no_iterations() -> None:
    done = str(inject_double_buffer(double_buffered(tir.Var("n", "int32"))))
    assert done.index("if (n > 0)") < done.index("B[c] = (float32*)A[c]") < done.index("for (x: int32, 0, n)")


def test_inject_double_buffer() -> None:
    check(
        double_buffered(),
        inject_double_buffer,
        """
        for (x: int32, 0, 8) {
          allocate(B: Pointer(float32), float32, [4]), storage_scope = global {
            attr [B] "double_buffer_scope" = 1;
            for (c: int32, 0, 4) {
              B[c] = (float32*)A[((x*4) + c)]
            }
            for (d: int32, 0, 4) {
              C[((x*4) + d)] = (float32*)B[d]
            }
          }
        }
        """,
        """
        allocate(B: Pointer(float32), float32, [2, 4]), storage_scope = global {
          for (c: int32, 0, 4) {
            B[c] = (float32*)A[c]
          }
          for (x: int32, 0, 8) {
            if @tir.likely(((x + 1) < 8), dtype=bool) {
              for (c, 0, 4) {
                B[(c + (floormod((x + 1), 2)*4))] = (float32*)A[(((x + 1)*4) + c)]
              }
            }
            for (d: int32, 0, 4) {
              C[((x*4) + d)] = (float32*)B[(d + (floormod(x, 2)*4))]
            }
          }
        }
        """,
    )


@pytest.mark.parametrize(("extent", "split"), [(8, 2), (7, 2), (7, 4), (1, 2)])
def test_a_split_loop_knows_its_half(extent: int, split: int) -> None:
    func = tir.PrimFunc([], double_buffered(extent))
    with PassContext(config={"tir.InjectDoubleBuffer": {"split_loop": split}}):
        module = T.Simplify()(T.InjectDoubleBuffer()(IRModule({"main": func})))
    done = module["main"].body
    assert ("floormod" in str(done)) == (extent == 7 and split == 4)  # the loop of the 3 that are left
    data, found = np.arange(4 * extent, dtype="float32"), np.zeros(4 * extent, "float32")
    machine = Interpreter()
    for var in stmt_vars(done):
        if var.name in ("A", "C"):
            machine.declare(var, data.size, "float32", {"A": data, "C": found}[var.name])
    machine.run(done)
    np.testing.assert_array_equal(found, data)


def test_what_is_filled_ahead_of_the_loop_has_the_loops_threads() -> None:
    ib = ir_builder.create()
    a, out = ib.pointer("float32", "A"), ib.pointer("float32", "C")
    thread = tir.IterVar(tir.Range(0, 4), "threadIdx.x", 1, "threadIdx.x")
    with ib.for_range(0, 8, "x") as x:
        b = ib.allocate("float32", 4, name="B", scope="shared")
        ib.scope_attr(thread, "thread_extent", 4)
        fill = tir.Store(b.asobject(), a[x * 4 + thread.var], thread.var)
        ib.emit(tir.AttrStmt(b.asobject(), "double_buffer_scope", 1, fill))
        out[x * 4 + thread.var] = b[thread.var]
    done = str(inject_double_buffer(ib.get()))
    assert "[2, 4]" in done
    first, loop = done.split("for (")
    assert first.index('"thread_extent" = 4') < first.index("B[threadIdx.x] = (float32*)A[threadIdx.x]")
    assert '"thread_extent" = 4' in loop


def test_inject_prefetch_and_its_flat_form() -> None:
    a, b = tir.decl_buffer((8, 16), name="A"), tir.decl_buffer((8, 16), name="B")
    i, j = tir.Var("i"), tir.Var("j")
    copy = tir.For(j, 0, 16, 0, tir.BufferStore(b, tir.BufferLoad(a, [i, j]), [i, j]))
    stmt = tir.For(i, 0, 8, 0, tir.AttrStmt(a, "prefetch_scope", 2, copy))
    check(
        stmt,
        inject_prefetch,
        """
        for (i: int32, 0, 8) {
          attr [A] "prefetch_scope" = 2;
          for (j: int32, 0, 16) {
            B[i, j] = A[i, j]
          }
        }
        """,
        """
        for (i: int32, 0, 8) {
          prefetch(A, [[(i + 2):((i + 2) + 1)], [0:16]])
          for (j: int32, 0, 16) {
            B[i, j] = A[i, j]
          }
        }
        """,
    )
    pa, pb = tir.Var("A", "handle"), tir.Var("B", "handle")
    flat = storage_flatten(tir.PrimFunc([pa, pb], inject_prefetch(stmt), None, {pa: a, pb: b}))
    assert "@tir.prefetch(@tir.address_of((float32*)A_2[(((i*16) + 32) + (prefetch.A.line*16))]" in str(flat)


def _shared(row: int, turns: int) -> tir.Stmt:
    """Rows of ``row`` floats are copied in ``turns`` turns each; each turn prefetches a share of the next row."""
    a, b = tir.decl_buffer((8, row), name="A"), tir.decl_buffer((8, row), name="B")
    i, j, k = tir.Var("i"), tir.Var("j"), tir.Var("k")
    at = [i, j * (row // turns) + k]
    copy = tir.For(k, 0, row // turns, 0, tir.BufferStore(b, tir.BufferLoad(a, at), at))
    share = tir.AttrStmt(a, "prefetch_share", tir.call_intrin("handle", "tir.tvm_tuple", i, 1), copy)
    return tir.For(i, 0, 8, 0, tir.For(j, 0, turns, 0, share))


def test_inject_prefetch_shares_the_next_row_out_over_the_turns() -> None:
    check(
        _shared(64, 4),
        inject_prefetch,
        """
        for (i: int32, 0, 8) {
          for (j: int32, 0, 4) {
            attr [A] "prefetch_share" = @tir.tvm_tuple(i, 1, dtype=handle);
            for (k: int32, 0, 16) {
              B[i, ((j*16) + k)] = A[i, ((j*16) + k)]
            }
          }
        }
        """,
        """
        for (i: int32, 0, 8) {
          for (j: int32, 0, 4) {
            @tir.prefetch(@tir.address_of(A[min((i + 1), 7), (j*16)], dtype=handle), 0, 2, 1, dtype=handle)
            for (k: int32, 0, 16) {
              B[i, ((j*16) + k)] = A[i, ((j*16) + k)]
            }
          }
        }
        """,
    )


@pytest.mark.parametrize(("row", "turns", "expected"), [(64, 8, "min(j, 3)"), (128, 2, "((j*4) + prefetch.A.line)")])
def test_inject_prefetch_with_more_turns_than_lines_and_fewer(row: int, turns: int, expected: str) -> None:
    assert expected in str(inject_prefetch(_shared(row, turns)))


@pytest.mark.parametrize("turns", [1, 2, 3, 5, 16, 17, 40])
def test_inject_prefetch_shares_out_over_turns_that_are_counted_at_run_time(turns: int) -> None:
    lines, n, i, j = 16, tir.Var("n"), tir.Var("i"), tir.Var("j")
    a = tir.decl_buffer((8, lines * 16), name="A")
    k = tir.Var("k")
    read = tir.For(k, 0, lines * 16, 0, tir.Evaluate(tir.BufferLoad(a, [i, k])))
    loops = [tir.For(i, 0, 8, 0, read), tir.For(j, 0, n, 0, read)]
    fetch = shared_prefetch(a, loops, i, ops.const(1, "int32"))
    assert isinstance(fetch, tir.For) and fetch.kind == tir.ForKind.SERIAL
    address = fetch.body.value.args[0].args[0].indices[-1]
    share = _number(fetch.extent, {n: turns})
    assert share == -(-lines // turns)
    every = [{n: turns, j: turn, fetch.loop_var: line} for turn in range(turns) for line in range(share)]
    assert {_number(address, values) for values in every} == {line * 16 for line in range(lines)}


def _number(expr: tir.PrimExpr, values: dict[tir.Var, int]) -> int:
    constants = {var: ops.const(value, "int32") for var, value in values.items()}
    return int(arith.Analyzer().simplify(substitute(expr, constants)))


def test_inject_prefetch_goes_on_in_the_next_iteration_of_the_loop_around() -> None:
    a, b = tir.decl_buffer((4, 8, 16), name="A"), tir.decl_buffer((4, 8, 16), name="B")
    o, i, j = tir.Var("o"), tir.Var("i"), tir.Var("j")
    copy = tir.BufferStore(b, tir.BufferLoad(a, [o, i, j]), [o, i, j])
    share = tir.AttrStmt(a, "prefetch_share", tir.call_intrin("handle", "tir.tvm_tuple", i, 1), copy)
    nest = tir.For(o, 0, 4, 0, tir.For(i, 0, 8, 0, tir.For(j, 0, 16, 0, share)))
    outer, inner = "min((o + select(((i + 1) < 8), 0, 1)), 3)", "select(((i + 1) < 8), (i + 1), ((i + 1) - 8))"
    assert f"@tir.address_of(A[{outer}, {inner}, " in str(inject_prefetch(nest))


def test_inject_prefetch_leaves_out_what_has_no_loop_or_is_not_contiguous() -> None:
    nest = _shared(64, 4)
    inner = tir.For(tir.Var("m"), 0, 2, 0, nest.body)  # the loop over i is gone
    assert "prefetch" not in str(inject_prefetch(inner))
    a = tir.decl_buffer((8, 64), name="A")
    i, j = tir.Var("i"), tir.Var("j")
    part = tir.Evaluate(tir.BufferLoad(a, [j, i * 8]))  # a column
    share = tir.AttrStmt(a, "prefetch_share", tir.call_intrin("handle", "tir.tvm_tuple", i, 1), part)
    assert "prefetch" not in str(inject_prefetch(tir.For(i, 0, 8, 0, tir.For(j, 0, 8, 0, share))))


def test_combine_context_call() -> None:
    context = tir.call_intrin("handle", "tir.tvm_thread_context", tir.call_extern("handle", "ctx"))
    calls = [tir.Evaluate(tir.call_extern("int32", name, context)) for name in "fg"]
    check(
        tir.SeqStmt(calls),
        combine_context_call,
        """
        @tir.call_extern("f", @tir.tvm_thread_context(@tir.call_extern("ctx", dtype=handle), dtype=handle), dtype=int32)
        @tir.call_extern("g", @tir.tvm_thread_context(@tir.call_extern("ctx", dtype=handle), dtype=handle), dtype=int32)
        """,
        """
        let ctx_cache_: handle = @tir.call_extern("ctx", dtype=handle) {
          @tir.call_extern("f", ctx_cache_, dtype=int32)
          @tir.call_extern("g", ctx_cache_, dtype=int32)
        }
        """,
    )


def test_apply_filter_and_prim_func_pass() -> None:
    func = tir.PrimFunc([], tir.Evaluate(0), attrs={"global_symbol": "f"})
    mod = IRModule.from_expr(func)
    assert T.Apply(lambda f: f.with_attr("x", 1))(mod)["f"].attrs["x"] == 1
    assert len(T.Filter(lambda f: "y" in f.attrs)(mod)) == 0

    @T.prim_func_pass(opt_level=0, name="mark")
    def mark(f, mod, ctx):
        return f.with_attr("marked", True)

    assert mark(mod)["f"].attrs["marked"] is True


def test_an_undeclared_buffer_is_an_error() -> None:
    a = tir.decl_buffer((4,), name="A")
    func = tir.PrimFunc([], tir.BufferStore(a, 1.0, [0]))
    with pytest.raises(TilewrightError, match="buffer A is accessed where it is neither a parameter nor realised"):
        storage_flatten(func)


@pytest.mark.parametrize(("factor", "offset"), [(8, 0), (16, 3), (1, 0)])
def test_aligned_strides_pad_and_keep_values(factor: int, offset: int) -> None:
    a, out = tir.decl_buffer((3, 5), name="A"), tir.decl_buffer((3, 5), name="B")
    local = tir.decl_buffer((3, 5), name="C")
    i, j, k, m = (tir.Var(n) for n in "ijkm")

    def nest(x, y, body):
        return tir.For(x, 0, 3, 0, tir.For(y, 0, 5, 0, body))

    fill = nest(i, j, tir.BufferStore(local, tir.BufferLoad(a, [i, j]), [i, j]))
    use = nest(k, m, tir.BufferStore(out, tir.BufferLoad(local, [k, m]), [k, m]))
    region = [tir.Range(0, 3), tir.Range(0, 5)]
    body = tir.BufferRealize(local, region, tir.const(True), tir.SeqStmt([fill, use]))
    align = tir.call_intrin("handle", "tir.tvm_tuple", 0, factor, offset)
    pa, pb = tir.Var("A", "handle"), tir.Var("B", "handle")
    func = tir.PrimFunc([pa, pb], tir.AttrStmt(local, "buffer_dim_align", align, body), None, {pa: a, pb: out})
    flat = storage_flatten(func)
    data, found = np.arange(15, dtype="float32").reshape(3, 5), np.zeros((3, 5), "float32")
    run(flat, A=data, B=found)
    np.testing.assert_array_equal(found, data)
    stride = 5 + (factor + offset - 5 % factor) % factor
    assert f"allocate(C: Pointer(global float32), float32, [{3 * stride}])" in str(flat)


def test_what_the_same_iteration_computes_is_not_fetched_ahead() -> None:
    ib = ir_builder.create()
    a, c = ib.pointer("float32", "A"), ib.pointer("float32", "C")
    with ib.for_range(0, 8, "x") as x:
        b = ib.allocate("float32", 1, "B", scope="global")
        d = ib.allocate("float32", 1, "D", scope="global")
        d[0] = a[x] * 2.0
        with ib.new_scope():
            ib.scope_attr(b.asobject(), "double_buffer_scope", 1)
            b[0] = d[0]
        c[x] = b[0]
    stmt = ib.get()
    done = inject_double_buffer(stmt)
    assert "[2, 1]" not in str(done) and "double_buffer_scope" not in str(done)
