"""Computes on coordinates: sparse tensors as lists of indices, and search in sorted rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.target.generic_func import generic_func
from tilewright.tir import ir_builder
from tilewright.topi.loops import each
from tilewright.topi.utils import InvalidShapeError


@generic_func
def sparse_to_dense(
    sparse_indices: te.Tensor, output_shape: Sequence[Any], sparse_values: te.Tensor, default_value: Any = 0
) -> te.Tensor:
    """Write ``sparse_values`` at their indices over ``default_value``; of values at one index the last wins.

    Values at indices outside of the shape are dropped.

    Parameters
    ----------
    sparse_indices : (count, rank), (count,) where the rank is 1, or a scalar
    sparse_values : (count,), or a scalar for all places
    default_value : a scalar tensor or a number
    """
    shape = [ops.as_expr(d) for d in output_shape]
    if sparse_indices.ndim > 2 or sparse_values.ndim > 1:
        raise InvalidShapeError("sparse_to_dense takes indices of at most 2 dimensions and values of at most 1")
    many = sparse_indices.ndim > 0
    count = sparse_indices.shape[0] if many else ops.as_expr(1)
    given = [default_value] if isinstance(default_value, te.Tensor) else []

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        indices, values, *default = (ib.buffer_ptr(b) for b in ins)
        target = ib.buffer_ptr(outs[0])
        total: Any = ops.const(1, "int32")
        for extent in shape:
            total = total * extent
        with ib.for_range(0, total, name="i") as i:
            target[i] = default[0][0] if default else ops.const(default_value, sparse_values.dtype)
        with ib.for_range(0, count, name="n") as n:
            at: Any = ops.const(0, "int32")
            inside: list[Any] = []
            for axis, extent in enumerate(shape):
                index = indices[n * len(shape) + axis if many else axis]
                inside += [index >= 0, index < ops.cast(index.dtype, extent)]
                at = at * extent + ops.cast("int32", index)
            with ib.if_scope(tir.all(*inside)):
                target[at] = values[n if sparse_values.ndim else 0]
        return ib.get()

    return te.extern(
        [shape], [sparse_indices, sparse_values, *given], loops, dtype=[sparse_values.dtype], name="sparse_to_dense"
    )


def sparse_reshape(
    sparse_indices: te.Tensor,
    prev_shape: te.Tensor,
    new_shape: te.Tensor,
    new_sparse_indices_shape: Any = None,
    new_shape_shape: Any = None,
) -> tuple[te.Tensor, te.Tensor]:
    """Return the indices of a sparse tensor after a reshape, and the new shape without -1.

    Parameters
    ----------
    sparse_indices : (count, rank)
    prev_shape : (rank,), the shape
    new_shape : (new_rank,), of which one may be -1, to be inferred
    new_sparse_indices_shape, new_shape_shape : shapes of the results; they follow from those of the inputs

    Returns (count, new_rank) and (new_rank,), both of the type of ``sparse_indices``.
    """
    count, rank = sparse_indices.shape
    new_rank = new_shape.shape[0]
    dtype = sparse_indices.dtype

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        indices, before, wanted = (ib.buffer_ptr(b) for b in ins)
        places, shape = (ib.buffer_ptr(b) for b in outs)
        one, zero = ops.const(1, dtype), ops.const(0, dtype)
        with each(ib, 1, "once"):
            elements, known = (ib.allocate(dtype, (1,), name=name, scope="local") for name in ("all", "known"))
            elements[0] = known[0] = one
            with ib.for_range(0, rank, name="k") as k:
                elements[0] = elements[0] * ops.cast(dtype, before[k])
            with ib.for_range(0, new_rank, name="k") as k:
                extent = ops.cast(dtype, wanted[k])
                known[0] = known[0] * tir.Select(extent >= zero, extent, one)
            with ib.for_range(0, new_rank, name="k") as k:
                extent = ops.cast(dtype, wanted[k])
                left = tir.if_then_else(known[0] > zero, ops.floordiv(elements[0], ops.maximum(known[0], one)), zero)
                shape[k] = tir.Select(extent >= zero, extent, left)
        with each(ib, count, "n") as n:
            flat = ib.allocate(dtype, (1,), name="at", scope="local")
            flat[0] = zero
            with ib.for_range(0, rank, name="k") as k:
                flat[0] = flat[0] * ops.cast(dtype, before[k]) + indices[n * rank + k]
            with ib.for_range(0, new_rank, name="k") as k:
                axis = new_rank - 1 - k
                extent = ops.maximum(shape[axis], one)
                places[n * new_rank + axis] = ops.floormod(flat[0], extent)
                flat[0] = ops.floordiv(flat[0], extent)
        return ib.get()

    return tuple(
        te.extern(
            [(count, new_rank), (new_rank,)], [sparse_indices, prev_shape, new_shape], loops, dtype=[dtype, dtype],
            name="sparse_reshape",
        )
    )  # fmt: skip


def searchsorted(
    sorted_sequence: te.Tensor, values: te.Tensor, right: bool = False, out_dtype: str = "int64"
) -> te.Tensor:
    """Return the insertion position of each value in a sorted row: before equal elements, or after with ``right``.

    Parameters
    ----------
    sorted_sequence : (..., n), or (n,) for all values
    values : (..., m)

    Returns indices from 0 to n in the shape of ``values``.
    """
    extent = sorted_sequence.shape[-1]
    width = values.shape[-1] if values.ndim else ops.as_expr(1)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        row, wanted = (ib.buffer_ptr(b) for b in ins)
        found = ib.buffer_ptr(outs[0])
        total: Any = ops.const(1, "int32")
        for dim in values.shape:
            total = total * dim
        with each(ib, total, "i", "parallel") as i:
            base = ops.const(0, "int32") if sorted_sequence.ndim == 1 else ops.floordiv(i, width) * extent
            low, high = (ib.allocate("int32", (1,), name=name, scope="local") for name in ("low", "high"))
            low[0], high[0] = ops.const(0, "int32"), ops.cast("int32", extent)
            with ib.while_loop(low[0] < high[0]):
                middle = ops.floordiv(low[0] + high[0], 2)
                element, value = row[base + middle], wanted[i]
                goes_on = element <= value if right else element < value
                with ib.if_scope(goes_on):
                    low[0] = middle + 1
                with ib.else_scope():
                    high[0] = middle
            found[i] = ops.cast(out_dtype, low[0])
        return ib.get()

    return te.extern([values.shape], [sorted_sequence, values], loops, dtype=[out_dtype], name="searchsorted")


__all__ = ["searchsorted", "sparse_reshape", "sparse_to_dense"]
