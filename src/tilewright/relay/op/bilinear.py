"""Values of images between their pixels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

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


def sampled(image: Array, points: Sequence[Array], method: str, padding_mode: str, align_corners: bool) -> Array:
    """Values of ``image`` (channels, ...) at points whose coordinates, axis by axis, are from -1 to 1."""
    taps = [
        _taps(np.asarray(p, "float64"), n, method, padding_mode, align_corners)
        for p, n in zip(points, image.shape[1:], strict=True)
    ]
    result = np.zeros((image.shape[0], *np.shape(points[0])))
    for chosen in itertools.product(*taps):
        weight = np.prod([w for _, w, _ in chosen], axis=0)
        inside = np.all([found for _, _, found in chosen], axis=0)
        where: tuple[Any, ...] = (slice(None), *(index for index, _, _ in chosen))
        pixels = image[where] if image.size else 0
        result += np.where(inside, weight * pixels, 0)
    return result


def _taps(
    at: Array, extent: int, method: str, padding_mode: str, align_corners: bool
) -> list[tuple[Array, Array, Array]]:
    """Pixels along one axis, their weights, and where they are inside."""
    low, high = (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)
    at = low + (at + 1) * (high - low) / 2
    at = np.rint(at) if method == "nearest" else at

    def mirrored(x: Array) -> Array:
        if high == low:
            return np.full_like(x, low)
        turn = np.abs(x - low) % (2 * (high - low))
        return low + np.minimum(turn, 2 * (high - low) - turn)

    if padding_mode == "border":
        at = np.where((at < low) | (at > high), np.clip(at, 0, extent - 1), at)
    elif padding_mode == "reflection":
        at = mirrored(at)
    floor = np.floor(at)
    t = at - floor
    weights = {"nearest": [np.ones_like(at)], "bilinear": [1 - t, t]}.get(method) or _cubic(t)
    first = at if method == "nearest" else floor - (method == "bicubic")
    found = []
    for i, weight in enumerate(weights):
        index = first + i
        inside = (index >= 0) & (index < extent) | (padding_mode != "zeros")
        index = mirrored(index) if padding_mode == "reflection" else index
        found.append((np.clip(np.rint(index), 0, max(extent - 1, 0)).astype(int), weight, inside))
    return found


def _cubic(t: Array) -> list[Array]:
    """Weights of four pixels by Keys' kernel."""
    a = -0.75
    near = lambda x: (a + 2) * x**3 - (a + 3) * x**2 + 1  # noqa: E731
    far = lambda x: a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a  # noqa: E731
    return [far(1 + t), near(t), near(1 - t), far(2 - t)]
