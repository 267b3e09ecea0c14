"""A partial tile has a loop nest of its own for each number of rows."""

import numpy as np
import pytest
from tests.tir.transform.texts import check

import tilewright as tvm
from tilewright import te, tir
from tilewright.testing.tir_interpreter import run
from tilewright.tir import ir_builder
from tilewright.tir.transform.specialize_tails import specialize_tails


def sums(rest: tir.PrimExpr, rows: int, columns: str = "serial") -> tir.Stmt:
    """Sums of the ``rest`` last rows of (rows, 5) ``A``."""
    ib = ir_builder.create()
    a, b = ib.pointer("float32", "A"), ib.pointer("float32", "B")
    with (
        ib.for_range(0, 2, "i") as i,
        ib.for_range(0, 5, "k", kind=columns) as k,
        ib.for_range(0, rows, "j", kind="unroll") as j,
        ib.if_scope(ib.likely(i * rows + j < rest)),
    ):
        b[i * rows + j] += a[(i * rows + j) * 5 + k]
    return ib.get()


def test_each_number_of_rows_has_its_own_loops() -> None:
    check(
        sums(tir.floormod(tir.SizeVar("n"), 3), 3),
        specialize_tails,
        """
        for (i: int32, 0, 2) {
          for (k: int32, 0, 5) {
            for (j: int32, 0, 3) "unroll" {
              if @tir.likely((((i*3) + j) < floormod(n, 3)), dtype=bool) {
                B[((i*3) + j)] = ((float32*)B[((i*3) + j)] + (float32*)A[((((i*3) + j)*5) + k)])
              }
            }
          }
        }
        """,
        """
        for (i: int32, 0, 2) {
          if ((floormod(n, 3) - (i*3)) == 1) {
            for (k: int32, 0, 5) {
              for (j: int32, 0, 1) "unroll" {
                B[((i*3) + j)] = ((float32*)B[((i*3) + j)] + (float32*)A[((((i*3) + j)*5) + k)])
              }
            }
          } else {
            if ((floormod(n, 3) - (i*3)) >= 2) {
              for (k, 0, 5) {
                for (j, 0, 2) "unroll" {
                  B[((i*3) + j)] = ((float32*)B[((i*3) + j)] + (float32*)A[((((i*3) + j)*5) + k)])
                }
              }
            }
          }
        }
        """,
    )


def test_a_rest_without_a_bound_keeps_the_tests_for_whole_tiles() -> None:
    text = str(specialize_tails(sums(tir.SizeVar("n"), 3)))
    assert text.count("for (k") == 3 and text.count("likely") == 1


@pytest.mark.parametrize("kind", ["unroll", "vectorize"])
def test_what_no_loop_tests_again_stays(kind: str) -> None:
    stmt = sums(tir.SizeVar("n"), 4, kind)
    assert specialize_tails(stmt) is stmt


def test_a_tile_of_many_rows_stays() -> None:
    stmt = sums(tir.SizeVar("n"), 33)
    assert specialize_tails(stmt) is stmt


@pytest.mark.parametrize("tile", [1, 2, 5, 8])
def test_sums_of_any_number_of_rows(tile: int) -> None:
    n = te.size_var("n")
    a = te.placeholder((n, 3), name="a")
    k = te.reduce_axis((0, 3), name="k")
    total = te.compute((n, 2), lambda i, j: te.sum(a[i, k.var] * (j + 1.0), axis=k), name="total")
    s = te.create_schedule(total.op)
    local = s.cache_write(total, "local")
    stage = s[total]
    outer, inner = stage.split(total.op.axis[0], factor=tile)
    stage.unroll(inner)
    s[local].compute_at(stage, outer)
    row, column = s[local].op.axis
    s[local].reorder(s[local].op.reduce_axis[0], row, column)
    s[local].unroll(row)
    func = tvm.lower(s, [a, total])["main"]
    assert tile == 1 or str(func).count("for (k") == tile
    built = tvm.build(func, target="llvm")
    for rows in (*range(1, 2 * tile + 2), 31):
        data, out = np.arange(rows * 3, dtype="float32").reshape(rows, 3), np.full((rows, 2), np.nan, "float32")
        run(func, data, out)
        np.testing.assert_allclose(out, data.sum(1)[:, None] * [1, 2])
        given, found = tvm.nd.array(data), tvm.nd.array(np.full((rows, 2), np.nan, "float32"))
        built(given, found)
        np.testing.assert_allclose(found.numpy(), out)


