"""Reductions whose ends are read from tensors: rows of any length, and matrices with empty blocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import TilewrightError

ROWS, LONGEST = 13, 7
LENGTHS = np.array([3, 0, 7, 1, 2, 7, 0, 5, 4, 1, 6, 2, 3], "int32")
BEGINS = np.concatenate([[0], np.cumsum(LENGTHS)]).astype("int32")
Change = Callable[[te.Schedule, te.Tensor, te.Tensor], None]


def run(s: te.Schedule, args: list[te.Tensor], out: te.Tensor, *arrays: np.ndarray) -> np.ndarray:
    found = tvm.nd.empty(tuple(int(d) for d in out.shape), out.dtype)
    tvm.build(s, [*args, out], "llvm")(*map(tvm.nd.array, arrays), found)
    return np.asarray(found.numpy())


def in_blocks(s: te.Schedule, total: te.Tensor, out: te.Tensor) -> None:
    outer, _ = s[out].split(out.op.axis[0], 4)
    s[total].compute_at(s[out], outer)
    s[out].parallel(outer)


def split_rows(s: te.Schedule, total: te.Tensor, out: te.Tensor) -> None:
    outer, inner = s[total].split(total.op.axis[0], 4)
    s[total].reorder(inner, outer)


def split_reduction(s: te.Schedule, total: te.Tensor, out: te.Tensor) -> None:
    s[total].split(total.op.reduce_axis[0], 2)


def plain(s: te.Schedule, total: te.Tensor, out: te.Tensor) -> None:
    pass


SCHEDULES: list[Change] = [plain, in_blocks, split_rows, split_reduction]


@pytest.mark.parametrize(
    ("change", "computed"), [*((change, False) for change in SCHEDULES), (plain, True), (in_blocks, True)]
)
def test_rows_of_any_length(change: Change, computed: bool) -> None:
    x, given = te.placeholder((ROWS, LONGEST), name="x"), te.placeholder((ROWS,), "int32", name="n")
    n = te.compute((ROWS,), lambda i: given[i] - 1, name="less") if computed else given
    total = te.compute((ROWS,), lambda i: _sum(x, n, i), name="total")
    out = te.compute((ROWS,), lambda i: total[i] * 2.0, name="out")
    assert n in total.op.input_tensors  # though only the loop's end reads it
    s = te.create_schedule(out.op)
    change(s, total, out)
    data = np.random.default_rng(0).random((ROWS, LONGEST)).astype("float32")
    found = run(s, [x, given], out, data, LENGTHS + 1 if computed else LENGTHS)
    wanted = [2 * row[:length].sum() for row, length in zip(data, LENGTHS, strict=True)]
    np.testing.assert_allclose(found, wanted, 1e-5)


def _sum(x: te.Tensor, n: te.Tensor, i: tvm.tir.Var) -> tvm.tir.PrimExpr:
    k = te.reduce_axis((0, n[i]), "k")
    return te.sum(x[i, k], k)


@pytest.mark.parametrize("change", [plain, in_blocks, split_reduction])
def test_rows_that_lie_one_after_another(change: Change) -> None:
    count = int(BEGINS[-1])
    values, begins = te.placeholder((count,), name="values"), te.placeholder((ROWS + 1,), "int32", name="begins")

    def maximum(i: tvm.tir.Var) -> tvm.tir.PrimExpr:
        k = te.reduce_axis((begins[i], begins[i + 1]), "k")
        return te.max(twice[k], k)

    twice = te.compute((count,), lambda i: values[i] * 2.0, name="twice")
    largest = te.compute((ROWS,), maximum, name="largest")
    out = te.compute((ROWS,), lambda i: largest[i] + 0.0, name="out")
    s = te.create_schedule(out.op)
    change(s, largest, out)
    data = np.random.default_rng(1).random(count).astype("float32")
    found = run(s, [values, begins], out, data, BEGINS)
    lowest = np.finfo("float32").min
    rows = [data[a:b] for a, b in itertools.pairwise(BEGINS)]
    np.testing.assert_allclose(found, [2 * row.max() if len(row) else lowest for row in rows], 1e-6)


def test_an_end_that_nobody_gives_is_named() -> None:
    x, n = te.placeholder((ROWS, LONGEST), name="x"), te.placeholder((ROWS,), "int32", name="n")
    total = te.compute((ROWS,), lambda i: _sum(x, n, i), name="total")
    with pytest.raises(TilewrightError, match="n is an input of the schedule, but not among the arguments"):
        tvm.lower(te.create_schedule(total.op), [x, total])
