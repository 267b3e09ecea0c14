"""Computes on sparse tensors; TVM's name of this package is ``topi.sparse``.

coordinates   tensors as lists of indices, and search in sorted rows: ``topi`` itself shows these
rows          products with matrices in compressed rows
utils         random matrices of blocks
"""

from tilewright.topi.sparse_tensors.coordinates import *  # noqa: F403
from tilewright.topi.sparse_tensors.coordinates import __all__ as _of_coordinates
from tilewright.topi.sparse_tensors.rows import csrmm as csrmm
from tilewright.topi.sparse_tensors.rows import csrmv as csrmv
from tilewright.topi.sparse_tensors.rows import dense as dense

__all__ = list(_of_coordinates)
