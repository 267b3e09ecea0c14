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
    steps, record = math.prod(windows.steps), cpu.processor.matrix_tiles

    def time(rows: int, columns: int) -> float:
        tiles, each = even_rows(columns)
        step = 1 - record.row_share + record.row_share * max(each, SIDE // 2) / SIDE
        lone = 1.5 if block // SIDE < 4 and rows * tiles % 2 else 1.0  # fewer than four sums wait for one another
        return (rows * tiles * step * lone * steps + record.call_time * SIDE / block) * SIDE / (rows * columns)

    if kernel[0] >= cpu.cores and math.prod(out) * block * 4 <= record.whole_sums:
        blocks = [(out[0], out[1])]
    else:
        most = record.most_sums // (4 * block)
        blocks = [
            (rows, columns)
            for columns in divisors_up_to(out[1], most)
            for rows in divisors_up_to(out[0], most // columns if columns == out[1] else 1)
        ]
    if not blocks:
        return None
    best = min(blocks, key=lambda b: (time(*b), b))
    share = steps * windows.depth / DEPTH / time(*best)
    return WindowTiles(*best, time(*best)) if share >= record.least_share * windows.group / WORD else None


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
    copying = chunks * words * WORD / DEPTH * cpu.processor.matrix_tiles.copy_time / (channels * block)
    padding = copying if computed < 1 else 0.0
    return apart is None or merged.time + copying * kh * kw * copied < apart.time + padding
