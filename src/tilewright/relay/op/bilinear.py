"""Interpolation between the pixels of images."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.relay.op.families import Array

# For each pixel along one axis that a value is made of: its index, its weight, and where it is inside.
Taps = list[tuple[Array, Array, Array]]


def bilinear(image: Array, y: Array, x: Array) -> Array:
    """Interpolate ``image`` (channels, height, width) at the points (y, x) between four pixels; outside it is 0."""
    places = zip((y, x), image.shape[1:], strict=True)
    return _summed(image, [_taps(at, extent, "bilinear", "zeros", True) for at, extent in places])


def sampled(image: Array, points: Sequence[Array], method: str, padding_mode: str, align_corners: bool) -> Array:
    """Interpolate ``image`` (channels, ...) at points whose coordinates, axis by axis, are from -1 to 1."""
    taps = []
    for point, extent in zip(points, image.shape[1:], strict=True):
        low, high = _ends(extent, align_corners)
        at = low + (np.asarray(point, "float64") + 1) * (high - low) / 2
        taps.append(_taps(at, extent, method, padding_mode, align_corners))
    return _summed(image, taps)


def _summed(image: Array, taps: Sequence[Taps]) -> Array:
    """Add up the pixels of all combinations of taps, by their weights."""
    result = np.zeros((image.shape[0], *taps[0][0][0].shape))
    for chosen in itertools.product(*taps):
        weight = np.prod([w for _, w, _ in chosen], axis=0)
        inside = np.all([found for _, _, found in chosen], axis=0)
        where: tuple[Any, ...] = (slice(None), *(index for index, _, _ in chosen))
        pixels = image[where] if image.size else 0
        result += np.where(inside, weight * pixels, 0)
    return result


def _ends(extent: int, align_corners: bool) -> tuple[float, float]:
    """Return the pixel coordinates of -1 and 1."""
    return (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)


def _taps(at: Array, extent: int, method: str, padding_mode: str, align_corners: bool) -> Taps:
    """Return the taps of the pixel coordinates ``at``: indices and weights."""
    low, high = _ends(extent, align_corners)
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
    """Return the weights of four pixels by Keys' kernel."""
    a = -0.75
    near = lambda x: (a + 2) * x**3 - (a + 3) * x**2 + 1  # noqa: E731
    far = lambda x: a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a  # noqa: E731
    return [far(1 + t), near(t), near(1 - t), far(2 - t)]
