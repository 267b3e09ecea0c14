"""Coordinates of the elements of a tensor that are not zero."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi.loops import thread_group
from tilewright.topi.utils import get_const_tuple, prod, unravel_index


def argwhere(output_shape: Any, condition: te.Tensor) -> te.Tensor:
    """Return the coordinates (count, rank), int32, of the non-zero elements of ``condition`` in row-major order.

    ``output_shape`` is the shape (count, rank) of the result, or a tensor of that shape; elements beyond ``count`` are
    left out, and rows of the result beyond the last element are not written.
    """
    shape = get_const_tuple(output_shape.shape if isinstance(output_shape, te.Tensor) else output_shape)
    extents = get_const_tuple(condition.shape)
    rank, total = len(extents), prod(extents)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source, target = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with thread_group(ib, 1, total) as threads:

            def write(k: PrimExpr, chosen: PrimExpr, place: PrimExpr) -> None:
                with ib.if_scope(chosen), ib.if_scope(place < shape[0]):
                    for axis, index in enumerate(unravel_index(k, extents)):
                        target[place * rank + axis] = ops.cast("int32", index)

            threads.collect(total, lambda k: ops.not_equal(source[k], ops.const(0, condition.dtype)), write)
        return ib.get()

    return te.extern([shape], [condition], loops, dtype=["int32"], name="argwhere", tag="argwhere")


__all__ = ["argwhere"]
