"""Block-sparse matrices (BSR): only blocks that are not zero are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.runtime.ndarray import NDArray, array


def in_blocks(
    name: str, matrix: np.ndarray[Any, Any], blocksize: Sequence[int], threshold: float
) -> dict[str, NDArray] | None:
    """Return ``NAME.data`` (blocks, rows, columns), ``NAME.indices`` and ``NAME.indptr`` of a matrix.

    None where ``blocksize`` does not divide it, or less than ``threshold`` of its elements would be left out.
    """
    rows, columns = blocksize
    if matrix.ndim != 2 or matrix.shape[0] % rows or matrix.shape[1] % columns or not matrix.size:
        return None
    blocks = matrix.reshape(matrix.shape[0] // rows, rows, matrix.shape[1] // columns, columns).swapaxes(1, 2)
    filled = blocks.any(axis=(2, 3))
    if not filled.any() or 1 - filled.mean() < threshold:
        return None
    ends = np.concatenate([[0], np.cumsum(filled.sum(axis=1))])
    return {
        f"{name}.data": array(np.ascontiguousarray(blocks[filled])),
        f"{name}.indices": array(np.nonzero(filled)[1].astype("int32")),
        f"{name}.indptr": array(ends.astype("int32")),
    }


def shape_of(name: str, parts: dict[str, NDArray]) -> list[int]:
    """Return the shapes of the three arrays, one after the other, as the passes take them."""
    return [extent for part in ("data", "indices", "indptr") for extent in parts[f"{name}.{part}"].shape]
