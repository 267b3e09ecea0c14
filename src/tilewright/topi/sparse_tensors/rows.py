"""Products with sparse matrices in compressed rows (CSR), whose extents may be known only when they run.

The elements of row r are ``data[k]`` in the columns ``indices[k]``, k from ``indptr[r]`` to ``indptr[r + 1]``. A sparse
matrix is anything with these three placeholders and ``shape``, as ``tvm.contrib.sparse.placeholder`` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tilewright import te
from tilewright.ir import prim_ops as ops
from tilewright.tir import ir_builder
from tilewright.topi.loops import each
from tilewright.topi.utils import InvalidShapeError


class Rows(Protocol):
    """A sparse matrix as placeholders."""

    shape: Sequence[Any]
    data: te.Tensor
    indices: te.Tensor
    indptr: te.Tensor


def _is_sparse(matrix: Any) -> bool:
    return all(hasattr(matrix, part) for part in ("data", "indices", "indptr"))


Place = Callable[[Any, Any], Any]


def _product(
    name: str,
    sparse: Rows,
    dense: te.Tensor,
    bias: te.Tensor | None,
    shape: Sequence[Any],
    others: Any,
    read: Place,
    write: Place,
    added: Place = lambda row, i: row,
) -> te.Tensor:
    """Sum the elements of each row of ``sparse`` times elements of ``dense``, for each of ``others`` vectors of it.

    Args:
        shape: of the result.
        read: the place in ``dense``, by vector and column.
        write: the place in the result, by row and vector; ``added`` that in the bias.
    """
    rows, dtype = sparse.shape[0], dense.dtype

    def loops(ins: list[Any], outs: list[Any]) -> Any:
        ib = ir_builder.create()
        values, places, starts, other, *biases = (ib.buffer_ptr(b) for b in ins)
        target = ib.buffer_ptr(outs[0])
        with each(ib, rows, "row", "parallel") as row, ib.for_range(0, others, name="vector") as i:
            total = ib.allocate(dtype, (1,), name="total", scope="local")
            total[0] = ops.const(0, dtype)
            with ib.for_range(starts[row], starts[row + 1], name="e") as e:
                total[0] = total[0] + values[e] * other[read(i, ops.cast("int32", places[e]))]
            target[write(row, i)] = total[0] + biases[0][added(row, i)] if biases else total[0]
        return ib.get()

    inputs = [sparse.data, sparse.indices, sparse.indptr, dense, *([] if bias is None else [bias])]
    return te.extern([tuple(shape)], inputs, loops, dtype=[dtype], name=name, tag=name)


def _check(name: str, sparse: Any, dense: te.Tensor, bias: te.Tensor | None) -> None:
    if not _is_sparse(sparse):
        raise InvalidShapeError(f"{name} takes a matrix in compressed rows, with data, indices and indptr")
    if dense.ndim != 2 or len(sparse.shape) != 2 or (bias is not None and bias.ndim != 1):
        raise InvalidShapeError(f"{name} takes matrices, and a bias of one dimension")


def csrmm(a: Rows, b: te.Tensor, c: te.Tensor | None = None) -> te.Tensor:
    """Return the sparse ``a`` (m, k) times ``b`` (k, n), as (m, n), plus ``c`` (m,) in every column."""
    _check("csrmm", a, b, c)
    n = b.shape[1]
    return _product("csrmm", a, b, c, (a.shape[0], n), n, lambda i, k: k * n + i, lambda row, i: row * n + i)


def csrmv(a: Rows, x: te.Tensor, y: te.Tensor | None = None) -> te.Tensor:
    """Return the sparse ``a`` (m, k) times the column ``x`` (k, 1), as (m, 1), plus ``y`` (m,)."""
    _check("csrmv", a, x, y)
    return _product("csrmv", a, x, y, (a.shape[0], 1), 1, lambda _, k: k, lambda row, _: row)


def dense(data: Any, weight: Any, bias: te.Tensor | None = None) -> te.Tensor:
    """Return ``data`` (batch, k) times the transposed ``weight`` (out, k), as (batch, out), plus ``bias`` (out,).

    One of the two is a matrix in compressed rows.
    """
    if _is_sparse(data):
        _check("dense", data, weight, bias)
        out, k = weight.shape
        shape = (data.shape[0], out)
        return _product(
            "dense", data, weight, bias, shape, out, lambda i, at: i * k + at, lambda row, i: row * out + i,
            lambda row, i: i,
        )  # fmt: skip
    _check("dense", weight, data, bias)
    (batch, k), out = data.shape, weight.shape[0]
    return _product(
        "dense", weight, data, bias, (batch, out), batch, lambda i, at: i * k + at, lambda row, i: i * out + row
    )
