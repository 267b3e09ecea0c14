"""Flattening to (batch, features)."""

from __future__ import annotations

from tilewright import te
from tilewright.topi.transform import reshape
from tilewright.topi.utils import get_const_tuple, prod, simplify


def flatten(data: te.Tensor) -> te.Tensor:
    """Reshape (n, a, b, ...) to (n, a * b * ...)."""
    batch, *rest = get_const_tuple(data.shape)
    return reshape(data, (batch, simplify(prod(rest))))
