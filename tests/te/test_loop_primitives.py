"""The primitives of a stage, by the loops that they give."""

from __future__ import annotations

import pytest
from tests.te.support import loops, text

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import TilewrightError
from tilewright.te.schedule import Schedule, Stage


def vector(n: int = 16, copy: bool = False) -> tuple[te.Tensor, te.Tensor, Schedule, Stage]:
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] if copy else a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    return a, b, s, s[b]


def matrix(n: int = 4, m: int = 6, copy: bool = False) -> tuple[te.Tensor, te.Tensor, Schedule, Stage]:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] if copy else a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    return a, b, s, s[b]


def chain() -> tuple[te.Tensor, te.Tensor, te.Tensor, Schedule]:
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((16,), lambda i: b[i] * 2.0, name="C")
    return a, b, c, te.create_schedule(c.op)


def row_sum() -> tuple[te.Tensor, te.Tensor, Schedule, Stage]:
    a = te.placeholder((4, 6), name="A")
    k = te.reduce_axis((0, 6), name="k")
    b = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    return a, b, s, s[b]


def test_default_schedule() -> None:
    a, b, s, _ = matrix()
    assert loops(s, [a, b]) == text("""
        for (i: int32, 0, 4) {
          for (j: int32, 0, 6) {
            B[i, j] = (A[i, j] + 1f32)
          }
        }
    """)


def test_split_that_divides_needs_no_test() -> None:
    a, b, s, stage = vector()
    stage.split(b.op.axis[0], factor=4)
    assert loops(s, [a, b]) == text("""
        for (i.outer: int32, 0, 4) {
          for (i.inner: int32, 0, 4) {
            B[((i.outer*4) + i.inner)] = (A[((i.outer*4) + i.inner)] + 1f32)
          }
        }
    """)


def test_split_that_does_not_divide_tests_the_boundary() -> None:
    a, b, s, stage = vector()
    stage.split(b.op.axis[0], factor=5)
    assert loops(s, [a, b]) == text("""
        for (i.outer: int32, 0, 4) {
          for (i.inner: int32, 0, 5) {
            if @tir.likely((((i.outer*5) + i.inner) < 16), dtype=bool) {
              B[((i.outer*5) + i.inner)] = (A[((i.outer*5) + i.inner)] + 1f32)
            }
          }
        }
    """)


def test_split_by_number_of_parts() -> None:
    a, b, s, stage = vector()
    stage.split(b.op.axis[0], nparts=8)
    assert loops(s, [a, b]) == text("""
        for (i.outer: int32, 0, 8) {
          for (i.inner: int32, 0, 2) {
            B[((i.outer*2) + i.inner)] = (A[((i.outer*2) + i.inner)] + 1f32)
          }
        }
    """)


def test_split_by_more_than_the_extent_makes_no_longer_loop() -> None:
    a, b, s, stage = vector(3)
    stage.split(b.op.axis[0], factor=8)
    assert loops(s, [a, b]) == text("""
        for (i.inner: int32, 0, 3) {
          B[i.inner] = (A[i.inner] + 1f32)
        }
    """)


def test_split_of_a_split_tests_once() -> None:
    a, b, s, stage = vector(30, copy=True)
    outer, _ = stage.split(b.op.axis[0], factor=4)
    stage.split(outer, factor=3)
    assert loops(s, [a, b]) == text("""
        for (i.outer.outer: int32, 0, 3) {
          for (i.outer.inner: int32, 0, 3) {
            for (i.inner: int32, 0, 4) {
              if @tir.likely(((((i.outer.outer*12) + (i.outer.inner*4)) + i.inner) < 30), dtype=bool) {
                B[((((i.outer.outer*3) + i.outer.inner)*4) + i.inner)] = A[((((i.outer.outer*3) + i.outer.inner)*4) + i.inner)]
              }
            }
          }
        }
    """)  # noqa: E501


