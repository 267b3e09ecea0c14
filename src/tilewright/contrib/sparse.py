"""Matrices in compressed sparse rows, by the names of ``tvm.contrib.sparse``: their arrays, and their placeholders.

The values that are not 0, row after row, are ``data``, and their columns ``indices``; those of row ``i`` are from
``indptr[i]`` on and before ``indptr[i + 1]``. ``topi.sparse`` computes with placeholders of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te, tir
from tilewright.ir.errors import TilewrightError
from tilewright.runtime import Device, NDArray
from tilewright.runtime import array as dense_array

itype = "int32"


class CSRNDArray:
    """A matrix in compressed sparse rows.

    Args:
        arg1: a numpy matrix, or ``(data, indices, indptr)`` as arrays of the runtime, the last two of int32 or int64.
        device: where the arrays of a numpy matrix go.
        shape: of the matrix, where ``arg1`` does not tell.

    Raises:
        TilewrightError: ``arg1`` is none of these, or does not fit together.
    """

    stype = "csr"

    def __init__(self, arg1: Any, device: Device | None = None, shape: Sequence[int] | None = None) -> None:
        if isinstance(arg1, tuple) and len(arg1) == 3 and all(isinstance(part, NDArray) for part in arg1):
            self.data, self.indices, self.indptr = arg1
            if shape is None:
                raise TilewrightError("which shape has a matrix of (data, indices, indptr)? Give shape=(rows, columns)")
            self.shape = tuple(int(extent) for extent in shape)
            self._check()
        elif isinstance(arg1, np.ndarray) and arg1.ndim == 2:
            rows, columns = np.nonzero(arg1)
            ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=arg1.shape[0]))])
            self.data = dense_array(arg1[rows, columns], device)
            self.indices = dense_array(columns.astype(itype), device)
            self.indptr = dense_array(ends.astype(itype), device)
            self.shape = arg1.shape
        else:
            raise TilewrightError(
                "a sparse matrix is made of a numpy matrix or of (data, indices, indptr) as tvm.nd.arrays, "
                f"not of {type(arg1).__name__}"
            )
        self.dtype = self.data.dtype

    def _check(self) -> None:
        indexes = {self.indices.dtype, self.indptr.dtype}
        if not indexes <= {"int32", "int64"}:
            raise TilewrightError(f"indices and indptr are int32 or int64, not {', '.join(sorted(indexes))}")
        if self.indptr.shape != (self.shape[0] + 1,) or self.indices.shape != self.data.shape:
            raise TilewrightError(
                f"a matrix of shape {self.shape} has indptr of shape ({self.shape[0] + 1},), as many indices as data; "
                f"found {self.indptr.shape}, {self.indices.shape} and {self.data.shape}"
            )

    def numpy(self) -> np.ndarray[Any, Any]:
        """The whole matrix, with its zeros."""
        full = np.zeros(self.shape, self.dtype)
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr.numpy()))
        full[rows, self.indices.numpy()] = self.data.numpy()
        return full

    asnumpy = numpy


def array(
    source_array: Any, device: Device | None = None, shape: Sequence[int] | None = None, stype: str = "csr"
) -> CSRNDArray:
    """Create a sparse matrix: see :class:`CSRNDArray`, the only storage type."""
    _check_storage(stype)
    return CSRNDArray(source_array, device, shape)


class SparsePlaceholderOp:
    """Base of placeholders of sparse matrices."""

    stype = "unknown"

    def __init__(self, shape: Sequence[Any], nonzeros: Any, dtype: str, name: str) -> None:
        """Declare a matrix; ``shape`` and the number of values that are not 0 may be expressions."""
        self.shape, self.dtype, self.name = shape, dtype, name


class CSRPlaceholderOp(SparsePlaceholderOp):
    """A matrix in compressed sparse rows: the placeholders ``data``, ``indices`` and ``indptr``."""

    stype = "csr"

    def __init__(self, shape: Sequence[Any], nonzeros: Any, dtype: str, name: str) -> None:
        super().__init__(shape, nonzeros, dtype, name)
        self.data = te.placeholder((nonzeros,), dtype, f"{name}_data")
        self.indices = te.placeholder((nonzeros,), itype, f"{name}_indices")
        self.indptr = te.placeholder((shape[0] + 1,), itype, f"{name}_indptr")


def placeholder(
    shape: Any, nonzeros: Any = None, dtype: str | None = None, name: str = "placeholder", stype: str | None = None
) -> CSRPlaceholderOp:
    """Create a placeholder of a sparse matrix, float32 by default."""
    _check_storage("csr" if stype is None else stype)
    extents = (shape,) if isinstance(shape, tir.PrimExpr) else tuple(shape)
    return CSRPlaceholderOp(extents, 0 if nonzeros is None else nonzeros, dtype or "float32", name)


def _check_storage(stype: str) -> None:
    if stype != "csr":
        raise TilewrightError(f"sparse matrices are in compressed rows, stype='csr', not {stype!r}")
