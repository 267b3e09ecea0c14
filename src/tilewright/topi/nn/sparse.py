"""Sparse matrices, and products and sums with them.

CSR: the elements of row r are ``data[k]`` in the columns ``indices[k]``, k from ``indptr[r]`` to ``indptr[r + 1]``.
BSR has blocks instead of elements: ``data`` (blocks, rows, columns), and r counts rows of blocks.
"""

from __future__ import annotations

from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.target.generic_func import generic_func
from tilewright.tir import ir_builder
from tilewright.topi.loops import each, thread_group
from tilewright.topi.utils import InvalidShapeError, get_const_int, get_const_tuple


def _block(data: te.Tensor) -> tuple[int, int]:
    """Return the rows and columns of a block; (1, 1) for CSR."""
    if data.ndim not in (1, 3):
        raise InvalidShapeError(f"a sparse matrix has data of rank 1 (CSR) or 3 (BSR), found rank {data.ndim}")
    return (1, 1) if data.ndim == 1 else (get_const_int(data.shape[1]), get_const_int(data.shape[2]))


def check_csr(name: str, data: te.Tensor) -> None:
    """Refuse a BSR matrix."""
    if data.ndim != 1:
        raise InvalidShapeError(f"{name} takes CSR, data of rank 1; found rank {data.ndim}")


