"""Analytic cost model that chooses between direct and Winograd convolutions, and the blocks of the latter.

Times are in vector multiply-adds at the peak of one core, summed over all cores.
``python -m benchmarks.kernels`` prints the model's error beside every measured kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.target.features import CpuFeatures, features
from tilewright.target.target import Target
from tilewright.topi.cpu.model.float_tiles import float_tiles
from tilewright.topi.cpu.model.tiling import choose_channel_tile, divisors_up_to, step_registers, tile_cost, tile_rate
from tilewright.topi.cpu.tile_code import SIDE
from tilewright.topi.nn.winograd_forms import Form, winograd_form, winograd_tiles
from tilewright.topi.utils import rounded


@dataclass(frozen=True)
class Blocking:
    """Extents in tiles of a block and of a register tile, channel registers, and splits of the channels.

    A task computes one part of the output channels of one block of tiles. It transforms the block's inputs itself,
    which costs less than fetching them from another core. ``cost`` is the modelled time.
    """

    block_h: int
    block_w: int
    rows: int
    columns: int
    vectors: int
    parts: int
    cost: float = 0.0

    @property
    def extents(self) -> tuple[int, ...]:
        """All fields but the cost, in the constructor's order."""
        return self.block_h, self.block_w, self.rows, self.columns, self.vectors, self.parts

    def __str__(self) -> str:
        registers = f"{self.rows} x {self.columns} x {self.vectors}"
        return f"{self.block_h} x {self.block_w} in registers of {registers}, {self.parts} parts"


@dataclass(frozen=True)
class _Work:
    """A convolution: ``positions`` products for each tile, ``tiles`` of an image, ``out_chunks`` vectors of results.

    ``in_channels``: inputs that an output channel sums, each counted once for each group of taps. Channels are in
    ``groups``.
    """

    cpu: CpuFeatures
    positions: int
    tiles: tuple[int, int]
    in_channels: int
    out_chunks: int
    batch: int
    groups: int

    @property
    def weight_bytes(self) -> int:
        """Size of the transformed weights."""
        return self.positions * self.in_channels * self.out_chunks * self.cpu.lanes(32) * 4

    def input_bytes(self, tiles: int) -> int:
        """Return the size of ``tiles`` transformed input tiles of one group."""
        return self.positions * self.in_channels * tiles * 4


def winograd_blockings(
    cpu: CpuFeatures,
    form: Form,
    tiles: tuple[int, int],
    in_channels: int,
    out_chunks: int,
    batch: int = 1,
    groups: int = 1,
) -> list[Blocking]:
    """Return ways to block a convolution, the cheapest first.

    Parameters
    ----------
    tiles : tiles along the height and the width of an image
    in_channels : inputs that an output channel sums
    out_chunks : output channels, in vector registers
    """
    winograd = cpu.processor.winograd
    work = _Work(cpu, form.positions, tiles, form.groups * in_channels, out_chunks, batch, groups)
    candidates = [
        _cost(work, (block_h, block_w), register_tile, parts)
        for register_tile in _register_tiles(work)
        for block_w in _block_extents(tiles[1], register_tile[1])
        for block_h in _block_extents(tiles[0], register_tile[0])
        for parts in divisors_up_to(
            groups if groups > 1 else out_chunks // register_tile[2], winograd.most_parts * cpu.cores
        )
    ]
    return sorted(candidates, key=lambda blocking: blocking.cost)


