"""Bound inference: how much of a stage its consumers need."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright import te
from tilewright.ir.prim_expr import PrimExpr
from tilewright.te.schedule import Schedule
from tilewright.te.schedule.bounds import infer_bound


def region(s: Schedule, tensor: te.Tensor) -> list[str]:
    """The range of each axis of a tensor's stage, as text "min, extent"."""
    normal = s.normalize()
    ranges = infer_bound(normal).ranges
    found = [ranges[iv] for iv in normal[tensor].op.axis]
    return [f"{r.min}, {r.extent}" for r in found]


def stencil(read: Callable[..., object], n: int = 16, out: int = 8, factor: int = 4) -> tuple[te.Tensor, Schedule]:
    """``B`` of ``n`` elements, read by ``C`` of ``out``, computed at C's loop over blocks of ``factor``."""
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((out,), lambda i: read(b, i), name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], factor=factor)
    s[b].compute_at(s[c], outer)
    return b, s


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda b, i: b[i], "(i.outer*4), 4"),
        (lambda b, i: b[i] + b[i + 2], "(i.outer*4), 6"),
        (lambda b, i: b[i * 2], "(i.outer*8), 7"),
        (lambda b, i: b[i * 2] + b[i * 2 + 1], "(i.outer*8), 8"),
        (lambda b, i: b[15 - i], "(12 - (i.outer*4)), 4"),
        (lambda b, i: b[te.floordiv(i, 4)], "i.outer, 1"),
        (lambda b, i: b[te.floormod(i, 4)], "0, 4"),
        (lambda b, i: b[3], "3, 1"),
        (lambda b, i: te.if_then_else(i >= 1, b[i - 1], 0.0), "((i.outer*4) - 1), 4"),
    ],
)
def test_region_of_a_block(read: Callable[..., object], expected: str) -> None:
    b, s = stencil(read)
    assert region(s, b) == [expected]


def test_indices_that_take_apart_fused_loops_need_only_what_the_loops_reach() -> None:
    a = te.placeholder((3, 4, 7), name="A")
    b = te.compute((7, 2, 3, 2), lambda o, p, t, i: a[0, 0, 0] + te.const(1.0, "float32"), name="B")

    def read(i: PrimExpr, j: PrimExpr, k: PrimExpr) -> object:
        flat = i * 28 + j * 7 + k
        of = [(flat, 12), (te.floormod(flat, 12), 6), (te.floormod(flat, 6), 2)]
        return b[(*(te.floordiv(value, size) for value, size in of), te.floormod(flat, 2))]

    c = te.compute((3, 4, 7), read, name="C")
    s = te.create_schedule(c.op)
    rest, _ = s[c].split(s[c].fuse(*c.op.axis), factor=2)
    rest, thread = s[c].split(rest, factor=3)
    outer, piece = s[c].split(rest, factor=2)
    s[c].reorder(outer, thread, piece)
    s[b].compute_at(s[c], thread)
    assert region(s, b) == [
        "i.j.fused.k.fused.outer.outer.outer, 1",
        "0, 2",
        "i.j.fused.k.fused.outer.inner, 1",
        "0, 2",
    ]


def test_region_is_cut_to_the_tensor_where_it_covers_it() -> None:
    b, s = stencil(lambda b, i: te.if_then_else(te.all(i >= 1, i < 5), b[i - 1], 0.0), n=4, out=6, factor=6)
    assert region(s, b) == ["0, 4"]


def test_root_stage_is_computed_where_it_is_read() -> None:
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((4,), lambda i: b[i + 2], name="C")
    assert region(te.create_schedule(c.op), b) == ["2, 4"]


def test_index_that_depends_on_data_needs_everything() -> None:
    a = te.placeholder((16,), name="A")
    index = te.placeholder((4,), "int32", name="I")
    b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((4,), lambda i: b[index[i]], name="C")
    assert region(te.create_schedule(c.op), b) == ["0, 16"]


def test_two_consumers_need_the_union() -> None:
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((4,), lambda i: b[i], name="C")
    d = te.compute((4,), lambda i: b[i + 6] + c[i], name="D")
    assert region(te.create_schedule(d.op), b) == ["0, 10"]


def test_inside_a_reduction_loop_only_its_slice_is_needed() -> None:
    a = te.placeholder((4, 8), name="A")
    b = te.compute((4, 8), lambda i, j: a[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((4,), lambda i: te.sum(b[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(k, factor=2)
    s[c].reorder(outer, c.op.axis[0])
    s[b].compute_at(s[c], outer)
    assert region(s, b) == ["0, 4", "(k.outer*2), 2"]


def test_attached_inside_an_attached_stage() -> None:
    a = te.placeholder((16, 16), name="A")
    b = te.compute((16, 16), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((15, 16), lambda i, j: b[i, j] + b[i + 1, j], name="C")
    d = te.compute((14, 16), lambda i, j: c[i, j] + c[i + 1, j], name="D")
    s = te.create_schedule(d.op)
    outer, _ = s[d].split(d.op.axis[0], factor=7)
    s[c].compute_at(s[d], outer)
    s[b].compute_at(s[d], outer)
    assert region(s, c) == ["(i.outer*7), 8", "0, 16"]
    assert region(s, b) == ["(i.outer*7), 9", "0, 16"]


def test_fused_loop_that_stays_in_a_row() -> None:
    a = te.placeholder((4, 8), name="A")
    b = te.compute((4, 8), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((4, 8), lambda i, j: b[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(s[c].fuse(*c.op.axis), factor=4)
    s[b].compute_at(s[c], outer)
    rows, columns = region(s, b)
    assert rows.endswith(", 1")
    assert columns.endswith(", 4")


def test_fused_loop_that_crosses_rows_needs_whole_rows() -> None:
    a = te.placeholder((4, 8), name="A")
    b = te.compute((4, 8), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((4, 8), lambda i, j: b[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(s[c].fuse(*c.op.axis), factor=5)
    s[b].compute_at(s[c], outer)
    assert region(s, b)[1] == "0, 8"


def test_symbolic_shape() -> None:
    n = te.size_var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((n,), lambda i: b[i] * 2.0, name="C")
    assert region(te.create_schedule(c.op), b) == ["0, n"]


def test_shared_memory_of_a_block_serves_all_its_threads() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((64,), lambda i: b[i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=16)
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    s[c].bind(inner, te.thread_axis("threadIdx.x"))
    s[b].compute_at(s[c], inner)
    s[b].set_scope("shared")
    assert region(s, b) == ["(i.outer*16), 16"]
    s[b].set_scope("local")
    assert region(s, b) == ["((i.outer*16) + i.inner), 1"]