def sparse_dense(
    dense_data: te.Tensor,
    sparse_data: te.Tensor,
    sparse_indices: te.Tensor,
    sparse_indptr: te.Tensor,
    sparse_lhs: bool = False,
) -> te.Tensor:
    """Compute ``dense_data`` (m, k) times the transposed sparse (n, k), as (m, n); with ``sparse_lhs`` its transpose.

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
        with thread_group(ib, blocks, lead, "block", "parallel") as threads:
            block = threads.row
            first, last = ib.let("first", starts[block]), ib.let("last", starts[block + 1])
            with threads.each(lead, "i") as i:
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
    """Compute ``data`` (m, k) times the transposed sparse weight (n, k)."""
    return sparse_dense(data, weight_data, weight_indices, weight_indptr)


def sparse_dense_sp_lhs(
    data_data: te.Tensor, data_indices: te.Tensor, data_indptr: te.Tensor, weight: te.Tensor
) -> te.Tensor:
    """Compute the sparse data (m, k) times the transposed ``weight`` (n, k)."""
    return sparse_dense(weight, data_data, data_indices, data_indptr, True)


def _window(kernel_size: Any) -> int:
    """Return the half-width of a square window around a pixel."""
    sizes = {int(k) for k in (kernel_size if isinstance(kernel_size, (list, tuple)) else [kernel_size])}
    if len(sizes) != 1 or min(sizes) < 1 or min(sizes) % 2 == 0:
        raise InvalidShapeError(f"sparse_conv2d has a square kernel of odd size, such as 1 or 3; found {kernel_size}")
    return sizes.pop()


def sparse_conv2d(
    dense_data: te.Tensor,
    sparse_data: te.Tensor,
    sparse_indices: te.Tensor,
    sparse_indptr: te.Tensor,
    layout: str = "NHWC",
    kernel_size: Any = 1,
) -> te.Tensor:
    """Compute a stride-1 convolution with a sparse weight, zero-padded to the size of ``dense_data``.

    Parameters
    ----------
    dense_data : (n, height, width, channels), or (n, channels, height, width) with ``layout`` NCHW
    sparse_data, sparse_indices, sparse_indptr : the weight as a matrix in CSR or BSR; rows are output channels, and
        columns are (kernel_size, kernel_size, channels), or (channels, kernel_size, kernel_size) with NCHW, flattened.
        ``sparse_data`` of rank 2 has blocks of one column.
    kernel_size : odd
    """
    if layout not in ("NHWC", "NCHW"):
        raise InvalidShapeError(f"sparse_conv2d takes the layouts NHWC and NCHW, found {layout!r}")
    k, last = _window(kernel_size), layout == "NHWC"
    rows, columns = (get_const_int(sparse_data.shape[1]), 1) if sparse_data.ndim == 2 else _block(sparse_data)
    shape = get_const_tuple(dense_data.shape)
    n, height, width, channels = shape if last else (shape[0], *shape[2:], shape[1])
    blocks = get_const_int(sparse_indptr.shape[0]) - 1
    total, pixels, dtype = blocks * rows, height * width, dense_data.dtype

    def read(dense: Any, image: Any, y: Any, x: Any, column: Any) -> Any:
        """Return the element that a column of the weight multiplies at a pixel."""
        tap, channel = (column // channels, column % channels) if last else (column % (k * k), column // (k * k))
        y, x = y + tap // k - k // 2, x + tap % k - k // 2
        at = ((image * height + y) * width + x) * channels + channel
        at = at if last else ((image * channels + channel) * height + y) * width + x
        if k == 1:
            return dense[at]
        return tir.if_then_else(tir.all(y >= 0, y < height, x >= 0, x < width), dense[at], ops.const(0, dtype))

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        dense, values, places, starts = (ib.buffer_ptr(i) for i in ins)
        target = ib.buffer_ptr(outs[0])
        with thread_group(ib, blocks, n * pixels, "block", "parallel") as threads:
            block = threads.row
            first, end = ib.let("first", starts[block]), ib.let("end", starts[block + 1])
            with threads.each(n * pixels, "i") as i:
                image, y, x = i // pixels, i % pixels // width, i % width
                sums = ib.allocate(dtype, (rows,), name="sums", scope="local")
                with ib.for_range(0, rows, name="r") as r:
                    sums[r] = ops.const(0, dtype)
                with ib.for_range(first, end, name="e") as e:
                    base = ib.let("base", ops.cast("int32", places[e]) * columns)
                    with ib.for_range(0, columns, name="c") as c:
                        value = ib.let("x", read(dense, image, y, x, base + c))
                        with ib.for_range(0, rows, name="r") as r:
                            sums[r] = sums[r] + values[(e * rows + r) * columns + c] * value
                with ib.for_range(0, rows, name="r") as r:
                    at = block * rows + r
                    target[i * total + at if last else (image * total + at) * pixels + i % pixels] = sums[r]
        return ib.get()

    result = (n, height, width, total) if last else (n, total, height, width)
    inputs = [dense_data, sparse_data, sparse_indices, sparse_indptr]
    return te.extern([result], inputs, loops, dtype=[dtype], name="sparse_conv2d", tag="sparse_conv2d")


@generic_func
def sparse_transpose(sparse_data: te.Tensor, sparse_indices: te.Tensor, sparse_indptr: te.Tensor) -> list[te.Tensor]:
    """Transpose a square matrix in CSR; the result's columns are sorted in each row.

    Returns data (nonzeros,), indices (nonzeros,) and indptr (n + 1,), the last two int32.
    """
    check_csr("sparse_transpose", sparse_data)
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
            # What indptr says twice, or not at all, finds no room.
            first = ib.let("first", ops.cast("int32", starts[row]))
            with ib.for_range(0, ops.cast("int32", starts[row + 1]) - first, name="k") as k:
                column = ib.let("column", columns[first + k])
                place = ib.let("place", free[column])
                with ib.if_scope(place < count):
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
    """Add a CSR matrix to ``dense_data`` (m, n)."""
    check_csr("sparse_add", sparse_data)
    rows, columns = get_const_tuple(dense_data.shape)
    if get_const_int(sparse_indptr.shape[0]) != rows + 1:
        raise InvalidShapeError(
            f"sparse_add: {rows} rows have an indptr of {rows + 1} elements, found {sparse_indptr.shape[0]}"
        )

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        dense, values, places, starts = (ib.buffer_ptr(i) for i in ins)
        target = ib.buffer_ptr(outs[0])
        with each(ib, rows, "row", "parallel") as row:
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


__all__ = [
    "sparse_add",
    "sparse_conv2d",
    "sparse_dense",
    "sparse_dense_sp_lhs",
    "sparse_dense_sp_rhs",
    "sparse_transpose",
]
