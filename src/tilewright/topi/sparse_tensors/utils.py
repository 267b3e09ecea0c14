"""Random matrices whose elements that are not 0 lie in blocks."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np


def random_bsr_matrix(m: int, n: int, bs_r: int, bs_c: int, density: float, dtype: str) -> Any:
    """Return a ``scipy.sparse.bsr_matrix`` of normal numbers in random blocks; numpy's seed decides which.

    Args:
        m, n: rows and columns.
        bs_r, bs_c: rows and columns of a block, which divide ``m`` and ``n``.
        density: the share of elements in blocks, from 0 to 1; one block more is filled, unless all are.

    Raises:
        ValueError: the blocks do not divide the matrix.
    """
    if m % bs_r or n % bs_c:
        raise ValueError(f"blocks of {bs_r} x {bs_c} do not divide a matrix of {m} x {n}")
    grid = (m // bs_r, n // bs_c)
    total = grid[0] * grid[1]
    count = min(int(density * m * n / (bs_r * bs_c)) + 1, total)
    rows, columns = np.unravel_index(np.sort(np.random.choice(total, count, replace=False)), grid)
    data = np.random.standard_normal((count, bs_r, bs_c)).astype(dtype)
    starts = np.searchsorted(rows, np.arange(grid[0] + 1)).astype("int32")
    scipy_sparse = importlib.import_module("scipy.sparse")  # which only this function needs
    return scipy_sparse.bsr_matrix((data, columns.astype("int32"), starts), shape=(m, n))
