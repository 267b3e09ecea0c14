"""Computes that write to positions in index tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.generic_func import generic_func
from tilewright.tir import ir_builder
from tilewright.topi.transform import normalize_axis
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, prod, ravel_index, unravel_index

Combine = Callable[[Any, Any], PrimExpr]
_COMBINE: dict[str, Combine] = {
    "update": lambda old, new: new,
    "add": ops.add,
    "mul": ops.mul,
    "min": ops.minimum,
    "max": ops.maximum,
}


def combine_by(name: str, mode: str) -> Combine:
    """Return the function that combines an update with the old value, by mode."""
    if mode not in _COMBINE:
        raise InvalidShapeError(f"{name} mode is {', '.join(_COMBINE)}; found {mode!r}")
    return _COMBINE[mode]


def _copy(ib: Any, source: Any, target: Any, size: Any) -> None:
    with ib.for_range(0, size, name="i") as i:
        target[i] = source[i]


def _position(value: PrimExpr, extent: Any, dtype: str = "int32") -> PrimExpr:
    index = ops.cast(dtype, value)
    return tir.if_then_else(index < 0, index + extent, index)


def _dtype_of(dims: Sequence[Any]) -> str:
    """Return the type of positions in a tensor: int64 where a dimension has 64 bits, else int32."""
    return "int64" if any(ops.as_expr(d).dtype == "int64" for d in dims) else "int32"


def element_place(
    index: Callable[[Sequence[Any]], PrimExpr], j: PrimExpr, moves: Sequence[Any], shape: Sequence[Any], axis: int
) -> PrimExpr:
    """Return the flat element of ``shape`` that the j-th update changes; ``index`` reads the index tensor."""
    coordinates = unravel_index(j, [max(d, 1) if isinstance(d, int) else d for d in moves])
    where = [_position(index(coordinates), shape[k]) if k == axis else c for k, c in enumerate(coordinates)]
    return ops.cast("int32", ops.as_expr(ravel_index(where, shape)))


def slice_place(
    index: Callable[[Sequence[Any]], PrimExpr], j: PrimExpr, moves: Sequence[Any], shape: Sequence[Any]
) -> PrimExpr:
    """Return the flat slice of the leading dimensions ``shape`` that the j-th update changes."""
    coordinates = unravel_index(j, [max(d, 1) if isinstance(d, int) else d for d in moves])
    where = [_position(index([k, *coordinates]), extent) for k, extent in enumerate(shape)]
    return ops.cast("int32", ops.as_expr(ravel_index(where, shape)))


@generic_func
def scatter_elements(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int = 0, mode: str = "update"
) -> te.Tensor:
    """Write ``updates[.., j, ..]`` to position ``indices[.., j, ..]`` of ``data`` along ``axis``, or combine it there.

    ``mode`` is update, add, mul, min or max; updates of one position are applied in row-major order.
    """
    axis = normalize_axis(axis, data.ndim)
    combine = combine_by("scatter", mode)
    shape, wide = get_const_tuple(data.shape), _dtype_of(data.shape)
    moves = get_const_tuple(indices.shape)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source, index, update = (ib.buffer_ptr(b) for b in ins)
        target = ib.buffer_ptr(outs[0])
        _copy(ib, source, target, prod(shape))
        with ib.for_range(0, prod(moves), name="j") as j:
            at, rest, stride = ops.const(0, wide), j, ops.const(1, wide)
            for k in reversed(range(len(moves))):
                extent = ops.maximum(ops.as_expr(moves[k]), 1)  # of 0 the loop has no iterations
                coordinate = tir.indexmod(rest, extent)
                rest = tir.indexdiv(rest, extent)
                where = _position(index[j], shape[k], wide) if k == axis else coordinate
                at, stride = at + where * stride, stride * shape[k]
            target[at] = combine(target[at], update[j])
        return ib.get()

    return te.extern(
        [tuple(data.shape)],
        [data, indices, updates],
        loops,
        dtype=[data.dtype],
        name="scatter",
        tag="scatter",
        attrs={"any_size": True},
    )


def scatter(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int = 0) -> te.Tensor:
    """Write ``updates`` to the positions ``indices`` of ``data`` along ``axis``; the last write wins."""
    return scatter_elements(data, indices, updates, axis, "update")


def scatter_add(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int = 0) -> te.Tensor:
    """Add ``updates`` to ``data`` at the positions ``indices`` along ``axis``."""
    return scatter_elements(data, indices, updates, axis, "add")


@generic_func
def scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, mode: str = "update") -> te.Tensor:
    """Write slices ``updates[j..]`` to the coordinates ``indices[:, j..]`` of ``data``, or combine them there."""
    combine = combine_by("scatter_nd", mode)
    shape, wide = get_const_tuple(data.shape), _dtype_of(data.shape)
    count, *places = get_const_tuple(indices.shape)
    slice_size = prod(shape[count:])

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source, index, update = (ib.buffer_ptr(b) for b in ins)
        target = ib.buffer_ptr(outs[0])
        _copy(ib, source, target, prod(shape))
        total = prod(places)
        with ib.for_range(0, total, name="j") as j:
            base: Any = ops.const(0, wide)
            for k in range(count):
                base = base * shape[k] + _position(index[j + k * total], shape[k], wide)
            with ib.for_range(0, slice_size, name="i") as i:
                at = base * slice_size + i
                target[at] = combine(target[at], update[j * slice_size + i])
        return ib.get()

    return te.extern(
        [tuple(data.shape)],
        [data, indices, updates],
        loops,
        dtype=[data.dtype],
        name="scatter_nd",
        tag="scatter_nd",
        attrs={"any_size": True},
    )


__all__ = [
    "scatter", "scatter_add", "scatter_elements", "scatter_nd",
]  # fmt: skip
