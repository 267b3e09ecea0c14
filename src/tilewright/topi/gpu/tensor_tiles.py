"""Tile sizes for tensor cores: blocks, warps, and the 16 x 16 matrices that each warp holds in registers."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.ir import dtype as dt
from tilewright.target.gpu import GpuLimits, architecture
from tilewright.target.target import Target
from tilewright.topi import nn
from tilewright.topi.gpu.kernel_clocks import BY_WARPS, Step, copies
from tilewright.topi.gpu.kernel_clocks import clocks as kernel_clocks
from tilewright.topi.gpu.tensor_intrin import SIDE
from tilewright.topi.gpu.tiles import Product

_FIRST = {"float16": 70, "int8": 75, "uint8": 75, "bfloat16": 80, "float32": 80}  # architecture that multiplies them
_WARP = 32


@dataclass(frozen=True)
class TensorTile:
    """A block of ``rows`` x ``columns`` results in steps of ``depth``, by ``warps_y`` x ``warps_x`` warps."""

    rows: int
    columns: int
    depth: int
    warps_y: int
    warps_x: int

    @property
    def fragments(self) -> tuple[int, int]:
        """Matrices of a warp along the rows and along the columns."""
        return self.rows // SIDE // self.warps_y, self.columns // SIDE // self.warps_x

    @property
    def registers(self) -> int:
        """Approximate registers of a thread."""
        y, x = self.fragments
        return 8 * y * x + 8 * (y + x) + 72

    def shared_bytes(self, size: int, buffers: int = 1) -> int:
        """Return the shared memory of a block in bytes: both tiles, and a matrix of sums for each warp."""
        tiles = sum(max(self.depth * padded(n, size), n * padded(self.depth, size)) for n in (self.rows, self.columns))
        tiles *= size * buffers
        return tiles + self.warps_y * self.warps_x * SIDE * SIDE * 4


def padded(extent: int, size: int) -> int:
    """Return the row pitch, in elements, of rows of ``extent`` elements in shared memory.

    It is an odd number of 16 bytes, so that any 8 rows have their first 16 bytes in different banks.
    """
    wide = 16 // size
    return -(-extent // wide) * wide if -(-extent // wide) % 2 else (-(-extent // wide) + 1) * wide


def multiplies(dtype: str, number: int) -> bool:
    """Return whether tensor cores of architecture ``number`` multiply ``dtype``."""
    return number >= _FIRST.get(dtype, 1 << 16)


@nn.tensor_cores_take.provide("gpu")
def tensor_cores_take_gpu(dtype: str) -> bool:
    """Return ``multiplies`` for the current target."""
    target = Target.current()
    return target is not None and multiplies(dtype, architecture(target))


def supported(product: Product, number: int) -> bool:
    """Return whether tensor cores of architecture ``number`` take these factors, and the sizes fill matrices."""
    full = min(product.rows, product.columns) >= SIDE and product.depth >= SIDE // 2
    return full and multiplies(product.dtype, number)


def candidates(product: Product, limits: GpuLimits) -> Iterator[TensorTile]:
    """Yield the tiles of ``product`` that the processor allows."""
    sides = (16, 32, 64, 128)
    for rows, columns, depth, y, x in itertools.product(sides, sides, (16, 32, 64), (1, 2, 4), (1, 2, 4)):
        if rows % (SIDE * y) or columns % (SIDE * x) or y * x > 8:
            continue
        if any(block > SIDE and block // 2 >= n for block, n in ((rows, product.rows), (columns, product.columns))):
            continue
        if depth > SIDE and depth // 2 >= product.depth:
            continue
        tile = TensorTile(rows, columns, depth, y, x)
        if _idle_warps(product.rows, rows, y) or _idle_warps(product.columns, columns, x):
            continue
        size = dt.nbytes(product.dtype)
        if tile.shared_bytes(size) <= limits.shared_per_block and tile.registers <= limits.registers_per_thread:
            yield tile


def _idle_warps(extent: int, block: int, warps: int) -> bool:
    """Return whether the only block along an axis has warps past its end: threads' loops are as long as the axis."""
    return block >= extent and -(-extent // (block // warps)) < warps


def occupancy(tile: TensorTile, size: int, limits: GpuLimits) -> int:
    """Return how many blocks a multiprocessor runs at once."""
    threads = _WARP * tile.warps_y * tile.warps_x
    return min(
        limits.blocks_per_core,
        limits.threads_per_core // threads,
        limits.registers_per_core // (threads * tile.registers),
        limits.shared_per_core // (tile.shared_bytes(size) + 1024),
    )


def clocks(tile: TensorTile, product: Product, limits: GpuLimits) -> float:
    """Estimate the clock cycles of ``product`` in this tile (:mod:`tilewright.topi.gpu.kernel_clocks`)."""
    size = dt.nbytes(product.dtype)
    together = occupancy(tile, size, limits)
    if not together or not limits.tensor_fp16_per_clock:
        return math.inf
    (y, x), warps = tile.fragments, tile.warps_y * tile.warps_x
    blocks = product.batch * -(-product.rows // tile.rows) * -(-product.columns // tile.columns)
    steps = -(-product.depth // tile.depth)
    step = Step(
        warps=warps,
        peak=4 * tile.depth * y * x * SIDE**2 / limits.tensor_per_clock(product.dtype),
        reads=tile.depth * (y + x) / SIDE,
        read_lines=tile.depth * (y + x) * SIDE * size / 128,
        copies=copies((tile.rows * tile.depth, tile.columns * tile.depth), warps * _WARP, product.lanes(tile.depth)),
        bytes=(tile.rows + tile.columns) * tile.depth * size,
    )
    return max(kernel_clocks(BY_WARPS, limits, blocks, together, steps, step), product.least_clocks(limits))


@functools.lru_cache(maxsize=1024)
def ranked(product: Product, limits: GpuLimits) -> tuple[TensorTile, ...]:
    """Return the tiles, the fastest by the model first."""
    found = sorted(candidates(product, limits), key=lambda t: (clocks(t, product, limits), t.rows * t.columns, t.depth))
    return tuple(found)
