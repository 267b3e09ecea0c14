"""The elements of a row that differ."""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.tir import ir_builder
from tilewright.topi.sort import argsort
from tilewright.topi.utils import InvalidShapeError, get_const_tuple


def unique(data: te.Tensor, is_sorted: bool = True, return_counts: bool = False) -> list[te.Tensor]:
    """The different elements of ``data`` (n,), in rising order or in the order in which they first occur.

    Returns the elements, where each occurs first, which of them each element of ``data`` is (all (n,), the last two
    int32), their number (1,) int32, and with ``return_counts`` how often each occurs (n,) int32. Behind the last
    of them is 0. NaN equals NaN.
    """
    if data.ndim != 1:
        raise InvalidShapeError(f"unique takes a tensor of rank 1, found rank {data.ndim}")
    (n,) = get_const_tuple(data.shape)
    if not isinstance(n, int):
        raise InvalidShapeError("unique: the extent must be known while compiling")
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
        groups = ib.allocate("int32", (1,), name="groups", scope="local")
        # the number of each group of equal elements, by the place of the group in the result
        place = ib.allocate("int32", (max(n, 1),), name="place", scope="global")
        starts = ib.allocate("int32", (max(n, 1),), name="starts", scope="global")
        groups[0] = ops.const(0, "int32")
        with ib.for_range(0, n, name="k") as k:
            for target in (values, first, *counts):
                target[k] = ops.const(0, target.dtype)
        with ib.for_range(0, n, name="k") as k:
            at = ib.let("at", ranked[k])
            new = tir.if_then_else(k > 0, differ(source[at], source[ranked[ops.maximum(k - 1, 0)]]), True)
            with ib.if_scope(new):
                starts[groups[0]] = at  # equal elements keep their order: this is the first
                groups[0] = groups[0] + 1
            which[at] = groups[0] - 1
        number[0] = groups[0]
        if is_sorted:
            with ib.for_range(0, groups[0], name="g") as g:
                place[g] = g
        else:
            _by_occurrence(ib, starts, place, groups, which, n)
        with ib.for_range(0, groups[0], name="g") as g:
            values[place[g]] = source[starts[g]]
            first[place[g]] = starts[g]
        with ib.for_range(0, n, name="k") as k:
            which[k] = place[which[k]]
            for target in counts:
                target[which[k]] = target[which[k]] + 1
        return ib.get()

    result: list[te.Tensor] = te.extern(shapes, [data, order], loops, dtype=dtypes, name="unique", tag="unique")
    return result


def _by_occurrence(ib: Any, starts: Any, place: Any, groups: Any, which: Any, n: int) -> None:
    """Number the groups by where their first elements stand: an element that starts its group counts."""
    count = ib.allocate("int32", (1,), name="count", scope="local")
    count[0] = ops.const(0, "int32")
    with ib.for_range(0, n, name="k") as k:
        group = ib.let("group", which[k])
        with ib.if_scope(starts[group].equal(k)):
            place[group] = count[0]
            count[0] = count[0] + 1


__all__ = ["unique"]
