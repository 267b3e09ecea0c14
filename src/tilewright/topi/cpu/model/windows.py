"""Bands of rows and tiles of columns for depthwise convolutions and pools."""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright import te
from tilewright.autotvm.task.choices import choose
from tilewright.ir import dtype as dt
from tilewright.topi.cpu.common import (
    constant_extent,
    element_count,
    machine,
    measured,
    vector_lanes,
)
from tilewright.topi.cpu.model.tiling import even_tile


def window_tile(rows: int, columns: int, window: int, vectors: int = 1) -> tuple[int, int]:
    """Return the rows of a band and the columns of a tile for a result of ``rows`` x ``columns``.

    ``window``: columns of a window. ``vectors``: registers that a block of channels takes.
    """
    band, width = _band_height(max(rows, 1)), _tile_width(columns, window, vectors)
    bands = [n for n in (1, 2, 4, 7, 8, 14, 16, 28) if n <= rows]
    widths = [even_tile(columns, n) for n in (1, 2, 4, 6, 8, 12, 16, 24) if n <= columns]
    return choose("band_rows", bands, band), choose("tile_columns", widths, width)


def _band_height(rows: int) -> int:
    """Return how many rows of a channel block a thread computes at a time: few, with an even number of bands.

    Pairs are shared out evenly by two threads, and by any even number of them where there are several blocks.
    """
    fitting = [d for d in range(1, measured().convolution.most_band_rows + 1) if rows % d == 0]
    return max([d for d in fitting if rows // d % 2 == 0] or fitting)


def _tile_width(columns: int, window: int, vectors: int) -> int:
    """Return how many positions of a row to compute at a time: tiles of about equal size that leave registers for
    loads.
    """
    most = max(1, machine().vector_registers // 2 // vectors)
    return even_tile(columns, min(most, 8) if window <= measured().convolution.narrow_window else most)


def band_tile(out: Any, data: te.Tensor, most: int) -> tuple[int, int]:
    """Return the rows of a band and the columns of a tile, at most ``most``, for packed windows of ``data``.

    A thread that starts anew elsewhere in memory waits for some 0.8 us. So threads take whole planes, unless these are
    large or few.
    """
    pooling = measured().pooling
    planes, (rows, width) = prod(constant_extent(a) or 1 for a in out.axis[:2]), out.axis[2:4]
    plane = (element_count(data) or 0) * dt.nbytes(data.dtype) // planes
    bands, missing = plane // pooling.long_band, -(-pooling.bands_per_core * machine().cores // planes)
    bands = 1 if max(bands, missing) <= 1 else 2 * -(-max(bands, missing) // 2)
    bands = choose("bands", [1, 2, 4, 8], bands)
    most = choose("widest_tile", [1, 2, 4, 8, 14, 28], most)
    return -(-(constant_extent(rows) or 1) // bands), even_tile(constant_extent(width) or 1, most)


def reads_past_border(columns: Any, dtype: str) -> bool:
    """Return whether ``columns`` should read the data directly instead of a padded copy: small planes with long rows.

    LLVM vectorises the inside of a row, at any alignment, but writes rows out that are shorter than two vectors.
    """
    convolution = measured().convolution
    width = constant_extent(columns.axis[-1]) or 0
    few = (constant_extent(columns.reduce_axis[0]) or convolution.most_taps) <= convolution.most_taps
    fits = plane_bytes(columns, len(columns.axis) - 2) <= machine().l1_bytes
    return few and fits and width > 2 * vector_lanes(dtype)


def plane_bytes(op: Any, leading: int) -> int:
    """Return the bytes that ``op`` computes for one index of its ``leading`` axes."""
    return prod(constant_extent(a) or 1 for a in op.axis[leading:]) * dt.nbytes(op.output(0).dtype)
