"""Computes that pick elements by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.te.broadcast import broadcast_indices, broadcast_shape
from tilewright.topi import tag
from tilewright.topi.transform import normalize_axis
from tilewright.topi.utils import InvalidShapeError, get_const_tuple, prod, simplify
from tilewright.topi.utils import unravel_index as unravel_expr


def _index(value: PrimExpr) -> PrimExpr:
    """Return an element of an index tensor as an index."""
    return value if value.dtype in ("int32", "int64") else ops.cast("int32", value)


def _from_end(index: PrimExpr, extent: Any) -> PrimExpr:
    """Count a negative ``index`` from the end; the result has the dtype of ``extent``.

    With an int64 index, vectors along the other axes would be gathered one element at a time.
    """
    size = ops.as_expr(extent)
    index = ops.cast(size.dtype, index)
    return tir.Select(index < ops.const(0, size.dtype), index + size, index)


def _bounded(index: PrimExpr, extent: Any, mode: str) -> PrimExpr:
    """Bring ``index`` within ``extent`` by ``mode``, in the dtype of ``extent``, which index arithmetic
    around it uses.
    """
    size = ops.as_expr(extent)
    extent = ops.cast(index.dtype, size)
    if mode == "clip":
        return ops.cast(size.dtype, ops.minimum(ops.maximum(index, ops.const(0, index.dtype)), extent - 1))
    if mode == "wrap":
        return ops.cast(size.dtype, ops.floormod(index, extent))
    if mode == "fast":
        return ops.cast(size.dtype, index)
    raise InvalidShapeError(f"take mode is clip, wrap or fast, found {mode!r}")


def take(
    a: te.Tensor, indices: te.Tensor, axis: int | None = None, batch_dims: int = 0, mode: str = "clip"
) -> te.Tensor:
    """Return the elements of ``a`` at ``indices`` along ``axis``, or of the flattened ``a``.

    Parameters
    ----------
    batch_dims : leading dimensions that ``a`` and ``indices`` share
    mode : indices outside are clamped ("clip"), taken modulo the extent ("wrap"), or must not occur ("fast")

    An empty ``a`` reads as 0.
    """
    if axis is None:
        size = simplify(ops.as_expr(prod(a.shape)))
        if ops.is_const_int(size, 0):
            return te.compute(indices.shape, lambda *_: ops.const(0, a.dtype), name="T_take", tag=tag.INJECTIVE)

        def flat(*i: PrimExpr) -> PrimExpr:
            return a(*unravel_expr(_bounded(_index(indices(*i)), size, mode), a.shape))

        return te.compute(indices.shape, flat, name="T_take", tag=tag.INJECTIVE)
    axis = normalize_axis(axis, a.ndim)
    batch = batch_dims + indices.ndim if batch_dims < 0 else batch_dims
    width = indices.ndim - batch
    shape = (*a.shape[:axis], *indices.shape[batch:], *a.shape[axis + 1 :])
    if ops.is_const_int(a.shape[axis], 0):
        return te.compute(shape, lambda *_: ops.const(0, a.dtype), name="T_take", tag=tag.INJECTIVE)

    def body(*i: PrimExpr) -> PrimExpr:
        index = indices(*i[:batch], *i[axis : axis + width])
        return a(*i[:axis], _bounded(_index(index), a.shape[axis], mode), *i[axis + width :])

    return te.compute(shape, body, name="T_take", tag=tag.INJECTIVE)


def gather(data: te.Tensor, axis: int, indices: te.Tensor) -> te.Tensor:
    """Return ``data[i.., indices[i.., j, k..], k..]``: one index along ``axis`` for every output element."""
    axis = normalize_axis(axis, data.ndim)

    def body(*i: PrimExpr) -> PrimExpr:
        return data(*i[:axis], _from_end(indices(*i), data.shape[axis]), *i[axis + 1 :])

    return te.compute(indices.shape, body, name="T_gather", tag=tag.INJECTIVE)


def gather_nd(a: te.Tensor, indices: te.Tensor, batch_dims: int = 0) -> te.Tensor:
    """Return slices of ``a`` at the coordinates ``indices[:, j..]``, listed along the first dimension of
    ``indices``.
    """
    count = int(get_const_tuple(indices.shape)[0])
    shape = (*indices.shape[1:], *a.shape[batch_dims + count :])
    width = indices.ndim - 1

    def body(*i: PrimExpr) -> PrimExpr:
        at = []
        for k in range(count):
            at.append(_from_end(indices(k, *i[:width]), a.shape[batch_dims + k]))
        return a(*i[:batch_dims], *at, *i[width:])

    return te.compute(shape, body, name="T_gather_nd", tag=tag.INJECTIVE)


def adv_index(data: te.Tensor, indices: Sequence[te.Tensor]) -> te.Tensor:
    """Return ``data[indices[0], indices[1], ...]`` with index tensors that broadcast, as numpy's advanced indexing."""
    common: Sequence[Any] = indices[0].shape
    for index in indices[1:]:
        common = broadcast_shape(common, index.shape)
    rank = len(common)

    def body(*i: PrimExpr) -> PrimExpr:
        at = []
        for k, index in enumerate(indices):
            at.append(_from_end(index(*broadcast_indices(index.shape, common, i[:rank])), data.shape[k]))
        return data(*at, *i[rank:])

    return te.compute((*common, *data.shape[len(indices) :]), body, name="advanced_index", tag=tag.INJECTIVE)


def sequence_mask(data: te.Tensor, valid_length: te.Tensor, mask_value: float = 0, axis: int = 0) -> te.Tensor:
    """Replace the elements beyond each batch element's valid length by ``mask_value``.

    The first two dimensions of ``data`` are time and batch; ``axis`` says which of them is time.
    """
    fill = ops.const(mask_value, data.dtype)

    def body(*i: PrimExpr) -> PrimExpr:
        length = valid_length(i[1 - axis])
        return tir.if_then_else(ops.cast(length.dtype, i[axis]) >= length, fill, data(*i))

    return te.compute(data.shape, body, name="T_sequence_mask", tag=tag.INJECTIVE)


def unravel_index(indices: te.Tensor, shape: te.Tensor) -> te.Tensor:
    """Return the coordinates of flat indices in a tensor of the shape in the tensor ``shape``; coordinates
    come first.
    """
    rank = int(get_const_tuple(shape.shape)[0])

    def body(*i: PrimExpr) -> PrimExpr:
        rest = indices(*i[1:])
        result = ops.const(0, indices.dtype)
        for k in reversed(range(rank)):
            extent = ops.maximum(ops.cast(rest.dtype, shape(k)), ops.const(1, rest.dtype))
            result = tir.Select(ops.equal(i[0], k), ops.floormod(rest, extent), result)
            rest = ops.floordiv(rest, extent)
        return result

    return te.compute((rank, *indices.shape), body, name="T_unravel", tag=tag.INJECTIVE)


def invert_permutation(data: te.Tensor) -> te.Tensor:
    """Return the inverse of a permutation of 0 .. n - 1."""
    k = te.reduce_axis((0, data.shape[0]), name="k")
    zero = ops.const(0, data.dtype)

    def body(i: PrimExpr) -> Any:
        found = ops.equal(data(k.var), ops.cast(data.dtype, i))
        return te.sum(tir.Select(found, ops.cast(data.dtype, k.var), zero), axis=k)

    return te.compute(data.shape, body, name="T_invert_permutation", tag=tag.COMM_REDUCE)


__all__ = [
    "adv_index", "gather", "gather_nd", "invert_permutation", "sequence_mask", "take", "unravel_index",
]  # fmt: skip
