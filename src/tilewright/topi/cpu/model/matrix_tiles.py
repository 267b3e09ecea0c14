"""Choice of the blocks of a convolution that AMX's tiles compute: how many rows, columns and channels.

Times are of a position and 16 channels, in those of one step of 64 bytes in whole tiles: a cycle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import dtype as dt
from tilewright.target.features import CpuFeatures
from tilewright.topi.cpu.byte_tiles import Windows, has_tiles
from tilewright.topi.cpu.model.tiling import divisors_up_to
from tilewright.topi.cpu.tile_code import DEPTH, SIDE, WORD, even_rows


@dataclass(frozen=True)
class WindowTiles:
    """Rows and columns of the result that are computed together, and the time of all steps of a position.

    ``share``: of the tiles' peak.
    """

    rows: int
    columns: int
    time: float
    share: float

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


def window_tiles(
    cpu: CpuFeatures, out: Sequence[int], kernel: Sequence[int], dilated: bool = False, dtype: str = "uint8"
) -> WindowTiles | None:
    """Return the fastest of ``window_blocks``; None where vector registers are as fast."""
    found = window_blocks(cpu, out, kernel, dilated, dtype)
    least = cpu.processor.matrix_tiles.least_share / dt.nbytes(dtype)
    return found[0] if found and found[0].share >= least else None


def window_blocks(
    cpu: CpuFeatures, out: Sequence[int], kernel: Sequence[int], dilated: bool = False, dtype: str = "uint8"
) -> list[WindowTiles]:
    """Return the blocks in which tiles can compute a convolution of packed channels, the fastest first.

    Parameters
    ----------
    out : height and width of the result
    kernel : (O, C / groups, kh, kw, c / 4, o, 4), of bfloat16 (..., c / 2, o, 2)
    dilated : whether the elements of a window's row are apart
    dtype : of the data
    """
    if not has_tiles(cpu, dtype) or not all(isinstance(n, int) and n > 0 for n in (*out, *kernel)):
        return []
    _, chunks, kh, kw, words, block, group = kernel
    windows = Windows(1, 1, block, chunks, words * WORD, (kh, kw), (1, 1), (1, 2 if dilated else 1), dtype=dtype)
    if block % SIDE or group != windows.group:
        return []
    steps, record = math.prod(windows.steps), cpu.processor.matrix_tiles

    def made(rows: int, columns: int) -> WindowTiles:
        tiles, each = even_rows(columns)
        step = 1 - record.row_share + record.row_share * max(each, SIDE // 2) / SIDE
        lone = 1.5 if block // SIDE < 4 and rows * tiles % 2 else 1.0  # fewer than four sums wait for one another
        time = (rows * tiles * step * lone * steps + record.call_time * SIDE / block) * SIDE / (rows * columns)
        return WindowTiles(rows, columns, time, steps * windows.depth / DEPTH / time)

    most = record.most_sums // (4 * block)
    blocks = [
        made(rows, columns)
        for columns in divisors_up_to(out[1], most)
        for rows in divisors_up_to(out[0], most // columns if columns == out[1] else 1)
    ]
    blocks.sort(key=lambda b: (b.time, b.rows, b.columns))
    if kernel[0] < cpu.cores or math.prod(out) * block * 4 > record.whole_sums:
        return blocks
    whole = made(out[0], out[1])  # a block of channels then reads its weights once
    return [whole, *(b for b in blocks if b != whole)]


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
