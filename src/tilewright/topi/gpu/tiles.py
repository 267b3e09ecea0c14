"""Tiling of a matrix product into blocks, threads and registers, with a cost model of the chip.

A block computes ``rows`` x ``columns`` results in steps of ``depth`` of the sum; a thread has ``thread_rows`` x
``thread_columns`` of them in registers, in pieces of ``row_piece`` x ``column_piece`` neighbours, which are as far
apart as all threads of the block take for one piece each::

    rows = row_pieces * threads_y * row_piece          row m of a block: piece m // (threads_y * row_piece),
                                                       thread m // row_piece % threads_y, place m % row_piece

So neighbouring threads read neighbouring pieces of shared memory, 16 bytes each, without bank conflicts.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.ir import dtype as dt
from tilewright.target.gpu import GpuLimits
from tilewright.topi.gpu.kernel_clocks import BY_THREADS, Step, copies, vector_lanes
from tilewright.topi.gpu.kernel_clocks import clocks as kernel_clocks

_PIECE_BYTES = 16  # the longest load of a thread
_WARP = 32
_OTHER_REGISTERS = 40  # of a thread, for addresses and what is being loaded


@dataclass(frozen=True)
class Tile:
    """One tiling; see the head of this file."""

    rows: int
    columns: int
    depth: int
    thread_rows: int
    thread_columns: int
    row_piece: int
    column_piece: int

    @property
    def threads(self) -> tuple[int, int]:
        """Threads along the rows and along the columns."""
        return self.rows // self.thread_rows, self.columns // self.thread_columns

    @property
    def pieces(self) -> tuple[int, int]:
        """Pieces of a thread along the rows and along the columns."""
        return self.thread_rows // self.row_piece, self.thread_columns // self.column_piece

    @property
    def registers(self) -> int:
        """Approximate registers of a thread."""
        return self.thread_rows * self.thread_columns + self.thread_rows + self.thread_columns + _OTHER_REGISTERS

    def shared_bytes(self, size: int, buffers: int = 1) -> int:
        """Return the shared memory of a block, in bytes, for elements of ``size`` bytes."""
        return self.depth * (self.rows + self.columns + 8) * size * buffers


@dataclass(frozen=True)
class Product:
    """A product: ``batch`` times (rows, depth) by (depth, columns) matrices."""

    batch: int
    rows: int
    columns: int
    depth: int
    dtype: str
    depth_next: tuple[bool, bool] = (False, False)
    """Whether neighbours in memory are along the depth, of the first and of the second matrix."""

    def lanes(self, depth: int) -> tuple[int, int]:
        """Return how many elements of each factor one load takes, where a tile has ``depth`` of them in a row."""
        size = dt.nbytes(self.dtype)
        first, second = (vector_lanes(size, depth, self.depth, following) for following in self.depth_next)
        return first, second

    def least_clocks(self, limits: GpuLimits) -> float:
        """Return the clock cycles in which the memory delivers both factors once."""
        size = dt.nbytes(self.dtype)
        return self.batch * (self.rows + self.columns) * self.depth * size / (limits.memory_rate / limits.clock)

    @property
    def multiply_adds(self) -> int:
        """All multiply-adds of the product."""
        return self.batch * self.rows * self.columns * self.depth


def candidates(product: Product, limits: GpuLimits) -> Iterator[Tile]:
    """Yield the tiles of ``product`` that the processor allows."""
    size = max(1, dt.nbytes(product.dtype))
    longest = max(1, min(4, _PIECE_BYTES // size))
    for thread_rows, thread_columns in itertools.product((1, 2, 4, 8), repeat=2):
        for threads_y, threads_x in itertools.product((1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16, 32, 64)):
            rows, columns = thread_rows * threads_y, thread_columns * threads_x
            if not min(32, product.rows * product.columns) <= threads_y * threads_x <= limits.threads_per_block:
                continue
            if _too_much(rows, product.rows) or _too_much(columns, product.columns) or max(rows, columns) > 128:
                continue
            for depth in (4, 8, 16, 32):
                if depth > max(4, 2 * product.depth):
                    continue
                tile = Tile(rows, columns, depth, thread_rows, thread_columns, min(thread_rows, longest),
                            min(thread_columns, longest))  # fmt: skip
                if tile.shared_bytes(size) <= limits.shared_per_block and tile.registers <= limits.registers_per_thread:
                    yield tile


def _too_much(block: int, extent: int) -> bool:
    """Return whether half of a block's rows would suffice."""
    return block > 1 and block // 2 >= max(1, extent)


def occupancy(tile: Tile, size: int, limits: GpuLimits, buffers: int = 1) -> int:
    """Return how many blocks a multiprocessor runs at once; 0 when none fits."""
    threads = math.prod(tile.threads)
    warps = -(-threads // limits.warp) * limits.warp
    return min(
        limits.blocks_per_core,
        limits.threads_per_core // warps,
        limits.registers_per_core // (warps * tile.registers),
        limits.shared_per_core // (tile.shared_bytes(size, buffers) + 1024),
    )


def clocks(tile: Tile, product: Product, limits: GpuLimits) -> float:
    """Estimate the clock cycles of ``product`` in this tile (:mod:`tilewright.topi.gpu.kernel_clocks`)."""
    size = dt.nbytes(product.dtype)
    together = occupancy(tile, size, limits)
    if together == 0:
        return math.inf
    threads = math.prod(tile.threads)
    blocks = product.batch * -(-product.rows // tile.rows) * -(-product.columns // tile.columns)
    steps = -(-product.depth // tile.depth)
    step = Step(
        warps=-(-threads // _WARP),
        peak=tile.depth * tile.thread_rows * tile.thread_columns * 4 * _WARP / limits.fp32_per_clock,
        reads=tile.depth * (tile.thread_rows / tile.row_piece + tile.thread_columns / tile.column_piece),
        read_lines=tile.depth * (tile.thread_rows + tile.thread_columns),
        copies=copies((tile.rows * tile.depth, tile.columns * tile.depth), threads, product.lanes(tile.depth)),
        bytes=(tile.rows + tile.columns) * tile.depth * size,
    )
    return max(kernel_clocks(BY_THREADS, limits, blocks, together, steps, step), product.least_clocks(limits))


@functools.lru_cache(maxsize=4096)
def ranked(product: Product, limits: GpuLimits) -> tuple[Tile, ...]:
    """Return the tiles, the fastest by the model first."""
    found = sorted(candidates(product, limits), key=lambda t: (clocks(t, product, limits), t.rows * t.columns, t.depth))
    return tuple(found)