def winograd_ways(
    cpu: CpuFeatures,
    form: Form,
    out: tuple[int, int],
    in_channels: int,
    out_chunks: int,
    batch: int = 1,
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> list[Blocking]:
    """Return ``winograd_blockings`` for results of size ``out``; a dilation splits them into a batch of grids."""
    tiles = winograd_tiles(form, out, dilation)
    return winograd_blockings(cpu, form, tiles, in_channels, out_chunks, batch * math.prod(dilation), groups)


def _register_tiles(work: _Work) -> list[tuple[int, int, int]]:
    """Return, for each number of channel vectors, the tile shape that loses least at the edges of an image."""
    cpu, chosen = work.cpu, []
    (tiles_h, tiles_w), registers = work.tiles, cpu.vector_registers - step_registers(cpu)
    for vectors in divisors_up_to(work.out_chunks // work.groups, 4):
        limit = max(1, registers // vectors - 1)
        times = {
            (rows, columns): _rate(cpu, rows * columns, vectors) * rounded(tiles_h, rows) * rounded(tiles_w, columns)
            for columns in range(min(tiles_w, limit), 0, -1)
            for rows in range(1, min(tiles_h, limit // columns) + 1)
        }
        rows, columns = min(times, key=lambda tile: times[tile])
        chosen.append((rows, columns, vectors))
    return chosen


def _rate(cpu: CpuFeatures, tiles: int, vectors: int) -> float:
    """Return the time of one multiply-add of the products."""
    return tile_rate(cpu, tiles, vectors, cpu.processor.winograd.weight_reuse)


def _block_extents(extent: int, step: int) -> list[int]:
    """Return multiples of ``step`` that cut ``extent`` into blocks of about equal size, one for each
    number of blocks.
    """
    steps = -(-extent // step)
    return [step * size for size in dict.fromkeys(-(-steps // count) for count in range(1, steps + 1))]


def _cost(work: _Work, block: tuple[int, int], register_tile: tuple[int, int, int], parts: int) -> Blocking:
    """Return the cost of a blocking: the products, the weights and inputs read meanwhile, and the transforms."""
    cpu, (rows, columns, vectors) = work.cpu, register_tile
    winograd = cpu.processor.winograd
    lanes, groups = cpu.lanes(32), work.out_chunks // vectors
    blocks = work.batch * math.prod(-(-extent // size) for extent, size in zip(work.tiles, block, strict=True))
    tiles = block[0] * block[1]
    steps = blocks * tiles * work.positions
    products = steps * work.in_channels * work.out_chunks * _rate(cpu, rows * columns, vectors)
    input_bytes = work.input_bytes(tiles)
    memory = work.weight_bytes / winograd.memory_bytes
    moved = (blocks - 1) * work.weight_bytes * _time_of_bytes(cpu, work.weight_bytes)
    moved += blocks * groups * input_bytes * _time_of_bytes(cpu, input_bytes)
    slower, faster = max(products, memory + moved), min(products, memory + moved)
    # Parts of the channels of one group transform the same inputs; parts that are groups have inputs of their own.
    transformed = (parts if work.groups == 1 else work.groups) * work.in_channels
    transforms = steps * (transformed / lanes + work.out_chunks) * dict(winograd.transform_times)[work.positions]
    tasks = blocks * parts
    balance = -(-tasks // cpu.cores) * cpu.cores / tasks
    cost = (slower + winograd.overlap_loss * faster + transforms) * balance
    return Blocking(*block, rows, columns, vectors, parts, cost)


def _time_of_bytes(cpu: CpuFeatures, size: int) -> float:
    """Return the time per byte to reread ``size`` bytes; 0 in the core's own caches."""
    winograd = cpu.processor.winograd
    if size <= cpu.l2_bytes:
        return 0.0
    return 1 / winograd.cache_bytes if size <= cpu.l3_bytes // 2 else 1 / winograd.memory_bytes


def winograd_tile_sizes(
    channels: tuple[int, int, int], dtype: str, tile_sizes: Sequence[int], groups: int = 1
) -> Sequence[int]:
    """Return the ``tile_sizes`` that suit the convolution: all for float32 channels in whole vectors,
    otherwise none.
    """
    lanes, (_, in_channels, out_channels) = features().lanes(32), channels
    fit = dtype == "float32" and in_channels % lanes == 0 and out_channels // groups % lanes == 0
    return tile_sizes if fit else ()


def choose_winograd_tile(
    channels: tuple[int, int, int],
    out: tuple[int, int],
    inside: float,
    dtype: str,
    tile_sizes: Sequence[int],
    target: Target,
    dilation: tuple[int, int] = (1, 1),
    window: tuple[int, int] = (3, 3),
    groups: int = 1,
) -> int | None:
    """Return the tile size of Winograd's method that the model finds fastest; None without a clear gain.

    Parameters
    ----------
    channels : (batch, input channels that each output channel sums, output channels)
    out : height and width of the output
    inside : share of the direct method's products that are not products with padding
    """
    cpu = features(target)
    lanes = cpu.lanes(32)
    batch, in_channels, out_channels = channels
    if dtype != "float32" or in_channels % lanes or out_channels // groups % lanes or min(*out, batch) < 1:
        return None
    chunks = out_channels // lanes
    forms = {m: winograd_form(window, m) for m in tile_sizes}
    costs = {
        m: winograd_ways(cpu, form, out, in_channels, chunks, batch, dilation, groups)[0].cost
        for m, form in forms.items()
    }
    best = min(costs, key=lambda m: costs[m], default=None)
    direct = direct_cost(cpu, channels, out, math.prod(window), inside)
    if groups == 1:
        direct = min(direct, batch * _cost_in_tiles(cpu, math.prod(out), out_channels, math.prod(window) * in_channels))
    return best if best is not None and costs[best] * cpu.processor.winograd.clear_gain < direct else None


def _cost_in_tiles(cpu: CpuFeatures, positions: int, out_channels: int, inner: int) -> float:
    """Return the modelled time of the direct method in matrix tiles; infinity where vector registers are faster."""
    tiles = float_tiles(cpu, positions, out_channels, inner)
    if tiles is None or not tiles.is_faster or cpu.lanes(32) != SIDE:
        return math.inf
    return tiles.time / (SIDE * cpu.processor.matrix_tiles.fma_time)


def direct_cost(
    cpu: CpuFeatures, channels: tuple[int, int, int], out: tuple[int, int], window: int, inside: float = 1.0
) -> float:
    """Return the modelled time of the direct convolution, in the unit of ``Blocking.cost``.

    Parameters
    ----------
    channels : (batch, input channels that each output channel sums, output channels)
    out : height and width of the output
    window : elements of the kernel's window
    inside : share of the products that are not products with padding, which are left out
    """
    winograd = cpu.processor.winograd
    lanes = cpu.lanes(32)
    batch, in_channels, out_channels = channels
    chunks = max(1, out_channels // lanes)
    tile = choose_channel_tile(cpu, out[1], chunks, lanes, lanes)
    work = window * in_channels * chunks
    products = batch * work * out[0] * out[1] * inside * tile_cost(cpu, out[1], tile)
    memory = work * lanes * 4 / winograd.memory_bytes
    return max(products, memory) + winograd.direct_overlap_loss * min(products, memory)
