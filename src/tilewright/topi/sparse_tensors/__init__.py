"""Computes on sparse tensors; TVM's name of this package is ``topi.sparse``.

coordinates   tensors as lists of indices, and search in sorted rows: ``topi`` itself shows these
rows          products with matrices in compressed rows
utils         random matrices of blocks
"""

from tilewright.topi.sparse_tensors.coordinates import searchsorted, sparse_reshape, sparse_to_dense
from tilewright.topi.sparse_tensors.rows import csrmm as csrmm
from tilewright.topi.sparse_tensors.rows import csrmv as csrmv
from tilewright.topi.sparse_tensors.rows import dense as dense

__all__ = ["searchsorted", "sparse_reshape", "sparse_to_dense"]
