"""Loops bound to the threads of a GPU: which thread computes what, and reductions that threads do together."""

from __future__ import annotations

import numpy as np
import pytest
from tests.te.support import loops, text

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import TilewrightError
from tilewright.testing.block_emulator import run_schedule

X = "threadIdx.x"


def chain(count: int = 100) -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Schedule]:
    a = te.placeholder((count,), name="A")
    b = te.compute((count,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((count,), lambda i: b[i] * 2.0, name="C")
    return a, b, c, te.create_schedule(c.op)


def test_a_local_stage_bound_to_its_readers_thread_is_computed_by_each_thread_for_itself() -> None:
    a, b, c, s = chain()
    block, thread = te.thread_axis("blockIdx.x"), te.thread_axis(X)
    outer, inner = s[c].split(c.op.axis[0], factor=64)
    s[c].bind(outer, block)
    s[c].bind(inner, thread)
    s[b].set_scope("local")
    s[b].compute_at(s[c], outer)
    _, mine = s[b].split(b.op.axis[0], factor=64)
    s[b].bind(mine, thread)
    found = loops(s, [a, c])
    assert "B[((blockIdx.x*64) + threadIdx.x)] = (A[((blockIdx.x*64) + threadIdx.x)] + 1f32)" in found
    assert found.count("(((blockIdx.x*64) + threadIdx.x) < 100)") == 2  # each of them, and nothing like threadIdx.x < 1
    assert "allocate(B: Pointer(local float32), float32, [1])" in str(tvm.lower(s, [a, c]))


def test_two_objects_of_one_tag_are_the_same_threads() -> None:
    a, b, c, s = chain(64)
    outer, inner = s[c].split(c.op.axis[0], factor=16)
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    s[c].bind(inner, te.thread_axis(X))
    s[b].compute_at(s[c], inner)
    s[b].set_scope("shared")
    s[b].bind(b.op.axis[0], te.thread_axis(X))
    found = loops(s, [a, c])
    assert found.count("thread_extent") == 2
    assert found.count(f"{X}:") == 1


def test_extents_of_one_axis_that_differ_are_told() -> None:
    a, b, c, s = chain(64)
    thread = te.thread_axis(X)
    outer, inner = s[c].split(c.op.axis[0], factor=16)
    s[c].bind(inner, thread)
    s[b].set_scope("shared")
    s[b].compute_at(s[c], outer)
    _, half = s[b].split(b.op.axis[0], factor=8)
    s[b].bind(half, thread)
    with pytest.raises(TilewrightError, match=r"of B has extent 8 .* threadIdx\.x, which has extent 16 in C; split"):
        loops(s, [a, c])


def test_threads_reduce_together() -> None:
    a, k = te.placeholder((8, 100), name="A"), te.reduce_axis((0, 100), name="k")
    b = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    _, inner = s[b].split(k, factor=32)
    s[b].bind(inner, te.thread_axis(X))
    assert loops(s, [a, b]) == text("""
        for (i: int32, 0, 8) {
          attr [IterVar(threadIdx.x: int32, [0:32], "ThreadIndex", "threadIdx.x")] "thread_extent" = 32;
          realize(normal_reduce_temp0, [[0:1]]) {
            realize(reduce_temp0, [[0:1]]) {
              normal_reduce_temp0[0] = 0f32
              for (k.outer: int32, 0, 4) {
                if @tir.likely((((k.outer*32) + threadIdx.x) < 100), dtype=bool) {
                  normal_reduce_temp0[0] = (normal_reduce_temp0[0] + A[i, ((k.outer*32) + threadIdx.x)])
                }
              }
              attr [comm_reducer(result=[(lhs + rhs)], lhs=[lhs], rhs=[rhs], identity_element=[0f])] "reduce_scope" = 0;
              @tir.tvm_thread_allreduce(1u32, normal_reduce_temp0[0], True, reduce_temp0_1: Pointer(local float32), threadIdx.x, dtype=handle)
              B[i] = reduce_temp0[0]
            }
          }
        }
    """)  # noqa: E501


def test_what_is_reduced_by_blocks_or_inside_a_moved_loop_is_told() -> None:
    a, k = te.placeholder((8, 64), name="A"), te.reduce_axis((0, 64), name="k")
    d = te.compute((8, 64), lambda i, j: a[i, j] * 2.0, name="D")
    b = te.compute((8,), lambda i: te.sum(d[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(k, factor=32)
    with pytest.raises(TilewrightError, match="blocks cannot add to one value"):
        s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[b].bind(inner, te.thread_axis(X))
    s[d].compute_at(s[b], inner)
    with pytest.raises(TilewrightError, match=r"stage D is computed at loop k\.inner of B, inside the reduction loop"):
        loops(s, [a, b])


def test_a_loop_whose_rest_depends_on_the_thread_keeps_its_length_for_all() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    _, inner = s[b].split(b.op.axis[0], factor=32)
    s[b].reorder(inner, s[b].leaf_iter_vars[0])
    s[b].bind(inner, te.thread_axis(X))
    for line in str(tvm.lower(s, [a, b])).splitlines():
        assert not ("for (" in line and X in line), line


def test_blocks_in_the_middle_of_a_grid_of_any_length_test_nothing() -> None:
    n = te.size_var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    block, rest = s[b].split(b.op.axis[0], factor=128)
    thread, inner = s[b].split(rest, factor=4)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(thread, te.thread_axis(X))
    s[b].vectorize(inner)
    found = str(tvm.lower(s, [a, b]))
    assert "if @tir.likely((blockIdx.x < floordiv(n, 128)), dtype=bool) {" in found
    main, _ = found.split("} else {")
    assert "ramp(" in main
    assert main.count("if ") == 1
    for length in (1, 127, 128, 300):
        given, out = np.arange(length, dtype="float32"), np.zeros(length, "float32")
        run_schedule(s, [a, b], given, out)
        np.testing.assert_array_equal(out, given + 1)
