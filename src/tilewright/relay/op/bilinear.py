"""Values of images between their pixels."""

from __future__ import annotations

import numpy as np

from tilewright.relay.op.families import Array


def bilinear(image: Array, y: Array, x: Array) -> Array:
    """Values of ``image`` (channels, height, width) at the points (y, x), between four pixels; outside they are 0."""
    height, width = image.shape[1:]
    top, left = np.floor(y).astype(int), np.floor(x).astype(int)
    result = np.zeros((image.shape[0], *y.shape))
    for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
        weight = (1 - np.abs(y - row)) * (1 - np.abs(x - column))
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        pixels = image[:, np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)] if image.size else 0
        result += np.where(inside, weight * pixels, 0)
    return result
