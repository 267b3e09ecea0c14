"""Tiling of windows and images for Winograd's method, and the matrices of its transforms.

``results`` sums of ``taps`` products each are computed from ``inputs`` neighbouring elements with ``inputs`` products
instead of results * taps: polynomials are multiplied by their values at that many points (Toom and Cook). For the same
points, more results mean fewer taps: inputs = results + taps - 1. A longer window is split into ``groups`` of taps,
each with inputs that begin ``taps`` further on; their products are added up before the inverse transform: seven taps
are two groups of four, which take 4 products for a result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tilewright.topi.nn.linear_forms import Matrix
from tilewright.topi.utils import steps_over

# For a number of inputs: B^T; and of all points but infinity, which comes last, the value and what G multiplies its
# row with.
_POINTS: dict[int, tuple[tuple[float, float], ...]] = {
    1: (),
    4: ((0, 1), (1, 1 / 2), (-1, 1 / 2)),
    6: ((0, 1 / 4), (1, -1 / 6), (-1, -1 / 6), (2, 1 / 24), (-2, 1 / 24)),
    8: ((0, 1), (1, -2 / 9), (-1, -2 / 9), (2, 1 / 90), (-2, 1 / 90), (1 / 2, 32 / 45), (-1 / 2, 32 / 45)),
}
_INPUT_TRANSFORMS: dict[int, Matrix] = {
    1: ((1,),),
    4: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
    6: (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    8: (
        (1, 0, -21 / 4, 0, 21 / 4, 0, -1, 0),
        (0, 1, 1, -17 / 4, -17 / 4, 1, 1, 0),
        (0, -1, 1, 17 / 4, -17 / 4, -1, 1, 0),
        (0, 1 / 2, 1 / 4, -5 / 2, -5 / 4, 2, 1, 0),
        (0, -1 / 2, 1 / 4, 5 / 2, -5 / 4, -2, 1, 0),
        (0, 2, 4, -5 / 2, -5, 1 / 2, 1, 0),
        (0, -2, 4, 5 / 2, -5, -1 / 2, 1, 0),
        (0, -1, 0, 21 / 4, 0, -21 / 4, 0, 1),
    ),
}
TILE_SIZES = tuple(inputs - 2 for inputs in _POINTS if inputs > 1)  # named by the results for windows of three


@dataclass(frozen=True)
class Split:
    """One dimension of window and image: ``groups`` of ``taps``, computing ``results`` at a time."""

    results: int
    taps: int
    groups: int

    @property
    def inputs(self) -> int:
        """Inputs of a tile, for each group."""
        return self.results + self.taps - 1

    @property
    def reach(self) -> int:
        """Input elements that a tile reads beyond its results."""
        return self.groups * self.taps - 1

    @property
    def input_transform(self) -> Matrix:
        """B^T, (inputs, inputs)."""
        return _INPUT_TRANSFORMS[self.inputs]

    @property
    def weight_transform(self) -> Matrix:
        """G, (inputs, taps)."""
        points = [tuple(scale * value**k for k in range(self.taps)) for value, scale in _POINTS[self.inputs]]
        return (*points, tuple(float(k == self.taps - 1) for k in range(self.taps)))

    @property
    def output_transform(self) -> Matrix:
        """A^T, (results, inputs)."""
        values = [value for value, _ in _POINTS[self.inputs]]
        return tuple((*(value**k for value in values), float(k == self.results - 1)) for k in range(self.results))


@dataclass(frozen=True)
class Form:
    """Both dimensions: ``height`` and ``width``."""

    height: Split
    width: Split

    @property
    def results(self) -> tuple[int, int]:
        """Rows and columns of a result tile."""
        return self.height.results, self.width.results

    @property
    def inputs(self) -> tuple[int, int]:
        """Rows and columns of a transformed input tile, which are the positions too."""
        return self.height.inputs, self.width.inputs

    @property
    def positions(self) -> int:
        """Products for each tile, input and output channel."""
        return math.prod(self.inputs)

    @property
    def groups(self) -> int:
        """Groups of taps: the factor by which the products sum more input channels."""
        return self.height.groups * self.width.groups

    def __str__(self) -> str:
        return "x".join(map(str, self.results))


def split_window(extent: int, tile_size: int) -> Split:
    """Return the split with the fewest products per result; among equals, the one with the most results."""
    if extent == 1:
        return Split(1, 1, 1)
    inputs = tile_size + 2
    splits = [Split(inputs - taps + 1, taps, -(-extent // taps)) for taps in range(2, min(extent, inputs - 1) + 1)]
    return min(splits, key=lambda split: (split.groups / split.results, -split.results))


def winograd_form(window: tuple[int, int], tile_size: int) -> Form:
    """Return the form of a convolution with ``window``, computed from ``tile_size + 2`` inputs at a time.

    Along a dimension of one tap, tiles have one row or column.
    """
    return Form(split_window(window[0], tile_size), split_window(window[1], tile_size))


def winograd_tiles(form: Form, out: tuple[Any, Any], dilation: tuple[int, int] = (1, 1)) -> tuple[Any, Any]:
    """Return the tiles along the height and the width of results ``out``, or of one grid of a dilated convolution."""
    grid = (steps_over(extent, step) for extent, step in zip(out, dilation, strict=True))
    height, width = (steps_over(extent, results) for extent, results in zip(grid, form.results, strict=True))
    return height, width