def test_split_of_an_inner_loop_keeps_it_inside_its_block() -> None:
    a, b, s, stage = vector(copy=True)
    _, inner = stage.split(b.op.axis[0], factor=4)
    stage.split(inner, factor=3)
    assert loops(s, [a, b]) == text("""
        for (i.outer: int32, 0, 4) {
          for (i.inner.outer: int32, 0, 2) {
            for (i.inner.inner: int32, 0, 3) {
              if @tir.likely((((i.inner.outer*3) + i.inner.inner) < 4), dtype=bool) {
                B[((i.outer*4) + ((i.inner.outer*3) + i.inner.inner))] = A[((i.outer*4) + ((i.inner.outer*3) + i.inner.inner))]
              }
            }
          }
        }
    """)  # noqa: E501


def test_fuse() -> None:
    a, b, s, stage = matrix()
    stage.fuse(*b.op.axis)
    assert loops(s, [a, b]) == text("""
        for (i.j.fused: int32, 0, 24) {
          B[floordiv(i.j.fused, 6), floormod(i.j.fused, 6)] = (A[floordiv(i.j.fused, 6), floormod(i.j.fused, 6)] + 1f32)
        }
    """)


def test_fuse_of_nothing_gives_a_loop_of_one_iteration() -> None:
    a = te.placeholder((4,), name="A")
    k = te.reduce_axis((0, 4), name="k")
    b = te.compute((), lambda: te.sum(a[k], axis=k), name="B")
    s = te.create_schedule(b.op)
    single = s[b].fuse(*b.op.axis)
    s[b].parallel(single)
    assert loops(s, [a, b]) == text("""
        B[] = 0f32
        for (k: int32, 0, 4) {
          B[] = (B[] + A[k])
        }
    """)


def test_fused_loop_split_without_remainder_of_rows_tests_once() -> None:
    a, b, s, stage = matrix()
    stage.split(stage.fuse(*b.op.axis), factor=5)
    assert loops(s, [a, b]).count("likely") == 1


def test_what_a_vector_cannot_change_is_tested_without_it() -> None:
    a = te.placeholder((24,), name="A")
    b = te.compute((24,), lambda i: a[i] + 1, name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=4)
    s[b].split(outer, factor=5)
    s[b].vectorize(inner)
    assert "if @tir.likely((((i.outer.outer*5) + i.outer.inner) < 6)" in loops(s, [a, b])


def test_reorder() -> None:
    a, b, s, stage = matrix()
    i, j = b.op.axis
    stage.reorder(j, i)
    assert loops(s, [a, b]) == text("""
        for (j: int32, 0, 6) {
          for (i: int32, 0, 4) {
            B[i, j] = (A[i, j] + 1f32)
          }
        }
    """)


def test_reorder_of_some_loops_leaves_the_others_in_place() -> None:
    _, b, _, stage = matrix()
    i, j = b.op.axis
    io, ii = stage.split(i, factor=2)
    stage.reorder(j, io)
    assert stage.leaf_iter_vars == [j, ii, io]


def test_tile() -> None:
    a, b, s, stage = matrix(copy=True)
    stage.tile(*b.op.axis, 2, 3)
    assert loops(s, [a, b]) == text("""
        for (i.outer: int32, 0, 2) {
          for (j.outer: int32, 0, 2) {
            for (i.inner: int32, 0, 2) {
              for (j.inner: int32, 0, 3) {
                B[((i.outer*2) + i.inner), ((j.outer*3) + j.inner)] = A[((i.outer*2) + i.inner), ((j.outer*3) + j.inner)]
              }
            }
          }
        }
    """)  # noqa: E501


@pytest.mark.parametrize(
    ("primitive", "kind"), [("vectorize", "vectorized"), ("unroll", "unroll"), ("parallel", "parallel")]
)
def test_loop_kinds(primitive: str, kind: str) -> None:
    a, b, s, stage = vector()
    getattr(stage, primitive)(b.op.axis[0])
    assert loops(s, [a, b]) == text(f"""
        for (i: int32, 0, 16) "{kind}" {{
          B[i] = (A[i] + 1f32)
        }}
    """)


