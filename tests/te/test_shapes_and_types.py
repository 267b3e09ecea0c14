"""Symbolic shapes, 64-bit indices, bool tensors, chains of reductions."""

from __future__ import annotations

import numpy as np
import pytest
from tests.te.support import compute

from tilewright import te, tir
from tilewright.te.schedule import Schedule

RNG = np.random.default_rng(0)
DATA = RNG.random((10, 4), "float32")


def _tiled(s: Schedule, w: te.Tensor, z: te.Tensor, x: te.Tensor) -> None:
    _, yo, _, yi = s[w].tile(*w.op.axis, 4, 8)
    s[z].compute_at(s[w], yo)
    s[w].vectorize(yi)


def _fused(s: Schedule, w: te.Tensor, z: te.Tensor, x: te.Tensor) -> None:
    outer, _ = s[w].split(s[w].fuse(*w.op.axis), factor=8)
    s[w].parallel(outer)
    zo, zi = s[z].split(z.op.axis[0], nparts=3)
    ko, ki = s[z].split(z.op.reduce_axis[0], factor=4)
    s[z].reorder(zo, ko, zi, ki)
    s[z].parallel(zo)


def _cached(s: Schedule, w: te.Tensor, z: te.Tensor, x: te.Tensor) -> None:
    cache = s.cache_write(z, "local")
    _, yo, _, _ = s[z].tile(*z.op.axis, 4, 8)
    s[cache].compute_at(s[z], yo)
    ko, ki = s[cache].split(cache.op.reduce_axis[0], factor=4)
    i, j = cache.op.axis
    s[cache].reorder(ko, i, j, ki)
    copy = s.cache_read(x, "local", [cache])
    s[copy].compute_at(s[cache], ko)


@pytest.mark.parametrize("schedule", [None, _tiled, _fused, _cached])
def test_symbolic_matmul_and_transpose(schedule: object) -> None:
    m, n = te.var("m"), te.var("n")
    x, y = te.placeholder((m, n), name="X"), te.placeholder((n, m), name="Y")
    k = te.reduce_axis((0, n), name="k")
    z = te.compute((m, m), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="Z")
    w = te.compute((m, m), lambda i, j: z[j, i] + 1.0, name="W")
    s = te.create_schedule(w.op)
    if schedule is not None:
        schedule(s, w, z, x)  # type: ignore[operator]
    for rows, columns in ((1, 1), (7, 5), (8, 16), (13, 3)):
        a = RNG.integers(-3, 4, (rows, columns)).astype("float32")
        b = RNG.integers(-3, 4, (columns, rows)).astype("float32")
        np.testing.assert_array_equal(compute(s, [x, y, w], [a, b], [(rows, rows)])[0], (a @ b).T + 1)


def test_64_bit_indices() -> None:
    a = te.placeholder((tir.const(10, "int64"), 4), name="A")
    b = te.compute(a.shape, lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute(a.shape, lambda i, j: b[i, j] + i.astype("float32"), name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(s[c].fuse(*c.op.axis), factor=8)
    s[b].compute_at(s[c], outer)
    s[c].vectorize(inner)
    expected = DATA * 2 + np.arange(10, dtype="float32")[:, None]
    np.testing.assert_array_equal(compute(s, [a, c], [DATA], [(10, 4)])[0], expected)


@pytest.mark.parametrize("vector", [False, True])
def test_bool_tensor_between_stages(vector: bool) -> None:
    a = te.placeholder((10, 4), name="A")
    p = te.compute((10, 4), lambda i, j: a[i, j] > 0.5, name="P")
    q = te.compute((10, 4), lambda i, j: te.if_then_else(p[i, j], 1.0, 0.0), name="Q")
    s = te.create_schedule(q.op)
    if vector:
        s[p].vectorize(p.op.axis[1])
        s[q].vectorize(q.op.axis[1])
    np.testing.assert_array_equal(compute(s, [a, q], [DATA], [(10, 4)])[0], DATA > 0.5)


def test_reduction_of_bools() -> None:
    a = te.placeholder((10, 4), name="A")
    k = te.reduce_axis((0, 4), name="k")
    any_of = te.comm_reducer(lambda x, y: tir.any(x, y), lambda t: tir.const(False, t))
    b = te.compute((10,), lambda i: any_of(a[i, k] > 0.9, axis=k), name="B")
    found = compute(te.create_schedule(b.op), [a, b], [DATA], [(10,)])[0]
    np.testing.assert_array_equal(found, (DATA > 0.9).any(1))


def test_softmax_row_by_row() -> None:
    a = te.placeholder((10, 4), name="A")
    k1, k2 = te.reduce_axis((0, 4), name="k1"), te.reduce_axis((0, 4), name="k2")
    m = te.compute((10,), lambda i: te.max(a[i, k1], axis=k1), name="M")
    e = te.compute((10, 4), lambda i, j: te.exp(a[i, j] - m[i]), name="E")
    t = te.compute((10,), lambda i: te.sum(e[i, k2], axis=k2), name="T")
    o = te.compute((10, 4), lambda i, j: e[i, j] / t[i], name="O")
    s = te.create_schedule(o.op)
    for stage in (t, e, m):
        s[stage].compute_at(s[o], o.op.axis[0])
    s[o].parallel(o.op.axis[0])
    exps = np.exp(DATA - DATA.max(1, keepdims=True))
    found = compute(s, [a, o], [DATA], [(10, 4)])[0]
    np.testing.assert_allclose(found, exps / exps.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (1, 7), (7, 1)])
def test_small_and_empty_tensors(shape: tuple[int, int]) -> None:
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute(shape, lambda i, j: b[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(s[c].fuse(*c.op.axis), factor=4)
    s[b].compute_at(s[c], outer)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    data = RNG.random(shape, "float32")
    np.testing.assert_array_equal(compute(s, [a, c], [data], [shape])[0], (data + 1) * 2)
