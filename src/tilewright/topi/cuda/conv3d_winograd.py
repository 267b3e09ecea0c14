"""What programs for TVM 0.8 ask before they pack a three-dimensional convolution's weights in Winograd's form."""

from __future__ import annotations

from typing import Any

from tilewright.topi.utils import get_const_tuple


def _infer_tile_size(data: Any, kernel: Any) -> int:
    """Edge of the tiles of results: 4 where the rows of ``data`` (NCDHW) are groups of 8, else 2."""
    return 4 if get_const_tuple(data.shape)[3] % 8 == 0 else 2


__all__ = ["_infer_tile_size"]