def test_bind_to_threads() -> None:
    a, b, s, stage = vector()
    outer, inner = stage.split(b.op.axis[0], factor=4)
    stage.bind(outer, te.thread_axis("blockIdx.x"))
    stage.bind(inner, te.thread_axis("threadIdx.x"))
    assert loops(s, [a, b]) == text("""
        attr [IterVar(blockIdx.x: int32, [0:4], "ThreadIndex", "blockIdx.x")] "thread_extent" = 4;
        attr [IterVar(threadIdx.x: int32, [0:4], "ThreadIndex", "threadIdx.x")] "thread_extent" = 4;
        B[((blockIdx.x*4) + threadIdx.x)] = (A[((blockIdx.x*4) + threadIdx.x)] + 1f32)
    """)


def test_threads_of_one_block_share_what_is_computed_in_it() -> None:
    a, b, c, s = chain()
    outer, inner = s[c].split(c.op.axis[0], factor=4)
    thread = te.thread_axis("threadIdx.x")
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    s[c].bind(inner, thread)
    s[b].compute_at(s[c], outer)
    s[b].bind(b.op.axis[0], thread)
    assert loops(s, [a, c]) == text("""
        attr [IterVar(blockIdx.x: int32, [0:4], "ThreadIndex", "blockIdx.x")] "thread_extent" = 4;
        realize(B, [[(blockIdx.x*4):((blockIdx.x*4) + 4)]]) {
          attr [IterVar(threadIdx.x: int32, [0:4], "ThreadIndex", "threadIdx.x")] "thread_extent" = 4;
          B[(threadIdx.x + (blockIdx.x*4))] = (A[(threadIdx.x + (blockIdx.x*4))] + 1f32)
          attr [IterVar(threadIdx.x, [0:4], "ThreadIndex", "threadIdx.x")] "thread_extent" = 4;
          C[((blockIdx.x*4) + threadIdx.x)] = (B[((blockIdx.x*4) + threadIdx.x)]*2f32)
        }
    """)


def test_virtual_threads() -> None:
    a, b, s, stage = vector()
    outer, _ = stage.split(b.op.axis[0], nparts=2)
    stage.bind(outer, te.thread_axis("vthread"))
    assert loops(s, [a, b]) == text("""
        attr [IterVar(vthread: int32, [0:2], "ThreadIndex", "vthread")] "virtual_thread" = 2;
        for (i.inner: int32, 0, 8) {
          B[((vthread*8) + i.inner)] = (A[((vthread*8) + i.inner)] + 1f32)
        }
    """)


def test_compute_root_is_the_default() -> None:
    a, b, c, s = chain()
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].compute_root()
    assert loops(s, [a, c]) == text("""
        realize(B, [[0:16]]) {
          for (i: int32, 0, 16) {
            B[i] = (A[i] + 1f32)
          }
          for (i_1: int32, 0, 16) {
            C[i_1] = (B[i_1]*2f32)
          }
        }
    """)


def test_compute_at() -> None:
    a, b, c, s = chain()
    outer, _ = s[c].split(c.op.axis[0], factor=4)
    s[b].compute_at(s[c], outer)
    assert loops(s, [a, c]) == text("""
        for (i.outer: int32, 0, 4) {
          realize(B, [[(i.outer*4):((i.outer*4) + 4)]]) {
            for (i: int32, 0, 4) {
              B[((i.outer*4) + i)] = (A[((i.outer*4) + i)] + 1f32)
            }
            for (i.inner: int32, 0, 4) {
              C[((i.outer*4) + i.inner)] = (B[((i.outer*4) + i.inner)]*2f32)
            }
          }
        }
    """)


def test_compute_at_a_loop_that_is_split_later() -> None:
    a, b, c, s = chain()
    s[b].compute_at(s[c], c.op.axis[0])
    s[c].split(c.op.axis[0], factor=4)
    assert "realize(B, [[((i.outer*4) + i.inner):(((i.outer*4) + i.inner) + 1)]])" in loops(s, [a, c])


def test_compute_inline() -> None:
    a, b, c, s = chain()
    s[b].compute_inline()
    assert loops(s, [a, c]) == text("""
        for (i: int32, 0, 16) {
          C[i] = ((A[i] + 1f32)*2f32)
        }
    """)


def test_set_scope() -> None:
    a, b, c, s = chain()
    s[b].set_scope("local")
    found = s.normalize()
    assert found[b].scope == "local"
    assert "Pointer(local float32)" in str(_lowered(s, [a, c]))


