"""Reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.te.broadcast import divide
from tilewright.topi import tag
from tilewright.topi.transform import normalize_axis
from tilewright.topi.utils import as_list, ravel_index


def get_real_axis(ndim: int, axis: Any) -> list[int]:
    """Return the axes counted from the front, in rising order; all of them for None or an empty list."""
    if axis is None or (isinstance(axis, (list, tuple)) and not axis):
        return list(range(ndim))
    return sorted({normalize_axis(a, ndim) for a in as_list(axis)})


def _reduced_shape(shape: Sequence[Any], axes: Sequence[int], keepdims: bool) -> list[Any]:
    if keepdims:
        return [1 if k in axes else d for k, d in enumerate(shape)]
    return [d for k, d in enumerate(shape) if k not in axes]


def _source_indices(
    out: Sequence[PrimExpr], reduced: Sequence[Any], ndim: int, axes: Sequence[int], keepdims: bool
) -> list[Any]:
    free = iter([v for k, v in enumerate(out) if not (keepdims and k in axes)])
    inner = iter(reduced)
    return [next(inner).var if k in axes else next(free) for k in range(ndim)]


def comm_reduce(
    data: te.Tensor,
    axis: Any,
    keepdims: bool,
    function: Callable[..., Any],
    name: str,
    transform: Callable[[PrimExpr], Any] | None = None,
) -> te.Tensor:
    """Reduce ``data`` over ``axis`` by the te reducer ``function``, applied to each element's ``transform``."""
    axes = get_real_axis(data.ndim, axis)
    element = transform or (lambda v: v)
    if not axes:  # a tensor of rank 0: reducing nothing
        return te.compute(data.shape, lambda *i: element(data(*i)), name=name, tag=tag.ELEMWISE)
    reduced = [te.reduce_axis((0, data.shape[k]), name=f"k{k}") for k in axes]

    def body(*i: PrimExpr) -> Any:
        return function(element(data(*_source_indices(i, reduced, data.ndim, axes, keepdims))), axis=reduced)

    return te.compute(_reduced_shape(data.shape, axes, keepdims), body, name=name, tag=tag.COMM_REDUCE)


