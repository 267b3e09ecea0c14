"""Matrix products."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def dense(
    x: Array, y: Array, bias: Array | None, use_bias: bool = False, use_relu: bool = False, out_dtype: str | None = None
) -> Array:
    """Compute ``x`` (m, k) times the transposed ``y`` (n, k), as (m, n), summed in ``out_dtype``."""
    dtype = out_dtype or x.dtype
    result = x.astype(dtype) @ y.T.astype(dtype)
    if use_bias:
        result = result + bias
    return np.maximum(result, 0) if use_relu else result


def batch_matmul(
    x: Array, y: Array, out_dtype: str | None = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    """Multiply two batches of matrices, each transposed if its flag is set; a batch of 1 broadcasts."""
    left, right = (a.astype(out_dtype or x.dtype) for a in (x, y))
    return (left.swapaxes(1, 2) if trans_x else left) @ (right.swapaxes(1, 2) if trans_y else right)
