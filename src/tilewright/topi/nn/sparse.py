"""Matrices of which most elements are 0, and products and sums with them.

CSR: the elements of row r are ``data[k]`` in the columns ``indices[k]``, k from ``indptr[r]`` to ``indptr[r + 1]``.
BSR has blocks instead of elements: ``data`` (blocks, rows, columns), and r counts rows of blocks.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir import prim_ops as ops
from tilewright.tir import ir_builder
from tilewright.topi.utils import InvalidShapeError, get_const_int, get_const_tuple


def _block(data: te.Tensor) -> tuple[int, int]:
    """Rows and columns of a block; (1, 1) of CSR."""
    if data.ndim not in (1, 3):
        raise InvalidShapeError(f"a sparse matrix has data of rank 1 (CSR) or 3 (BSR), found rank {data.ndim}")
    return (1, 1) if data.ndim == 1 else (get_const_int(data.shape[1]), get_const_int(data.shape[2]))


def sparse_dense(
    dense_data: te.Tensor,
    sparse_data: te.Tensor,
    sparse_indices: te.Tensor,
    sparse_indptr: te.Tensor,
    sparse_lhs: bool = False,
) -> te.Tensor:
    """``dense_data`` (m, k) times the transposed sparse matrix (n, k), as (m, n); with ``sparse_lhs`` its transpose.

    Parameters
    ----------
    sparse_data, sparse_indices, sparse_indptr : CSR or BSR; see above
    """
    rows, columns = _block(sparse_data)
    lead, inner = get_const_tuple(dense_data.shape)
    blocks = get_const_int(sparse_indptr.shape[0]) - 1
    total, dtype = blocks * rows, dense_data.dtype

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        dense, values, places, starts = (ib.buffer_ptr(i) for i in ins)
        target = ib.buffer_ptr(outs[0])
        with ib.for_range(0, blocks, name="block", kind="parallel") as block:
            first, last = ib.let("first", starts[block]), ib.let("last", starts[block + 1])
            with ib.for_range(0, lead, name="i") as i:
                sums = ib.allocate(dtype, (rows,), name="sums", scope="local")
                with ib.for_range(0, rows, name="r") as r:
                    sums[r] = ops.const(0, dtype)
                with ib.for_range(first, last, name="e") as e:
                    base = ib.let("base", i * inner + ops.cast("int32", places[e]) * columns)
                    with ib.for_range(0, columns, name="c") as c:
                        x = ib.let("x", dense[base + c])
                        with ib.for_range(0, rows, name="r") as r:
                            sums[r] = sums[r] + values[(e * rows + r) * columns + c] * x
                with ib.for_range(0, rows, name="r") as r:
                    at = block * rows + r
                    target[at * lead + i if sparse_lhs else i * total + at] = sums[r]
        return ib.get()

    shape = (total, lead) if sparse_lhs else (lead, total)
    inputs = [dense_data, sparse_data, sparse_indices, sparse_indptr]
    return te.extern([shape], inputs, loops, dtype=[dtype], name="sparse_dense", tag="sparse_dense")


def sparse_dense_sp_rhs(
    data: te.Tensor, weight_data: te.Tensor, weight_indices: te.Tensor, weight_indptr: te.Tensor
) -> te.Tensor:
    """``data`` (m, k) times the transposed sparse weight (n, k)."""
    return sparse_dense(data, weight_data, weight_indices, weight_indptr)


def sparse_dense_sp_lhs(
    data_data: te.Tensor, data_indices: te.Tensor, data_indptr: te.Tensor, weight: te.Tensor
) -> te.Tensor:
    """The sparse data (m, k) times the transposed ``weight`` (n, k)."""
    return sparse_dense(weight, data_data, data_indices, data_indptr, True)


def sparse_transpose(sparse_data: te.Tensor, sparse_indices: te.Tensor, sparse_indptr: te.Tensor) -> list[te.Tensor]:
    """The transpose of a square matrix in CSR, as CSR whose columns rise in each row.

    Returns data (nonzeros,), indices (nonzeros,) and indptr (n + 1,), the last two int32.
    """
    if sparse_data.ndim != 1:
        raise InvalidShapeError(f"sparse_transpose takes CSR, data of rank 1; found rank {sparse_data.ndim}")
    count, n = get_const_int(sparse_data.shape[0]), get_const_int(sparse_indptr.shape[0]) - 1

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        values, columns, starts = (ib.buffer_ptr(i) for i in ins)
        out_values, out_columns, out_starts = (ib.buffer_ptr(o) for o in outs)
        free = ib.allocate("int32", (max(n, 1),), name="free", scope="global")
        with ib.for_range(0, n + 1, name="row") as row:
            out_starts[row] = ops.const(0, "int32")
        with ib.for_range(0, count, name="k") as k:
            out_starts[columns[k] + 1] = out_starts[columns[k] + 1] + 1
        with ib.for_range(0, n, name="row") as row:
            free[row] = out_starts[row]
            out_starts[row + 1] = out_starts[row + 1] + out_starts[row]
        with ib.for_range(0, n, name="row") as row:
            first = ib.let("first", ops.cast("int32", starts[row]))
            with ib.for_range(0, ops.cast("int32", starts[row + 1]) - first, name="k") as k:
                column = ib.let("column", columns[first + k])
                place = ib.let("place", free[column])
                out_values[place], out_columns[place] = values[first + k], row
                free[column] = place + 1
        return ib.get()

    result: list[te.Tensor] = te.extern(
        [(count,), (count,), (n + 1,)], [sparse_data, sparse_indices, sparse_indptr], loops,
        dtype=[sparse_data.dtype, "int32", "int32"], name="sparse_transpose", tag="sparse_transpose_csr",
    )  # fmt: skip
    return result


def sparse_add(
    dense_data: te.Tensor, sparse_data: te.Tensor, sparse_indices: te.Tensor, sparse_indptr: te.Tensor
) -> te.Tensor:
    """``dense_data`` (m, n) plus a matrix in CSR of that shape."""
    if sparse_data.ndim != 1:
        raise InvalidShapeError(f"sparse_add takes CSR, data of rank 1; found rank {sparse_data.ndim}")
    rows, columns = get_const_tuple(dense_data.shape)
    if get_const_int(sparse_indptr.shape[0]) != rows + 1:
        raise InvalidShapeError(
            f"sparse_add: {rows} rows have an indptr of {rows + 1} elements, found {sparse_indptr.shape[0]}"
        )

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        dense, values, places, starts = (ib.buffer_ptr(i) for i in ins)
        target = ib.buffer_ptr(outs[0])
        with ib.for_range(0, rows, name="row", kind="parallel") as row:
            with ib.for_range(0, columns, name="c") as c:
                target[row * columns + c] = dense[row * columns + c]
            with ib.for_range(starts[row], starts[row + 1], name="k") as k:
                at = ib.let("at", row * columns + ops.cast("int32", places[k]))
                target[at] = target[at] + values[k]
        return ib.get()

    inputs = [dense_data, sparse_data, sparse_indices, sparse_indptr]
    return te.extern(
        [(rows, columns)], inputs, loops, dtype=[dense_data.dtype], name="sparse_add", tag="sparse_add_csr"
    )


__all__ = ["sparse_add", "sparse_dense", "sparse_dense_sp_lhs", "sparse_dense_sp_rhs", "sparse_transpose"]