def sum(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """Sum over ``axis``, by default all."""
    return comm_reduce(data, axis, keepdims, te.sum, "T_sum")


def prod(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """Product over ``axis``."""
    return comm_reduce(data, axis, keepdims, te.prod, "T_prod")


# te's own reducers start at the largest and smallest finite numbers, above which infinities would be lost.
def lowest(dtype: str) -> PrimExpr:
    """Return the identity of a maximum: the least value of an integer type, -inf for floating point."""
    return ops.const(-math.inf, dtype) if dt.is_float(dtype) else tir.min_value(dtype)


def _highest(dtype: str) -> PrimExpr:
    return ops.const(math.inf, dtype) if dt.is_float(dtype) else tir.max_value(dtype)


def _greater(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    return tir.Select(x < y, y, x) if dt.is_float(x.dtype) else ops.maximum(x, y)


# The greatest number, and -inf of none: NaN is skipped. It takes one instruction on x86; a maximum that lets NaN
# through takes three (docs/operators.md).
greatest_number = te.comm_reducer(_greater, lowest, name="max")
greatest = te.comm_reducer(ops.maximum, lowest, name="max")
_min = te.comm_reducer(ops.minimum, _highest, name="min")


def max(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """Largest element over ``axis``."""
    return comm_reduce(data, axis, keepdims, greatest, "T_max")


def min(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """Smallest element over ``axis``."""
    return comm_reduce(data, axis, keepdims, _min, "T_min")


_all = te.comm_reducer(lambda x, y: ops.logical_and(x, y), lambda dtype: ops.const(True, dtype), name="all")
_any = te.comm_reducer(lambda x, y: ops.logical_or(x, y), lambda dtype: ops.const(False, dtype), name="any")


def all(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """Return whether every element over ``axis`` is true; ``data`` is bool."""
    return comm_reduce(data, axis, keepdims, _all, "T_all")


def any(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """Return whether some element over ``axis`` is true; ``data`` is bool."""
    return comm_reduce(data, axis, keepdims, _any, "T_any")


def mean(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
    """Arithmetic mean over ``axis``; integers truncate, and the mean of none is 0."""
    count: Any = 1
    for k in get_real_axis(data.ndim, axis):
        count = count * data.shape[k]
    if not dt.is_float(data.dtype) and ops.is_const_int(ops.as_expr(count), 0):
        count = 1
    return divide(sum(data, axis, keepdims), ops.cast(data.dtype, ops.as_expr(count)))


def collapse_sum(data: te.Tensor, target_shape: Sequence[Any]) -> te.Tensor:
    """Sum over the dimensions along which a tensor of ``target_shape`` is broadcast to that of ``data``."""
    skip = data.ndim - len(target_shape)
    axes = list(range(skip)) + [
        skip + k
        for k, d in enumerate(target_shape)
        if ops.is_const_int(ops.as_expr(d), 1) and not ops.is_const_int(data.shape[skip + k], 1)
    ]
    if not axes:
        return te.compute(data.shape, lambda *i: data(*i), name="T_collapse_sum", tag=tag.ELEMWISE)
    reduced = [te.reduce_axis((0, data.shape[k]), name=f"k{k}") for k in axes]

    def body(*i: PrimExpr) -> Any:
        inner = iter(reduced)
        source = [next(inner).var if k in axes else i[k - skip] for k in range(data.ndim)]
        return te.sum(data(*source), axis=reduced)

    return te.compute(target_shape, body, name="T_collapse_sum", tag=tag.COMM_REDUCE)


def _arg_reduce(
    data: te.Tensor, axis: Any, keepdims: bool, select_last_index: bool, is_max: bool, name: str
) -> te.Tensor:
    """Return the index of the extreme element (the first such, or the last), flat over several reduced axes.

    NaN is more extreme than any number, as in numpy.
    """

    def combine(lhs: Any, rhs: Any) -> tuple[PrimExpr, PrimExpr]:
        better = lhs[1] > rhs[1] if is_max else lhs[1] < rhs[1]
        same = lhs[1].equal(rhs[1])
        if dt.is_float(lhs[1].dtype):
            nan, other_nan = tir.isnan(lhs[1]), tir.isnan(rhs[1])
            better, same = tir.any(better, tir.all(nan, tir.Not(other_nan))), tir.any(same, tir.all(nan, other_nan))
        earlier = lhs[0] > rhs[0] if select_last_index else lhs[0] < rhs[0]
        # The identity's index of -1 must lose against a real element of the same value.
        real = tir.any(ops.less(rhs[0], 0), tir.all(lhs[0] >= 0, earlier))
        keep = tir.any(better, tir.all(same, real))
        return tir.Select(keep, lhs[0], rhs[0]), tir.Select(keep, lhs[1], rhs[1])

    def identity(index_dtype: str, dtype: str) -> tuple[PrimExpr, PrimExpr]:
        return ops.const(-1, index_dtype), lowest(dtype) if is_max else _highest(dtype)

    reducer = te.comm_reducer(combine, identity, name=name)
    axes = get_real_axis(data.ndim, axis)
    reduced = [te.reduce_axis((0, data.shape[k]), name=f"k{k}") for k in axes]
    shape = _reduced_shape(data.shape, axes, keepdims)
    extents = [data.shape[k] for k in axes]

    def body(*i: PrimExpr) -> Any:
        position = ops.cast("int32", ops.as_expr(ravel_index([r.var for r in reduced], extents)))
        value = data(*_source_indices(i, reduced, data.ndim, axes, keepdims))
        return reducer((position, value), axis=reduced)

    if not axes:
        return te.compute(data.shape, lambda *i: ops.const(0, "int32"), name=name, tag=tag.ELEMWISE)
    both = te.compute(shape, body, name=f"{name}_temp", tag=tag.COMM_REDUCE_IDX)
    return te.compute(shape, lambda *i: both[0](*i), name=name, tag=tag.COMM_REDUCE)


def argmax(data: te.Tensor, axis: Any = None, keepdims: bool = False, select_last_index: bool = False) -> te.Tensor:
    """Index (int32) of the largest element over ``axis``; among equals the first, or the last if so selected."""
    return _arg_reduce(data, axis, keepdims, select_last_index, True, "T_argmax")


def argmin(data: te.Tensor, axis: Any = None, keepdims: bool = False, select_last_index: bool = False) -> te.Tensor:
    """Index (int32) of the smallest element over ``axis``; among equals the first, or the last if so selected."""
    return _arg_reduce(data, axis, keepdims, select_last_index, False, "T_argmin")


__all__ = [
    "all", "any", "argmax", "argmin", "collapse_sum", "max", "mean", "min", "prod", "sum",
]  # fmt: skip
