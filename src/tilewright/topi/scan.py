"""Cumulative sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm, PrimExpr
from tilewright.target.generic_func import generic_func
from tilewright.tir import ir_builder
from tilewright.topi.sort import row_kind, split_shape
from tilewright.topi.transform import normalize_axis
from tilewright.topi.utils import largest_divisor, prod, simplify

_MOST_COLUMNS = 256  # that one loop along the axis takes side by side: their totals stay in the first-level cache
_LANES = 16


def scan_shape(data: te.Tensor, axis: int | None) -> tuple[tuple[Any, Any, Any], list[Any]]:
    """Return the elements before, along and after ``axis`` (flattened if None), and the shape of the result."""
    if axis is None:
        size = simplify(ops.as_expr(prod(data.shape)))
        return (1, size.value if isinstance(size, IntImm) else size, 1), [size]
    return split_shape(data.shape, normalize_axis(axis, data.ndim)), list(data.shape)


@generic_func
def scanop(
    data: te.Tensor,
    binop: Callable[[Any, Any], PrimExpr],
    identity_value: Any,
    op_name: str,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: Any = None,
) -> te.Tensor:
    """Combine the elements so far along ``axis``, or of the flattened tensor.

    ``exclusive`` leaves the element itself out, so the first result is ``identity_value``.
    """
    dtype = dtype or (data.dtype if not dt.is_bool(data.dtype) else "int32")
    (outer, n, inner), shape = scan_shape(data, axis)

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        source, target = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        columns, blocks, rows = 1, inner, outer * inner
        if isinstance(inner, int):
            columns = largest_divisor(inner, _MOST_COLUMNS)
            blocks, rows = max(inner // columns, 1), outer * (inner // columns)
        lanes = largest_divisor(columns, _LANES)
        elements = outer * inner * n if isinstance(n, int) else None
        with ib.for_range(0, rows, name="row", kind=row_kind(rows, elements)) as row:
            base = tir.indexdiv(row, blocks) * (n * inner) + tir.indexmod(row, blocks) * columns
            totals = ib.allocate(dtype, (columns,), name="totals", scope="local")

            def each_column(at: Callable[[PrimExpr], None]) -> None:
                with ib.for_range(0, columns // lanes) as group, ib.for_range(0, lanes, kind="vectorize") as lane:
                    at(group * lanes + lane)

            def begin(column: PrimExpr) -> None:
                totals[column] = ops.const(identity_value, dtype)

            def step(k: PrimExpr, column: PrimExpr) -> None:
                at = base + k * inner + column
                before = totals[column]
                after = binop(before, ops.cast(dtype, source[at]))
                target[at] = before if exclusive else after
                totals[column] = after

            each_column(begin)
            with ib.for_range(0, n, name="k") as k:
                each_column(lambda column: step(k, column))
        return ib.get()

    return te.extern([tuple(shape)], [data], loops, dtype=[dtype], name=op_name, tag=op_name)


def cumsum(data: te.Tensor, axis: int | None = None, dtype: str | None = None, exclusive: Any = None) -> te.Tensor:
    """Running sum along ``axis``, or of the flattened tensor."""
    return scanop(data, ops.add, 0, "cumsum_generic", axis, dtype, exclusive)


def cumprod(data: te.Tensor, axis: int | None = None, dtype: str | None = None, exclusive: Any = None) -> te.Tensor:
    """Running product along ``axis``, or of the flattened tensor."""
    return scanop(data, ops.mul, 1, "cumprod_generic", axis, dtype, exclusive)


__all__ = [
    "cumprod", "cumsum", "scanop",
]  # fmt: skip
