"""Cumulative sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi.sort import row_kind, split_shape
from tilewright.topi.transform import normalize_axis
from tilewright.topi.utils import prod, simplify


def scanop(
    data: te.Tensor,
    binop: Callable[[Any, Any], PrimExpr],
    identity_value: Any,
    op_name: str,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: Any = None,
) -> te.Tensor:
    """Running combination of the elements along ``axis``, or of the flattened tensor.

    ``exclusive`` leaves the element itself out, so the first result is ``identity_value``.
    """
    dtype = dtype or (data.dtype if not dt.is_bool(data.dtype) else "int32")
    if axis is None:
        size = simplify(ops.as_expr(prod(data.shape)))
        outer, n, inner, shape = 1, size, 1, [size]
    else:
        outer, n, inner = split_shape(data.shape, normalize_axis(axis, data.ndim))
        shape = list(data.shape)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source, target = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        rows = outer * inner
        elements = rows * n if isinstance(n, int) else None
        with ib.for_range(0, rows, name="row", kind=row_kind(rows, elements)) as row:
            base = tir.indexdiv(row, inner) * (n * inner) + tir.indexmod(row, inner)
            total = ib.allocate(dtype, (1,), name="total", scope="local")
            total[0] = ops.const(identity_value, dtype)
            with ib.for_range(0, n, name="k") as k:
                at = base + k * inner
                if exclusive:
                    target[at] = total[0]
                total[0] = binop(total[0], ops.cast(dtype, source[at]))
                if not exclusive:
                    target[at] = total[0]
        return ib.get()

    return te.extern([tuple(shape)], [data], loops, dtype=[dtype], name=op_name, tag=op_name)


def cumsum(data: te.Tensor, axis: int | None = None, dtype: str | None = None, exclusive: Any = None) -> te.Tensor:
    """Running sum along ``axis``, or of the flattened tensor."""
    return scanop(data, ops.add, 0, "cumsum_generic", axis, dtype, exclusive)


def cumprod(data: te.Tensor, axis: int | None = None, dtype: str | None = None, exclusive: Any = None) -> te.Tensor:
    """Running product along ``axis``, or of the flattened tensor."""
    return scanop(data, ops.mul, 1, "cumprod_generic", axis, dtype, exclusive)


__all__ = [
    "cumprod", "cumsum",
]  # fmt: skip
