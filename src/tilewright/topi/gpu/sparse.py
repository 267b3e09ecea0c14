"""Transpose of sparse matrices on graphics processors, by sorting the columns."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir import ir_builder
from tilewright.topi import loops
from tilewright.topi.nn.sparse import check_csr, sparse_transpose
from tilewright.topi.sort import argsort
from tilewright.topi.utils import get_const_int


@sparse_transpose.provide("gpu")
def sparse_transpose_gpu(
    sparse_data: te.Tensor, sparse_indices: te.Tensor, sparse_indptr: te.Tensor
) -> list[te.Tensor]:
    """Transpose a square matrix in CSR; see ``topi.nn.sparse.sparse_transpose``.

    The elements, stably sorted by column, are the rows of the transpose.
    """
    check_csr("sparse_transpose", sparse_data)
    count, n = get_const_int(sparse_data.shape[0]), get_const_int(sparse_indptr.shape[0]) - 1
    order = argsort(sparse_indices, None, 0, True, "int32")

    def body(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        values, columns, starts, ranked = (ib.buffer_ptr(i) for i in ins)
        out_values, out_columns, out_starts = (ib.buffer_ptr(o) for o in outs)

        def first(extent: int, goes_on: Any) -> PrimExpr:
            """Return the first of 0 .. extent for which ``goes_on`` does not hold, by bisection."""
            low, high = (ib.allocate("int32", (1,), name=name, scope="local") for name in ("low", "high"))
            low[0], high[0] = ops.const(0, "int32"), ops.const(extent, "int32")
            with ib.while_loop(low[0] < high[0]):
                middle = ib.let("middle", ops.floordiv(low[0] + high[0], 2))
                with ib.if_scope(goes_on(middle)):
                    low[0] = middle + 1
                with ib.else_scope():
                    high[0] = middle
            return low[0]

        with loops.each(ib, count, "k") as k:
            at = ib.let("at", ranked[k])
            out_values[k] = values[at]
            out_columns[k] = first(n + 1, lambda row: ops.cast("int32", starts[row]) <= at) - 1
        with loops.each(ib, n + 1, "row") as row:
            out_starts[row] = first(count, lambda k: ops.cast("int32", columns[ranked[k]]) < row)
        return ib.get()

    result: list[te.Tensor] = te.extern(
        [(count,), (count,), (n + 1,)], [sparse_data, sparse_indices, sparse_indptr, order], body,
        dtype=[sparse_data.dtype, "int32", "int32"], name="sparse_transpose", tag="sparse_transpose_csr",
    )  # fmt: skip
    return result
