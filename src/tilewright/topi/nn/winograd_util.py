"""Matrices of Winograd transforms as tensors, for convolutions that users write in te (TVM's ``winograd_util``).

For points p: ``y = A^T ((G g) * (B^T d))``, where row i of A and of G holds powers of p[i], G's divided by N_i(p[i]),
and column i of B the coefficients of N_i(x), the product of x - p[k] for all k but i. The last point is infinity.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.ir.errors import TilewrightError
from tilewright.topi.utils import const_matrix

_POINTS = (0, -1, 1, 1 / 2, -2, -1 / 2, 2, -1 / 4, 4, 1 / 4, -3 / 4, 4 / 3, -4)  # small errors first

Matrix = np.ndarray[Any, np.dtype[np.float64]]


def toom_cook_matrices(results: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
    """Return A (inputs, results), B (inputs, inputs) and G (inputs, taps), where inputs = results + taps - 1."""
    inputs = results + taps - 1
    points = _POINTS[: inputs - 1]
    if len(points) < inputs - 1:
        raise TilewrightError(f"Winograd with {inputs} inputs a tile is not accurate; take smaller tiles")
    a, b, g = np.zeros((inputs, results)), np.zeros((inputs, inputs)), np.zeros((inputs, taps))
    for i, point in enumerate(points):
        others = np.poly1d([1.0])
        for k, other in enumerate(points):
            if k != i:
                others = others * np.poly1d([1.0, -other])
        a[i] = [point**j for j in range(results)]
        g[i] = np.array([point**j for j in range(taps)]) / others(point)
        b[: inputs - 1, i] = others.coeffs[::-1]
    a[-1, -1] = g[-1, -1] = 1.0
    b[:, -1] = np.poly(points)[::-1]
    return a, b, g


def winograd_transform_matrices(tile_size: int, kernel_size: int, out_dtype: str) -> tuple[te.Tensor, ...]:
    """Return the matrices A, B and G for ``tile_size`` results of a window of ``kernel_size``, as constant tensors."""
    if not 1 < tile_size < 9:
        raise ValueError(f"Winograd takes tiles of 2 to 8 results, not {tile_size}")
    if not 2 < kernel_size < 8:
        raise ValueError(f"Winograd takes windows of 3 to 7, not {kernel_size}")
    matrices = toom_cook_matrices(tile_size, kernel_size)
    return tuple(const_matrix(m.astype(out_dtype), name) for m, name in zip(matrices, "ABG", strict=True))
