"""Sources of the elements of a resized axis, as ONNX's Resize defines them: indices and weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
# Scales are float32 in the file, and 5 / 6 of 6 is 5 in float32 alone: sizes and places are what ONNX Runtime has.
NARROW = "float32"
# Places this close to the middle between two elements are in the middle, as in ONNX Runtime.
NEAR_HALF = 1e-6
Floats = np.ndarray[Any, np.dtype[np.float64]]


def scaled_size(extent: int, scale: float, share: float = 1.0) -> int:
    """Return how many elements ``share`` of an axis has at ``scale``: the product in float32, rounded down."""
    return math.floor(np.float32(extent) * np.float32(scale) * np.float32(share))


@dataclass(frozen=True)
class Axis:
    """An axis to resize: extents before and after, the scale, and the region of interest (from 0 to 1)."""

    extent: int
    size: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    def changes(self, coordinates: str) -> bool:
        """Return whether anything but a copy is asked for."""
        return self.size != self.extent or self.scale != 1.0 or coordinates == "tf_crop_and_resize"

    def coordinates(self, mode: str) -> Floats:
        """Return the input coordinate of every element of the output, computed in float32 where that divides."""
        x, half, scale = np.arange(self.size, dtype=np.float64), np.float32(0.5), np.float32(self.scale)
        centred = (x.astype(NARROW) + half) / scale - half
        match mode:
            case "half_pixel":
                return centred.astype(np.float64)
            case "half_pixel_symmetric":
                adjustment = self.size / (self.scale * self.extent)
                return self.extent / 2 * (1 - adjustment) + (x + 0.5) / self.scale - 0.5
            case "pytorch_half_pixel":
                return centred.astype(np.float64) if self.size > 1 else np.zeros(1)
            case "align_corners":
                # By the exact length, size or not: 4 elements at the scale 0.6 are 2.4 long.
                length = self.scale * self.extent
                return x * (self.extent - 1) / (length - 1) if length > 1 else np.zeros(self.size)
            case "tf_crop_and_resize":
                if self.size == 1:
                    return np.full(1, 0.5 * (self.start + self.end) * (self.extent - 1))
                step = (self.end - self.start) * (self.extent - 1) / (self.size - 1)
                return self.start * (self.extent - 1) + x * step
            case _:
                return (x.astype(NARROW) / scale).astype(np.float64)

    def outside(self, mode: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which elements of the output lie outside the input, and take the extrapolation value."""
        if mode != "tf_crop_and_resize":
            return np.zeros(self.size, dtype=bool)
        places = self.coordinates(mode)
        return (places < 0) | (places > self.extent - 1)


def nearest_indices(axis: Axis, coordinates: str, rounding: str) -> list[int]:
    """Return the index of the input element that each element of the output copies."""
    places = axis.coordinates(coordinates)
    rounded = {
        "round_prefer_floor": np.ceil(places - 0.5 - NEAR_HALF),
        "round_prefer_ceil": np.floor(places + 0.5 + NEAR_HALF),
        "floor": np.floor(places),
        "ceil": np.ceil(places),
    }[rounding]
    return [int(i) for i in np.clip(rounded, 0, axis.extent - 1)]


def weights(axis: Axis, mode: str, coordinates: str, a: float, antialias: bool, exclude_outside: bool) -> Floats:
    """Return the matrix (size, extent) of the weight of each input element in each output element.

    ``a`` is the parameter of the cubic kernel (Keys 1981). With ``antialias`` the kernel widens when the axis
    shrinks. With ``exclude_outside``, elements beyond the edge have weight 0; otherwise the edge repeats.
    """
    places = axis.coordinates(coordinates)
    stretch = min(axis.scale, 1.0) if antialias else 1.0
    reach = (1 if mode == "linear" else 2) / stretch
    matrix = np.zeros((axis.size, axis.extent))
    for row, place in enumerate(places):
        first, last = math.floor(place - reach) + 1, math.ceil(place + reach) - 1
        if not antialias and mode == "linear":
            first, last = math.floor(place), math.floor(place) + 1
        taps = np.arange(first, last + 1)
        kernel = _linear if mode == "linear" else _cubic
        values = kernel((taps - place) * stretch, a)
        if exclude_outside:
            values = np.where((taps < 0) | (taps >= axis.extent), 0.0, values)
        if (antialias or exclude_outside) and (total := values.sum()):
            values = values / total
        np.add.at(matrix[row], np.clip(taps, 0, axis.extent - 1), values)
    return matrix


def _linear(distance: Floats, a: float) -> Floats:
    return np.maximum(1 - np.abs(distance), 0.0)


def _cubic(distance: Floats, a: float) -> Floats:
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))
