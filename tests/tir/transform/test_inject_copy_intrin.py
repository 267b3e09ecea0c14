"""Loops that copy become what a function writes for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import TilewrightError
from tilewright.te.lower import schedule_to_primfunc
from tilewright.te.schedule import InferBound, Schedule, ScheduleOps, SchedulePostProcToPrimFunc
from tilewright.testing.tir_interpreter import run
from tilewright.tir import transform


class Copier:
    """Writes a copy with padding, of one dimension, as a loop, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list = []

    def __call__(
        self, src: tir.Buffer, dst: tir.Buffer, before: Sequence, after: Sequence, value: tir.PrimExpr | None
    ) -> tir.Stmt:
        self.asked.append((src, dst, list(before), list(after), value))
        i = tir.Var("c")
        first = before[0] if before else 0
        load = tir.Load(src.dtype, src.data, src.elem_offset + (i - first) * src.strides[0])
        inside = tir.all(i >= first, i < first + src.shape[0])
        filled = load if value is None else tir.if_then_else(inside, load, value)
        body = tir.Store(dst.data, filled, dst.elem_offset + i * dst.strides[0])
        return tir.For(i, 0, dst.shape[0], tir.ForKind.SERIAL, body)


def copied(s: Schedule, args: Sequence[te.Tensor], copier: Copier) -> tir.PrimFunc:
    mod = tvm.IRModule.from_expr(schedule_to_primfunc(s, args))
    for step in (transform.StorageFlatten(64), transform.Simplify(), transform.InjectCopyIntrin("memcpy", copier)):
        mod = step(mod)
    return mod["main"]


@pytest.mark.parametrize("pad", [False, True])
def test_a_copy_with_and_without_padding(pad: bool) -> None:
    a = te.placeholder((7, 5), name="A")

    def element(i: tir.Var) -> tir.PrimExpr:
        return tir.if_then_else(tir.all(i >= 2, i < 9), a[i - 2, 3], 1.5) if pad else a[i, 3]

    b = te.compute((11 if pad else 7,), element, name="B")
    s = te.create_schedule(b.op)
    s[b].pragma(b.op.axis[0], "memcpy")
    copier = Copier()
    func = copied(s, [a, b], copier)
    ((src, dst, before, after, _),) = copier.asked
    assert [int(x) for x in before + after] == ([2, 2] if pad else [])
    assert int(src.strides[0]) == 5 and int(dst.strides[0]) == 1 and int(src.shape[0]) == 7
    data = np.random.default_rng(0).standard_normal((7, 5)).astype("float32")
    out = np.zeros(b.shape[0].value, "float32")
    run(func, data, out)
    np.testing.assert_array_equal(out, np.pad(data[:, 3], 2 if pad else 0, constant_values=1.5))


def test_the_padding_of_each_part_of_a_split_copy() -> None:
    a = te.placeholder((12,), name="A")
    padded = te.compute((14,), lambda i: tir.if_then_else(tir.all(i >= 1, i <= 12), a[i - 1], 0.0), name="P")
    b = te.compute((12,), lambda i: padded[i] + padded[i + 1] + padded[i + 2], name="B")
    s = te.create_schedule(b.op)
    outer, _ = s[b].split(b.op.axis[0], 4)
    s[padded].compute_at(s[b], outer)
    s[padded].pragma(padded.op.axis[0], "memcpy")
    func = copied(s, [a, b], Copier())
    data, out = np.random.default_rng(0).integers(-9, 9, 12).astype("float32"), np.zeros(12, "float32")
    run(func, data, out)
    np.testing.assert_array_equal(out, np.convolve(data, np.ones(3), "same"))


def test_marked_loops_that_compute_are_refused() -> None:
    a = te.placeholder((7,), name="A")
    b = te.compute((7,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].pragma(b.op.axis[0], "memcpy")
    with pytest.raises(TilewrightError, match="the loops under pragma_memcpy do not copy"):
        copied(s, [a, b], Copier())


def test_a_function_of_what_schedule_ops_gives() -> None:
    a = te.placeholder((3, 4), name="A")
    b = te.compute((3, 4), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((4, 3), lambda i, j: b[j, i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    mine = tir.decl_buffer((3, 4), name="mine")
    func = SchedulePostProcToPrimFunc([a, c], ScheduleOps(s, InferBound(s)), {a: mine})
    assert func.buffer_map[func.params[0]] is mine
    data, out = np.random.default_rng(0).standard_normal((3, 4)).astype("float32"), np.zeros((4, 3), "float32")
    run(func, data, out)
    np.testing.assert_array_equal(out, (data.T + 1) * 2)
