"""Tile size of three-dimensional Winograd convolutions, as programs for TVM 0.8 ask for it."""

from __future__ import annotations

from typing import Any

from tilewright.topi.utils import get_const_tuple


def _infer_tile_size(data: Any, kernel: Any) -> int:
    """Return the edge of the result tiles: 4 if the rows of ``data`` (NCDHW) are multiples of 8, else 2."""
    return 4 if get_const_tuple(data.shape)[3] % 8 == 0 else 2


__all__ = ["_infer_tile_size"]