def _lowered(s: Schedule, args: list[te.Tensor]) -> object:
    return tvm.lower(s, args)


def test_storage_align() -> None:
    a = te.placeholder((4, 8), name="A")
    b = te.compute((4, 8), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((4, 8), lambda i, j: b[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    s[b].storage_align(b.op.axis[0], 8, 1)
    assert 'attr [B] "buffer_dim_align" = @tir.tvm_tuple(0, 8, 1, dtype=handle);' in loops(s, [a, c])
    assert "allocate(B: Pointer(global float32), float32, [36])" in str(_lowered(s, [a, c]))


def test_double_buffer() -> None:
    a, b, c, s = chain()
    outer, _ = s[c].split(c.op.axis[0], factor=4)
    s[b].compute_at(s[c], outer)
    s[b].double_buffer()
    assert '"double_buffer_scope" = 1;' in loops(s, [a, c])
    assert "allocate(B: Pointer(global float32), float32, [8])" in str(_lowered(s, [a, c]))


def test_pragma() -> None:
    a, b, s, stage = vector()
    stage.pragma(b.op.axis[0], "auto_unroll_max_step", 8)
    assert loops(s, [a, b]) == text("""
        attr [IterVar(i: int32, [0:16], "DataPar", "")] "pragma_auto_unroll_max_step" = 8;
        for (i, 0, 16) {
          B[i] = (A[i] + 1f32)
        }
    """)


def test_prefetch() -> None:
    a, b, s, stage = vector()
    outer, _ = stage.split(b.op.axis[0], factor=4)
    stage.prefetch(a, outer, 1)
    assert 'attr [A] "prefetch_scope" = 1;' in loops(s, [a, b])
    assert "@tir.prefetch(" in str(_lowered(s, [a, b]))


def test_prefetch_of_what_is_read_once() -> None:
    a, b, s, stage = vector()
    outer, _ = stage.split(b.op.axis[0], factor=4)
    stage.prefetch(a, outer, 1, stream=True)
    assert 'attr [A] "prefetch_stream" = 1;' in loops(s, [a, b])
    assert "dtype=handle), 0, 0, 1, dtype=handle)" in str(_lowered(s, [a, b]))  # to be read, of no locality


def test_prefetch_for_an_outer_loop() -> None:
    a, b, s, stage = vector()
    outer, inner = stage.split(b.op.axis[0], factor=4)
    stage.prefetch(a, inner, 1, ahead=outer)
    assert 'attr [A] "prefetch_share" = @tir.tvm_tuple(i.outer, 1, dtype=handle);' in loops(s, [a, b])
    assert "@tir.prefetch(" in str(_lowered(s, [a, b]))


def test_store_predicate() -> None:
    a, b, s, stage = vector()
    stage.set_store_predicate(b.op.axis[0].var.equal(0))
    assert loops(s, [a, b]) == text("""
        for (i: int32, 0, 16) {
          if (i == 0) {
            B[i] = (A[i] + 1f32)
          }
        }
    """)


def test_reduction_starts_where_its_first_loop_stands() -> None:
    a, b, s, _ = row_sum()
    assert loops(s, [a, b]) == text("""
        for (i: int32, 0, 4) {
          B[i] = 0f32
          for (k: int32, 0, 6) {
            B[i] = (B[i] + A[i, k])
          }
        }
    """)


def test_reduction_loop_outside_has_a_nest_of_its_own_for_the_start() -> None:
    a, b, s, stage = row_sum()
    (i,), (k,) = b.op.axis, b.op.reduce_axis
    stage.reorder(k, i)
    assert loops(s, [a, b]) == text("""
        for (i.init: int32, 0, 4) {
          B[i.init] = 0f32
        }
        for (k: int32, 0, 6) {
          for (i: int32, 0, 4) {
            B[i] = (B[i] + A[i, k])
          }
        }
    """)


def _errors() -> dict[str, tuple[object, str]]:
    data, b, s, stage = vector()
    _, m, _, mstage = matrix()
    _, r, _, rstage = row_sum()
    _, cb, cc, cs = chain()
    i = b.op.axis[0]
    outside = te.compute((4,), lambda x: x, name="X").op.axis[0]
    split_away = te.create_schedule(b.op)
    split_away[b].split(i, 2)
    io = m.op.axis
    far = te.create_schedule(m.op)
    a, _ = far[m].split(io[0], 2)
    return {
        "axis of another stage": (lambda: stage.split(outside, 2), "axis x does not belong to this stage"),
        "axis that was split": (lambda: split_away[b].vectorize(i), "the axes now are i.outer, i.inner"),
        "not an axis": (lambda: stage.split(3, 2), "takes an axis"),  # type: ignore[arg-type]
        "split by both": (lambda: stage.split(i, 2, 3), "either factor or nparts"),
        "split by zero": (lambda: stage.split(i, 0), "factor must be positive"),
        "fuse of loops apart": (lambda: far[m].fuse(a, io[1]), "i.outer and j are not adjacent"),
        "reorder twice": (lambda: mstage.reorder(io[0], io[0]), "given twice"),
        "vectorize a reduction": (lambda: rstage.vectorize(r.op.reduce_axis[0]), "k is a reduction axis"),
        "parallel reduction": (lambda: rstage.parallel(r.op.reduce_axis[0]), "use rfactor"),
        "bind a reduction": (lambda: rstage.bind(r.op.reduce_axis[0], te.thread_axis("blockIdx.x")), "rfactor it"),
        "bind to no thread": (lambda: stage.bind(i, i), "must be a te.thread_axis"),
        "compute_at a producer": (lambda: cs[cc].compute_at(cs[cb], cb.op.axis[0]), "B does not read C"),
        "compute_at itself": (lambda: cs[cb].compute_at(cs[cb], cb.op.axis[0]), "inside its own loops"),
        "compute_at a wrong axis": (lambda: cs[cb].compute_at(cs[cc], cb.op.axis[0]), "does not belong to this stage"),
        "inline an output": (lambda: cs[cc].compute_inline(), "output of the schedule"),
        "inline a reduction": (lambda: rstage.compute_inline(), "reduction cannot be inlined"),
        "double buffer an output": (lambda: stage.double_buffer(), "output of the schedule"),
        "keep nothing until a later iteration": (
            lambda: stage.prefetch(data, i, 1, ahead=i, stream=True), "must stay in a cache until then"
        ),
        "prefetch what is not read": (lambda: stage.prefetch(m, i, 1), "not read by this stage"),
        "align a loop": (lambda: far[m].storage_align(a, 8, 0), "axis of the operation"),
        "unknown tensor": (lambda: s[cc], "C is not part of this schedule, whose stages are A, B"),
        "schedule of something else": (lambda: te.create_schedule([3]), "takes operations"),  # type: ignore[list-item]
    }  # fmt: skip


@pytest.mark.parametrize("name", list(_errors()))
def test_misuse_is_explained(name: str) -> None:
    action, message = _errors()[name]
    with pytest.raises(TilewrightError, match=message.replace(".", r"\.")):
        action()  # type: ignore[operator]


def test_stage_outside_the_place_of_computation_is_explained() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((8,), lambda i: b[i] * 2.0, name="C")
    d = te.compute((8,), lambda i: b[i] + c[i], name="D")
    s = te.create_schedule(d.op)
    s[b].compute_at(s[d], d.op.axis[0])
    with pytest.raises(TilewrightError, match="but C, which reads it, is outside that loop"):
        loops(s, [a, d])


def test_output_must_be_at_root() -> None:
    a, b, c, _ = chain()
    s = te.create_schedule([b.op, c.op])
    s[b].compute_at(s[c], c.op.axis[0])
    with pytest.raises(TilewrightError, match="B is an output"):
        loops(s, [a, b, c])


def test_copy_is_independent() -> None:
    a, b, s, stage = vector()
    stage.unroll(b.op.axis[0])
    other = s.copy()
    other[b].vectorize(b.op.axis[0])
    other[b].split(b.op.axis[0], 4)
    assert '"unroll"' in loops(s, [a, b])
    assert len(stage.leaf_iter_vars) == 1
