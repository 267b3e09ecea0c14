"""cache_read, cache_write, rfactor, by their loops and results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.te.support import compute, loops, text

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import TilewrightError
from tilewright.te.schedule import Schedule
from tilewright.te.schedule.stage import AttachType

RNG = np.random.default_rng(0)


def row_sum(rows: int = 4, columns: int = 6) -> tuple[te.Tensor, te.Tensor, Schedule]:
    a = te.placeholder((rows, columns), name="A")
    k = te.reduce_axis((0, columns), name="k")
    b = te.compute((rows,), lambda i: te.sum(a[i, k], axis=k), name="B")
    return a, b, te.create_schedule(b.op)


def argmax() -> tuple[te.Tensor, list[te.Tensor], Schedule]:
    def combine(x: tuple, y: tuple) -> tuple:
        first = te.any(x[1] > y[1], te.all(x[1].equal(y[1]), x[0] < y[0]))
        return te.if_then_else(first, x[0], y[0]), te.if_then_else(first, x[1], y[1])

    reducer = te.comm_reducer(combine, lambda t0, t1: (te.const(-1, t0), te.min_value(t1)))
    a = te.placeholder((5, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    outs = te.compute((5,), lambda i: reducer((k.var, a[i, k]), axis=k), name="M")
    return a, outs, te.create_schedule(outs[0].op)


def assert_argmax(a: te.Tensor, outs: list[te.Tensor], s: Schedule) -> None:
    data = RNG.integers(0, 6, (5, 13)).astype("float32")
    where, value = compute(s, [a, *outs], [data], [(5,), (5,)])
    np.testing.assert_array_equal(where, data.argmax(1))
    np.testing.assert_array_equal(value, data.max(1))


def test_cache_read() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    copy = s.cache_read(a, "local", [b])
    outer, _ = s[b].split(b.op.axis[0], factor=4)
    s[copy].compute_at(s[b], outer)
    assert loops(s, [a, b]) == text("""
        for (i.outer: int32, 0, 2) {
          realize(A.local, [[(i.outer*4):((i.outer*4) + 4)]]) {
            for (ax0: int32, 0, 4) {
              A.local[((i.outer*4) + ax0)] = A[((i.outer*4) + ax0)]
            }
            for (i.inner: int32, 0, 4) {
              B[((i.outer*4) + i.inner)] = (A.local[((i.outer*4) + i.inner)] + 1f32)
            }
          }
        }
    """)


def test_cache_read_by_one_of_two_readers() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((8,), lambda i: a[i] + b[i], name="C")
    s = te.create_schedule(c.op)
    copy = s.cache_read(a, "local", [b])
    assert s[b].op.input_tensors == (copy,)
    assert s[c].op.input_tensors == (a, s[b].op.output(0))


def test_cache_write_keeps_the_reduction_axis() -> None:
    a, b, s = row_sum()
    k = b.op.reduce_axis[0]
    cache = s.cache_write(b, "local")
    s[cache].compute_at(s[b], b.op.axis[0])
    s[cache].split(k, factor=2)
    assert loops(s, [a, b]) == text("""
        for (i: int32, 0, 4) {
          realize(B.local, [[i:(i + 1)]]) {
            B.local[i] = 0f32
            for (k.outer: int32, 0, 3) {
              for (k.inner: int32, 0, 2) {
                B.local[i] = (B.local[i] + A[i, ((k.outer*2) + k.inner)])
              }
            }
            B[i] = B.local[i]
          }
        }
    """)


def test_cache_write_after_tiling_stores_the_tiles() -> None:
    a = te.placeholder((4, 6), name="A")
    b = te.compute((4, 6), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].tile(*b.op.axis, 2, 4)
    cache = s.cache_write(b, "global")
    assert [int(d) for d in cache.shape] == [2, 2, 2, 4]
    data = RNG.random((4, 6), "float32")
    np.testing.assert_array_equal(compute(s, [a, b], [data], [(4, 6)])[0], data + 1)


def test_cache_write_of_two_outputs() -> None:
    a, outs, s = argmax()
    cache = s.cache_write(outs, "local")
    s[cache[0]].compute_at(s[outs[0]], outs[0].op.axis[0])
    assert_argmax(a, outs, s)


def test_cache_write_of_one_of_two_outputs_is_refused() -> None:
    _, outs, s = argmax()
    with pytest.raises(TilewrightError, match="give all 2 outputs of M"):
        s.cache_write(outs[0], "local")


def test_rfactor() -> None:
    a, b, s = row_sum()
    _, inner = s[b].split(b.op.reduce_axis[0], factor=3)
    partial = s.rfactor(b, inner)
    assert loops(s, [a, b]) == text("""
        realize(B.rf, [[0:3], [0:4]]) {
          for (k.inner: int32, 0, 3) {
            for (i: int32, 0, 4) {
              B.rf[k.inner, i] = 0f32
              for (k.outer: int32, 0, 2) {
                B.rf[k.inner, i] = (B.rf[k.inner, i] + A[i, ((k.outer*3) + k.inner)])
              }
            }
          }
          for (i_1: int32, 0, 4) {
            B[i_1] = 0f32
            for (k.inner.v: int32, 0, 3) {
              B[i_1] = (B[i_1] + B.rf[k.inner.v, i_1])
            }
          }
        }
    """)
    assert [iv.var.name for iv in partial.op.axis] == ["k.inner", "i"]


def test_rfactor_reduces_axes_that_were_not_split_first() -> None:
    a = te.placeholder((4, 6, 5), name="A")
    k, m = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 5), "m")
    b = te.compute((4,), lambda i: te.sum(a[i, k, m], axis=[k, m]), name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(k, factor=3)
    partial = s.rfactor(b, inner)
    assert [iv.var for iv in partial.op.reduce_axis] == [m.var, outer.var]
    data = RNG.integers(0, 9, (4, 6, 5)).astype("float32")
    np.testing.assert_array_equal(compute(s, [a, b], [data], [(4,)])[0], data.sum((1, 2)))


@pytest.mark.parametrize("factor", [1, 4, 5, 13, 20])
@pytest.mark.parametrize("position", [0, 1, -1])
def test_rfactor_that_does_not_divide(factor: int, position: int) -> None:
    a, b, s = row_sum(3, 13)
    _, inner = s[b].split(b.op.reduce_axis[0], factor=factor)
    partial = s.rfactor(b, inner, position)
    s[partial].compute_at(s[b], b.op.axis[0])
    data = RNG.integers(0, 9, (3, 13)).astype("float32")
    np.testing.assert_array_equal(compute(s, [a, b], [data], [(3,)])[0], data.sum(1))


def test_rfactor_of_the_whole_axis() -> None:
    a, b, s = row_sum()
    s.rfactor(b, b.op.reduce_axis[0])
    data = RNG.integers(0, 9, (4, 6)).astype("float32")
    np.testing.assert_array_equal(compute(s, [a, b], [data], [(4,)])[0], data.sum(1))


def test_rfactor_of_argmax() -> None:
    a, outs, s = argmax()
    _, inner = s[outs[0]].split(outs[0].op.reduce_axis[0], factor=4)
    s.rfactor(outs[0], inner)
    assert_argmax(a, outs, s)


def test_tuple_reduction_reads_old_values_of_all_outputs() -> None:
    def combine(x: tuple, y: tuple) -> tuple:  # the second value depends on the first, which is stored before
        return te.if_then_else(x[0] >= y[0], x[0], y[0]), te.if_then_else(x[0] >= y[0], x[1], y[1])

    reducer = te.comm_reducer(combine, lambda t0, t1: (te.min_value(t0), te.const(-1, t1)))
    a = te.placeholder((5, 7), name="A")
    k = te.reduce_axis((0, 7), name="k")
    value, where = te.compute((5,), lambda i: reducer((a[i, k], k.var), axis=k), name="M")
    data = RNG.random((5, 7), "float32")
    found = compute(te.create_schedule(value.op), [a, value, where], [data], [(5,), (5,)])
    np.testing.assert_array_equal(found[1], data.argmax(1))


def test_rfactor_misuse_is_explained() -> None:
    _, b, s = row_sum()
    with pytest.raises(TilewrightError, match="i of B is not a reduction axis"):
        s.rfactor(b, b.op.axis[0])
    with pytest.raises(TilewrightError, match="factor_axis is 5, but B has 1 axes"):
        s.rfactor(b, b.op.reduce_axis[0], 5)
    with pytest.raises(TilewrightError, match="A is not a reduction"):
        s.rfactor(s.stages[0].op.output(0), b.op.axis[0])


def test_cache_read_misuse_is_explained() -> None:
    a, b, s = row_sum()
    with pytest.raises(TilewrightError, match="A does not read B"):
        s.cache_read(b, "local", [a])


def test_inlining_into_an_extern_is_refused() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    c = te.extern((4,), [b], lambda ins, outs: outs[0].vstore([0], ins[0].vload([0])), name="C")
    s = te.create_schedule(c.op)
    s[b].compute_inline()
    with pytest.raises(TilewrightError, match="B is inlined, but C"):
        loops(s, [a, c])


def test_inlining_a_long_chain_takes_one_sweep() -> None:
    tensors = [te.placeholder((4,), name="A")]
    for n in range(400):
        last = tensors[-1]
        tensors.append(te.compute((4,), lambda i, t=last: t[i] + 1.0, name=f"T{n}"))
    s = te.create_schedule(tensors[-1].op)
    for t in tensors[1:-1]:
        s[t].compute_inline()
    assert len(s.normalize()[tensors[-1]].op.input_tensors) == 1


def _reduced_transpose() -> tuple[list[te.Tensor], Schedule]:
    a = te.placeholder((4, 6), name="A")
    b = te.compute((4, 6), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((6, 4), lambda i, j: b[j, i], name="C")
    k = te.reduce_axis((0, 4), name="k")
    d = te.compute((6,), lambda i: te.sum(c[i, k], axis=k), name="D")
    e = te.compute((6, 2), lambda i, j: d[i], name="E")
    f = te.compute((6, 2), lambda i, j: e[i, j] * 2.0, name="F")
    return [a, b, c, d, e, f], te.create_schedule(f.op)


@pytest.mark.parametrize(
    ("inline", "inlined"),
    [
        (te.schedule.AutoInlineElemWise, "B"),
        (te.schedule.AutoInlineBroadcast, "BE"),
        (te.schedule.AutoInlineInjective, "BCE"),
    ],
)
def test_inlining_by_rule(inline: Callable[[Schedule], None], inlined: str) -> None:
    tensors, s = _reduced_transpose()
    inline(s)
    assert "".join(x.op.name for x in s.stages if x.attach_type is AttachType.INLINE) == inlined
    data = RNG.integers(-4, 5, (4, 6)).astype("float32")
    found = compute(s, [tensors[0], tensors[-1]], [data], [(6, 2)])[0]
    np.testing.assert_array_equal(found, np.repeat(((data + 1).sum(0) * 2)[:, None], 2, 1))


def test_inlining_by_rule_leaves_scheduled_stages() -> None:
    tensors, s = _reduced_transpose()
    s[tensors[1]].vectorize(tensors[1].op.axis[1])
    te.schedule.AutoInlineElemWise(s)
    assert s[tensors[1]].attach_type is AttachType.ROOT


def test_place_in_an_inlined_stage_is_explained() -> None:
    tensors, s = _reduced_transpose()
    a, b, c, *_, f = tensors
    s[b].compute_at(s[c], c.op.axis[0])
    s[c].compute_inline()
    with pytest.raises(TilewrightError, match="B is computed at C, which is inlined"):
        loops(s, [a, f])


def test_inlined_argument_is_left_alone() -> None:
    a = te.placeholder((7,), name="A")
    b = te.compute((7,), lambda i: a[i] + 1, name="B")
    c = te.compute((7,), lambda i: b[i] * 2, name="C")
    s = te.create_schedule(c.op)
    s[b].compute_inline()
    with pytest.warns(UserWarning, match="B is an argument, but inlined: nothing is stored in it"):
        f = tvm.build(s, [a, b, c])
    values, kept, out = (tvm.nd.array(np.full(7, x, "float32")) for x in (3, 5, 0))
    f(values, kept, out)
    np.testing.assert_array_equal(kept.numpy(), np.full(7, 5))
    np.testing.assert_array_equal(out.numpy(), np.full(7, 8))


def test_inlined_tensor_indexed_by_inlined_tensors() -> None:
    a = te.placeholder((8,), name="A")
    t = te.compute((8,), lambda i: te.floormod(i * 3, 8), name="T")
    u = te.compute((8,), lambda i: 7 - t[i], name="U")
    v = te.compute((8,), lambda i: t[u[i]] + t[t[i]], name="V")
    w = te.compute((8,), lambda i: a[te.floormod(v[i], 8)] + a[u[t[i]]], name="W")
    s = te.create_schedule(w.op)
    for x in (t, u, v):
        s[x].compute_inline()
    data = RNG.random(8, "float32")
    index = np.arange(8)
    t_of = (index * 3) % 8
    u_of = 7 - t_of
    expected = data[(t_of[u_of] + t_of[t_of]) % 8] + data[u_of[t_of]]
    np.testing.assert_array_equal(compute(s, [a, w], [data], [(8,)])[0], expected)