def test_inner_tails_are_specialized_for_what_the_outer_one_leaves() -> None:
    ib = ir_builder.create()
    buffers = {tir.Var(name, "handle"): tir.decl_buffer((20,), "float32", name) for name in ("A", "B")}
    a, b = map(ib.buffer_ptr, buffers.values())
    w = tir.SizeVar("w")
    with (
        ib.for_range(0, w // 4 + 1, "o") as o,
        ib.for_range(0, 3, "k") as k,
        ib.for_range(0, 5, "c"),
        ib.for_range(0, 4, "j", kind="unroll") as j,
        ib.if_scope(ib.likely(o * 4 + j < w)),
        ib.if_scope(ib.likely(o * 4 + j + k < w)),
    ):
        b[o * 4 + j] += a[o * 4 + j + k]
    body = ib.get()
    text = str(specialize_tails(body))
    assert text.count("==") < 4 + 3 * 4  # not for each pair of numbers of rows
    for width in (1, 2, 3, 4, 5, 7, 8):
        data, before, after = np.arange(20, dtype="float32"), np.zeros(20, "float32"), np.zeros(20, "float32")
        run(tir.PrimFunc([*buffers, w], body, buffer_map=buffers), data, before, width)
        run(tir.PrimFunc([*buffers, w], specialize_tails(body), buffer_map=buffers), data, after, width)
        np.testing.assert_array_equal(after, before)


def test_a_rest_of_a_quotient_has_a_bound() -> None:
    ib = ir_builder.create()
    buffers = {tir.Var(name, "handle"): tir.decl_buffer((40,), "float32", name) for name in ("A", "B")}
    a, b = map(ib.buffer_ptr, buffers.values())
    w = tir.SizeVar("w")
    with (
        ib.for_range(0, 1, "o") as o,
        ib.for_range(0, 3, "k"),
        ib.for_range(0, 4, "j", kind="unroll") as j,
        ib.if_scope(ib.likely(w // 8 * 4 + o * 4 + j < w // 2)),
    ):
        b[w // 8 * 4 + o * 4 + j] += a[w // 8 * 4 + o * 4 + j]
    body = ib.get()
    assert "likely" not in str(specialize_tails(body))
    for width in range(17):
        data, before, after = np.arange(40, dtype="float32"), np.zeros(40, "float32"), np.zeros(40, "float32")
        run(tir.PrimFunc([*buffers, w], body, buffer_map=buffers), data, before, width)
        run(tir.PrimFunc([*buffers, w], specialize_tails(body), buffer_map=buffers), data, after, width)
        np.testing.assert_array_equal(after, before)


def test_neighbours_that_do_not_repeat_the_test_are_not_written_out() -> None:
    ib = ir_builder.create()
    a, b, c = ib.pointer("float32", "A"), ib.pointer("float32", "B"), ib.pointer("float32", "C")
    rest = tir.floormod(tir.SizeVar("n"), 4)
    with ib.for_range(0, 2, "i") as i:
        with ib.for_range(0, 4, "before") as row:
            c[i * 4 + row] = 1.0
        total = ib.allocate("float32", (4,), "total", scope="local")
        with ib.for_range(0, 4, "j", kind="unroll") as j, ib.if_scope(ib.likely(i * 4 + j < rest)):
            total[j] = 0.0
        with (
            ib.for_range(0, 5, "k") as k,
            ib.for_range(0, 4, "j", kind="unroll") as j,
            ib.if_scope(ib.likely(i * 4 + j < rest)),
        ):
            total[j] += a[(i * 4 + j) * 5 + k]
        with ib.for_range(0, 4, "j", kind="unroll") as j, ib.if_scope(ib.likely(i * 4 + j < rest)):
            b[i * 4 + j] = total[j]
    text = str(specialize_tails(ib.get()))
    assert text.count("for (before") == 1
    assert text.count("for (k") == 3 and text.count("allocate(total") == 3 and "likely" not in text
