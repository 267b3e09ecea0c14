"""Matrices in compressed sparse rows, against numpy and scipy's layout written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.contrib import sparse
from tilewright.ir.errors import TilewrightError


@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (7, 5), (0, 3), (3, 0)])
@pytest.mark.parametrize("density", [0.0, 0.4, 1.0])
def test_a_matrix_is_what_it_was(shape: tuple[int, int], density: float) -> None:
    rng = np.random.default_rng(1)
    dense = np.where(rng.random(shape) < density, rng.uniform(1, 2, shape), 0).astype("float32")
    made = sparse.array(dense, tvm.cpu())
    assert made.shape == shape and made.dtype == "float32" and made.stype == "csr"
    assert made.data.shape[0] == np.count_nonzero(dense)
    np.testing.assert_array_equal(made.numpy(), dense)


def test_rows_lie_one_after_the_other() -> None:
    made = sparse.array(np.array([[0, 5, 6], [0, 0, 0], [7, 0, 0]], "float64"))
    assert made.data.numpy().tolist() == [5, 6, 7]
    assert made.indices.numpy().tolist() == [1, 2, 0]
    assert made.indptr.numpy().tolist() == [0, 2, 2, 3]
    again = sparse.CSRNDArray((made.data, made.indices, made.indptr), shape=(3, 3))
    np.testing.assert_array_equal(again.numpy(), made.numpy())


def test_a_kernel_multiplies_by_a_vector() -> None:
    rows, count = te.var("rows"), te.var("count")
    matrix = sparse.placeholder((rows, 4), nonzeros=count, name="a")
    vector = te.placeholder((4,), name="x")

    def multiply(data, indices, indptr, x, out):  # type: ignore[no-untyped-def]
        ib = tir.ir_builder.create()
        d, c, p, v, y = (ib.buffer_ptr(buffer) for buffer in (data, indices, indptr, x, out))
        with ib.for_range(0, rows) as i:
            y[i] = tir.const(0.0, "float32")
            with ib.for_range(0, p[i + 1] - p[i]) as j:
                y[i] = y[i] + d[p[i] + j] * v[c[p[i] + j]]
        return ib.get()

    operands = [matrix.data, matrix.indices, matrix.indptr, vector]
    out = te.extern((rows,), operands, lambda ins, outs: multiply(*ins, outs[0]), dtype="float32")
    built = tvm.build(te.create_schedule(out.op), [*operands, out], "llvm")
    dense = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0, 4]], "float32")
    x = np.array([1, 2, 3, 4], "float32")
    a, result = sparse.array(dense), tvm.nd.empty((3,))
    built(a.data, a.indices, a.indptr, tvm.nd.array(x), result)
    np.testing.assert_array_equal(result.numpy(), dense @ x)


def test_what_is_no_sparse_matrix_is_refused() -> None:
    with pytest.raises(TilewrightError, match="not of list"):
        sparse.array([[1.0]])
    with pytest.raises(TilewrightError, match="stype='csr', not 'coo'"):
        sparse.placeholder((3, 3), stype="coo")
    a = sparse.array(np.eye(3, dtype="float32"))
    with pytest.raises(TilewrightError, match="shape=\\(rows, columns\\)"):
        sparse.array((a.data, a.indices, a.indptr))
    with pytest.raises(TilewrightError, match=r"shape \(4, 3\) has indptr of shape \(5,\)"):
        sparse.array((a.data, a.indices, a.indptr), shape=(4, 3))
