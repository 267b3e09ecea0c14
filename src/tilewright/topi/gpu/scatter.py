"""Scattering on graphics processors: updates of one position are applied in order.

A stable sort by position brings the updates of a position together, in their order; one thread then applies all of
them. So the result equals that of the serial loop, whatever the order of the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi import loops, tag
from tilewright.topi.scatter import combine_by, element_place, scatter_elements, scatter_nd, slice_place
from tilewright.topi.sort import argsort
from tilewright.topi.sparse_tensors import sparse_to_dense
from tilewright.topi.transform import normalize_axis
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, prod

Start = Callable[[Sequence[Any], PrimExpr], PrimExpr]


def write_in_order(
    places: te.Tensor, updates: te.Tensor, inputs: Sequence[te.Tensor], start: Start, shape: Sequence[Any],
    slice_size: Any, mode: str, name: str,
) -> te.Tensor:  # fmt: skip
    """Return a tensor of ``shape`` that starts as ``start`` and takes ``updates`` at ``places``.

    Parameters
    ----------
    places : (m,) int32, numbers of slices of ``slice_size`` elements; negative for updates that are left out
    updates : m slices, of any shape, or a scalar for all of them
    inputs : tensors read by ``start(pointers, i)``, the initial value of element i
    """
    count = get_const_tuple(places.shape)[0]
    combine = combine_by(name, mode)
    order = argsort(places, None, 0, True, "int32")

    def body(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        place, ranked, update, *sources = (ib.buffer_ptr(i) for i in ins)
        target = ib.buffer_ptr(outs[0])
        with loops.each(ib, prod(shape), "i") as i:
            target[i] = start(sources, i)

        def changed(old: PrimExpr, k: Any, i: Any) -> PrimExpr:
            at = ranked[k] * slice_size + i if updates.ndim else 0
            return combine(old, update[at])

        with loops.each(ib, count * slice_size, "i") as number:
            k, i = ib.let("k", ops.floordiv(number, slice_size)), ops.floormod(number, slice_size)
            here = ib.let("here", place[ranked[k]])
            first = tir.if_then_else(k > 0, ops.not_equal(place[ranked[ops.maximum(k - 1, 0)]], here), True)
            with ib.if_scope(tir.all(here >= 0, first)):
                at = ib.let("at", here * slice_size + i)
                value = ib.allocate(target.dtype, (1,), name="value", scope="local")
                end = ib.allocate("int32", (1,), name="end", scope="local")
                more = ib.allocate("int32", (1,), name="more", scope="local")
                value[0], end[0], more[0] = target[at], k, ops.const(1, "int32")
                with ib.while_loop(more[0].equal(1)):
                    value[0] = changed(value[0], end[0], i)
                    end[0] = end[0] + 1
                    inside = end[0] < count
                    following = place[ranked[ops.minimum(end[0], count - 1)]]
                    more[0] = ops.cast("int32", tir.all(inside, following.equal(here)))
                target[at] = value[0]
        return ib.get()

    given = [places, order, updates, *inputs]
    return te.extern([tuple(shape)], given, body, dtype=[updates.dtype], name=name, tag=name)


def _copied(sources: Sequence[Any], i: PrimExpr) -> PrimExpr:
    value: PrimExpr = sources[0][i]
    return value


@scatter_elements.provide("gpu")
def scatter_elements_gpu(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int = 0, mode: str = "update"
) -> te.Tensor:
    """Write ``updates`` to ``data`` at positions along ``axis``; see ``topi.scatter.scatter_elements``."""
    axis = normalize_axis(axis, data.ndim)
    shape, moves = get_const_tuple(data.shape), get_const_tuple(indices.shape)

    def place(j: PrimExpr) -> PrimExpr:
        return element_place(lambda at: indices(*at), j, moves, shape, axis)

    places = te.compute((prod(moves),), place, name="scatter_places", tag=tag.INJECTIVE)
    return write_in_order(places, updates, [data], _copied, shape, 1, mode, "scatter")


@scatter_nd.provide("gpu")
def scatter_nd_gpu(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, mode: str = "update") -> te.Tensor:
    """Write slices to ``data`` at coordinates; see ``topi.scatter.scatter_nd``."""
    shape = get_const_tuple(data.shape)
    count, *moves = get_const_tuple(indices.shape)

    def place(j: PrimExpr) -> PrimExpr:
        return slice_place(lambda at: indices(*at), j, moves, shape[:count])

    places = te.compute((prod(moves),), place, name="scatter_places", tag=tag.INJECTIVE)
    return write_in_order(places, updates, [data], _copied, shape, prod(shape[count:]), mode, "scatter_nd")


@sparse_to_dense.provide("gpu")
def sparse_to_dense_gpu(
    sparse_indices: te.Tensor, output_shape: Sequence[Any], sparse_values: te.Tensor, default_value: Any = 0
) -> te.Tensor:
    """Write values at their coordinates; see ``topi.sparse.sparse_to_dense``."""
    shape = get_const_tuple([ops.as_expr(d) for d in output_shape])
    if sparse_indices.ndim > 2 or sparse_values.ndim > 1:
        raise InvalidShapeError("sparse_to_dense takes indices of at most 2 dimensions and values of at most 1")
    count = sparse_indices.shape[0] if sparse_indices.ndim else 1
    given = [default_value] if isinstance(default_value, te.Tensor) else []

    def place(j: PrimExpr) -> PrimExpr:
        at: Any = ops.const(0, "int32")
        inside: list[PrimExpr] = []
        for axis, extent in enumerate(shape):
            where: Sequence[Any] = ((), (j,), (j, axis))[sparse_indices.ndim]
            index = sparse_indices(*where)
            inside += [index >= 0, index < ops.const(extent, index.dtype)]
            at = at * extent + ops.cast("int32", index)
        return tir.Select(tir.all(*inside), at, ops.const(-1, "int32"))

    def start(sources: Sequence[Any], i: PrimExpr) -> PrimExpr:
        value: PrimExpr = sources[0][0] if given else ops.const(default_value, sparse_values.dtype)
        return value

    places = te.compute((count,), place, name="sparse_places", tag=tag.INJECTIVE)
    return write_in_order(places, sparse_values, given, start, shape, 1, "update", "sparse_to_dense")
