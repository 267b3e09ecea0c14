"""Choice of the blocks of a convolution that AMX's tiles compute: how many rows, columns and channels.

Times are of a position and 16 channels, in those of one step of 64 bytes in whole tiles: a cycle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.target.features import CpuFeatures
from tilewright.topi.cpu.byte_tiles import Windows, has_tiles
from tilewright.topi.cpu.model.tiling import divisors_up_to
from tilewright.topi.cpu.tile_code import DEPTH, SIDE, WORD, even_rows

# A product of tiles of r rows, loads included, takes max(8, r) / 16 of this and 1 - this besides: Sapphire Rapids at
# 3.6 GHz, 2 x 2 tiles from the first cache in ns: r = 16 17.9, 14 17.3, 12 16.5, 10 15.5, 8 15.3, 3 15.2.
_ROW_SHARE = 0.3
_MOST_SUMS = 32 << 10  # bytes of a block, which are read again at once
_WHOLE_SUMS = 64 << 10  # of all positions, where a block of channels then reads its weights once, and fetches the next
_LEAST_SHARE = 0.2  # of the tiles' peak, below which vector registers are as fast: of bytes theirs is an eighth
_COPY_TIME = 51.0  # of a step's bytes, by the products with so many channels that take as long
TILE_TIME = 1 / 8  # of bfloat16, by that of float32 in vectors: the peak is a 16th, of which kernels reach a half
_CALL_TIME = 6.0  # of a kernel's configuration, in products of tiles


@dataclass(frozen=True)
class WindowTiles:
    """Rows and columns of the result that are computed together, and the time of all steps of a position."""

    rows: int
    columns: int
    time: float


def window_tiles(
    cpu: CpuFeatures, out: Sequence[int], kernel: Sequence[int], dilated: bool = False, dtype: str = "uint8"
) -> WindowTiles | None:
    """Return the blocks of a convolution in packed channels; None where vector registers are as fast.

    Parameters
    ----------
    out : height and width of the result
    kernel : (O, C / groups, kh, kw, c / 4, o, 4), of bfloat16 (..., c / 2, o, 2)
    dilated : whether the elements of a window's row are apart
    dtype : of the data
    """
    if not has_tiles(cpu, dtype) or not all(isinstance(n, int) and n > 0 for n in (*out, *kernel)):
        return None
    _, chunks, kh, kw, words, block, group = kernel
    windows = Windows(1, 1, block, chunks, words * WORD, (kh, kw), (1, 1), (1, 2 if dilated else 1), dtype=dtype)
    if block % SIDE or group != windows.group:
        return None
    steps = math.prod(windows.steps)

    def time(rows: int, columns: int) -> float:
        tiles, each = even_rows(columns)
        step = 1 - _ROW_SHARE + _ROW_SHARE * max(each, SIDE // 2) / SIDE
        lone = 1.5 if block // SIDE < 4 and rows * tiles % 2 else 1.0  # fewer than four sums wait for one another
        return (rows * tiles * step * lone * steps + _CALL_TIME * SIDE / block) * SIDE / (rows * columns)

    if kernel[0] >= cpu.cores and math.prod(out) * block * 4 <= _WHOLE_SUMS:
        blocks = [(out[0], out[1])]
    else:
        most = _MOST_SUMS // (4 * block)
        blocks = [
            (rows, columns)
            for columns in divisors_up_to(out[1], most)
            for rows in divisors_up_to(out[0], most // columns if columns == out[1] else 1)
        ]
    if not blocks:
        return None
    best = min(blocks, key=lambda b: (time(*b), b))
    share = steps * windows.depth / DEPTH / time(*best)
    return WindowTiles(*best, time(*best)) if share >= _LEAST_SHARE * windows.group / WORD else None


def are_rows_merged(
    cpu: CpuFeatures, out: Sequence[int], kernel: Sequence[int], copied: bool, computed: float, dtype: str = "uint8"
) -> bool | None:
    """Return whether to merge all rows of a convolution's result to one; None where tiles fit in neither case.

    ``copied``: whether the windows have to be copied next to one another first; ``computed``: the share of products
    that are not of padding.
    """
    channels, chunks, kh, kw, words, block, byte = kernel
    apart = window_tiles(cpu, out, kernel, dtype=dtype)
    one_row = channels, chunks * kh * kw, 1, 1, words, block, byte
    merged = window_tiles(cpu, (1, math.prod(out)), one_row, dtype=dtype)
    if merged is None:
        return None if apart is None else False
    copying = chunks * words * WORD / DEPTH * _COPY_TIME / (channels * block)
    padding = copying if computed < 1 else 0.0
    return apart is None or merged.time + copying * kh * kw * copied < apart.time + padding
