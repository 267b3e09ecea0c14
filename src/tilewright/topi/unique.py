"""Distinct elements of a row."""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi.loops import ThreadGroup, thread_group
from tilewright.topi.sort import argsort
from tilewright.topi.utils import InvalidShapeError, at_least_one, get_const_tuple


def unique(data: te.Tensor, is_sorted: bool = True, return_counts: bool = False) -> list[te.Tensor]:
    """Return the distinct elements of ``data`` (n,), ascending or in the order of first occurrence.

    Returns the distinct elements, the position of each one's first occurrence, the number of each element of ``data``
    among them (all (n,), the last two int32), their count (1,) int32, and with ``return_counts`` how often each occurs
    (n,) int32. Unused entries are 0. NaN equals NaN.
    """
    if data.ndim != 1:
        raise InvalidShapeError(f"unique takes a tensor of rank 1, found rank {data.ndim}")
    (n,) = get_const_tuple(data.shape)
    order = argsort(data, None, 0, True, "int32")
    dtypes = [data.dtype, "int32", "int32", "int32"] + ["int32"] * return_counts
    shapes: list[Any] = [(n,), (n,), (n,), (1,)] + [(n,)] * return_counts

    def differ(a: Any, b: Any) -> Any:
        both_nan = [tir.Not(tir.all(tir.isnan(a), tir.isnan(b)))] if dt.is_float(data.dtype) else []
        return tir.all(ops.not_equal(a, b), *both_nan)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source, ranked = (ib.buffer_ptr(i) for i in ins)
        values, first, which, number, *counts = (ib.buffer_ptr(o) for o in outs)
        # the number of each group of equal elements, by the place of the group in the result; where groups begin
        place = ib.allocate("int32", (at_least_one(n),), name="place", scope="global")
        starts = ib.allocate("int32", (at_least_one(n),), name="starts", scope="global")
        begins = ib.allocate("int32", (n + 1,), name="begins", scope="global")
        with thread_group(ib, 1, n) as threads:
            with threads.each(n) as k:
                for target in (values, first, *counts):
                    target[k] = ops.const(0, target.dtype)

            def is_new(k: PrimExpr) -> PrimExpr:
                before = source[ranked[ops.maximum(k - 1, 0)]]
                return tir.if_then_else(k > 0, differ(source[ranked[k]], before), True)

            def number_groups(k: PrimExpr, new: PrimExpr, before: PrimExpr) -> None:
                at = ib.let("at", ranked[k])
                with ib.if_scope(new):
                    group = ib.let("group", before)
                    starts[group] = at  # equal elements keep their order: this is the first
                    begins[group] = k
                    place[group] = group
                which[at] = before + ops.cast("int32", new) - 1

            groups = threads.collect(n, is_new, number_groups)
            with threads.alone():
                number[0] = groups
                begins[groups] = ops.cast("int32", ops.as_expr(n))
            threads.sync()
            if not is_sorted:
                _by_occurrence(threads, starts, place, which, n)
            with threads.each(groups, "g") as g:
                values[place[g]] = source[starts[g]]
                first[place[g]] = starts[g]
                for target in counts:
                    target[place[g]] = begins[g + 1] - begins[g]
            with threads.each(n) as k:
                which[k] = place[which[k]]
        return ib.get()

    result: list[te.Tensor] = te.extern(shapes, [data, order], loops, dtype=dtypes, name="unique", tag="unique")
    return result


def _by_occurrence(threads: ThreadGroup, starts: Any, place: Any, which: Any, n: int) -> None:
    """Number the groups by the positions of their first elements."""

    def write(k: PrimExpr, chosen: PrimExpr, before: PrimExpr) -> None:
        with threads.ib.if_scope(chosen):
            place[which[k]] = before

    threads.collect(n, lambda k: starts[which[k]].equal(k), write, "first")
    threads.sync()


__all__ = ["unique"]
