"""Products with matrices in compressed rows, of extents that are known only when they run, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.contrib import sparse
from tilewright.topi.utils import InvalidShapeError

Array = np.ndarray[Any, Any]


def numbers(*shape: int, dtype: str = "float32") -> Array:
    """Small whole numbers, exact in every dtype."""
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("columns", "dtype"), [(1, "float32"), (3, "int64")])
def test_products_of_unknown_rows(columns: int, dtype: str, biased: bool) -> None:
    rows, count = te.var("rows"), te.var("count")
    a = sparse.placeholder((rows, 7), count, dtype, "A")
    b, c = te.placeholder((7, columns), dtype, name="B"), te.placeholder((rows,), dtype, name="C")
    compute = topi.sparse.csrmv if columns == 1 else topi.sparse.csrmm
    made = compute(a, b, c if biased else None)
    matrix, dense, bias = numbers(5, 7, dtype=dtype), numbers(7, columns, dtype=dtype), numbers(5, dtype=dtype)
    given = sparse.array(matrix)
    kernel = tvm.build(te.create_schedule(made.op), [a.data, a.indices, a.indptr, b, c, made], "llvm")
    result = tvm.nd.empty((5, columns), dtype)
    kernel(given.data, given.indices, given.indptr, tvm.nd.array(dense), tvm.nd.array(bias), result)
    np.testing.assert_array_equal(result.numpy(), matrix @ dense + (bias[:, None] if biased else 0))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("sparse_data", [False, True])
def test_dense_layers(sparse_data: bool, biased: bool) -> None:
    count = te.var("count")
    data, weight, bias = numbers(3, 5), numbers(2, 5), numbers(2)
    full, thin = (weight, data) if sparse_data else (data, weight)
    a = sparse.placeholder(thin.shape, count, "float32", "A")
    b, c = te.placeholder(full.shape, "float32", name="B"), te.placeholder((2,), "float32", name="C")
    made = topi.sparse.dense(*((a, b) if sparse_data else (b, a)), c if biased else None)
    given = sparse.array(thin)
    kernel = tvm.build(te.create_schedule(made.op), [a.data, a.indices, a.indptr, b, c, made], "llvm")
    result = tvm.nd.empty((3, 2), "float32")
    kernel(given.data, given.indices, given.indptr, tvm.nd.array(full), tvm.nd.array(bias), result)
    np.testing.assert_array_equal(result.numpy(), data @ weight.T + (bias if biased else 0))


def test_what_is_not_sparse_is_refused() -> None:
    a = te.placeholder((3, 5), name="A")
    with pytest.raises(InvalidShapeError, match="csrmm takes a matrix in compressed rows"):
        topi.sparse.csrmm(a, a)


def test_random_matrices_of_blocks() -> None:
    pytest.importorskip("scipy")
    from tilewright.topi.sparse.utils import random_bsr_matrix

    made = random_bsr_matrix(64, 32, 8, 1, 0.25, "float32")
    assert made.shape == (64, 32) and made.data.shape == (65, 8, 1)
    assert np.count_nonzero(made.toarray()) == 65 * 8
    with pytest.raises(ValueError, match="do not divide"):
        random_bsr_matrix(64, 32, 7, 1, 0.25, "float32")
