"""Register tiles of convolutions and matrix products, chosen by a simple model of the processor.

A tile is ``spatial`` positions (output columns, or rows of a matrix) times ``vectors`` vector registers of output
channels. Every step of the reduction loads ``vectors`` weight registers and broadcasts ``spatial`` values, for
``spatial * vectors`` multiply-adds into as many accumulators.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from tilewright.target.features import CpuFeatures
from tilewright.topi.utils import largest_divisor

_CLEAN_STEPS = 4  # of a sum written out together, from which on LLVM keeps tiles in registers
_MIXED_REGISTERS = 3  # for LLVM's copies in narrower ones: 20 lanes of AVX2 by 3, not 4 (2.5 times as fast)
_FEW_REGISTERS = 16  # with 32 it makes none
_REUSE_LANES = 16  # floats of a register where that was measured
_PAGE_BYTES = 4096


@dataclass(frozen=True)
class RegisterTile:
    """Extents of a tile: output positions, and vector registers of channels."""

    spatial: int
    vectors: int


def step_registers(cpu: CpuFeatures) -> int:
    """Return how many registers a step needs besides accumulators and weights: broadcast values and products.

    Found by counting what LLVM spills and copies in the loops (``tests/processors/test_inner_loops.py``). AArch64
    loads a broadcast value some steps before its use, so three are on their way at once; without fused multiply-adds
    each product takes a register, and in two-operand SSE a copy of the factor that it overwrites another.
    """
    if cpu.arch == "aarch64":
        return 3
    if cpu.has_fma:
        return 1
    return 2 if cpu.has("avx") else 3


def fits(cpu: CpuFeatures, tile: RegisterTile, added: bool = False, mixed: bool = False, taken: int = 0) -> bool:
    """Return whether every value of a step has its own register.

    Parameters
    ----------
    added : weights are sums of two; only x86 adds a value in memory without loading it first
    mixed : vectors are not all of the same width, such as 8, 8 and 4 lanes
    taken : registers that a product needs for itself
    """
    weights = tile.vectors * (2 if added and cpu.arch != "x86" else 1)
    spare = _MIXED_REGISTERS if mixed and cpu.vector_registers <= _FEW_REGISTERS else 0
    return tile.spatial * tile.vectors + weights + step_registers(cpu) + spare + taken <= cpu.vector_registers


def rows_in_cache(cpu: CpuFeatures, stride: int) -> int:
    """Return how many rows ``stride`` bytes apart the first-level cache holds one line each of.

    A page has a line of each of the cache's sets, so rows whole pages apart share one set: with 8 lines a set,
    67x4096x1024 in tiles of 14 rows took 1.7 times as long as in tiles of 7.
    """
    ways = max(1, cpu.l1_bytes // _PAGE_BYTES)
    return ways * (_PAGE_BYTES // math.gcd(stride, _PAGE_BYTES))


def steps_to_unroll(cpu: CpuFeatures, tile: RegisterTile, extent: int, most: int) -> int:
    """Return how many steps of a sum of ``extent`` to unroll, a divisor of it, to share their prefetches.

    Not two or three where a tile leaves one register: LLVM loads the weights of a step during the one before, and then
    keeps most accumulators in memory (196x512x512 took 1.9 times as long). One step alone is as fast as eight.
    """
    steps = largest_divisor(extent, max(1, most))
    spare = cpu.vector_registers - (tile.spatial + 1) * tile.vectors - step_registers(cpu)
    return steps if steps >= _CLEAN_STEPS or spare > 1 else 1


def tile_rate(cpu: CpuFeatures, spatial: int, vectors: int, reuse: float | None = None) -> float:
    """Return the time of one multiply-add in a loop over such tiles, in units of the machine's peak.

    ``reuse``: multiply-adds per weight register below which the weights are late; the record's by default.
    """
    model, accumulators = cpu.processor.tiles, spatial * vectors
    loads = (spatial + vectors) / accumulators
    return (
        max(1.0, model.latency_cover / accumulators, loads, (reuse or model.weight_reuse) / spatial)
        + model.load_time * loads
    )


def tile_cost(cpu: CpuFeatures, extent: int, tile: RegisterTile) -> float:
    """Return the time of one multiply-add over ``extent`` positions under ``tile``; the tail takes a shorter tile."""
    spatial = min(tile.spatial, extent)
    rest = extent % spatial
    cost = (extent - rest) * tile_rate(cpu, spatial, tile.vectors)
    if rest:
        cost += rest * tile_rate(cpu, rest, tile.vectors)
    return cost / extent + (cpu.processor.tiles.rest_time if rest else 0.0)


def choose_tile(
    cpu: CpuFeatures,
    extent: int,
    vector_counts: list[int],
    registers_per_vector: int = 1,
    mixed: bool = False,
    most: int | None = None,
    taken: int = 0,
) -> RegisterTile:
    """Return the cheapest tile for ``extent`` positions.

    Parameters
    ----------
    vector_counts : numbers of channel vectors that a tile may take, such as the divisors of all there are
    registers_per_vector : registers that one channel vector takes
    mixed : these are not all of the same width
    most : positions of a tile
    taken : registers that a product needs for itself
    """
    candidates = _fitting(cpu, min(extent, most or extent), vector_counts, registers_per_vector, mixed, taken)
    candidates = candidates or [RegisterTile(1, min(vector_counts))]
    scaled = [RegisterTile(t.spatial, t.vectors * registers_per_vector) for t in candidates]
    costs = [tile_cost(cpu, extent, t) for t in scaled]
    return candidates[costs.index(min(costs))]


def _fitting(
    cpu: CpuFeatures, extent: int, vector_counts: list[int], registers_per_vector: int, mixed: bool, taken: int = 0
) -> list[RegisterTile]:
    return [
        RegisterTile(spatial, vectors)
        for vectors in vector_counts
        for spatial in range(1, min(extent, cpu.vector_registers) + 1)
        if fits(cpu, RegisterTile(spatial, vectors * registers_per_vector), mixed=mixed, taken=taken)
    ]


def block_vectors(block: int, lanes: int) -> int:
    """Return the vector operations for a block of channels: whole vectors, then ever shorter powers of two."""
    return block // lanes + (block % lanes).bit_count()


@functools.cache
def choose_channel_tile(
    cpu: CpuFeatures, columns: int, chunks: int, block: int, lanes: int, taken: int = 0
) -> RegisterTile:
    """Return ``choose_tile`` for a convolution's row, with a number of channel blocks that divides ``chunks``."""
    counts = divisors_up_to(chunks, cpu.processor.tiles.most_chunks)
    return choose_tile(cpu, columns, counts, block_vectors(block, lanes), _is_mixed(block, lanes), taken=taken)


@functools.cache
def channel_rate(cpu: CpuFeatures, chunks: int, block: int, lanes: int) -> float:
    """Return the time of one multiply-add of one channel in the best tile of ``chunks`` blocks, for any row length.

    In units of the machine's peak: in two registers of 16 lanes, 24 channels take 1.33 times as long as 32.
    """
    model = cpu.processor.tiles
    registers, counts = block_vectors(block, lanes), divisors_up_to(chunks, model.most_chunks)
    tiles = _fitting(cpu, cpu.vector_registers, counts, registers, _is_mixed(block, lanes))
    reuse = model.weight_reuse * lanes / _REUSE_LANES
    rate = min((tile_rate(cpu, t.spatial, t.vectors * registers, reuse) for t in tiles), default=math.inf)
    return rate * registers * lanes / max(block, 1)


def _is_mixed(block: int, lanes: int) -> bool:
    """Return whether the vectors of a block are not all of the same width."""
    return block > lanes and block % lanes > 0


@functools.cache
def row_tile(cpu: CpuFeatures, rows: int, registers: int, stride: int, taken: int = 0) -> int:
    """Return the rows of a tile of ``registers`` vectors of columns, in a product of ``rows`` ``stride``
    bytes apart, that needs ``taken`` registers for itself.
    """
    return choose_tile(cpu, rows, [1], registers, most=rows_in_cache(cpu, stride), taken=taken).spatial


@functools.cache
def packed_rate(cpu: CpuFeatures, rows: int, registers: int, stride: int, taken: int = 0) -> float:
    """Return the time of one multiply-add of a product of ``rows`` that are ``stride`` bytes apart."""
    return tile_cost(cpu, rows, RegisterTile(row_tile(cpu, rows, registers, stride, taken), registers))


def even_tile(extent: int, most: int) -> int:
    """Return the positions of a tile, at most ``most``: the fewest tiles of about equal size that cover ``extent``."""
    extent = max(extent, 1)
    return -(-extent // -(-extent // most))


def divisors_up_to(n: int, limit: int) -> list[int]:
    """Return the divisors of ``n`` that are at most ``limit``."""
    return [d for d in range(1, min(n, limit) + 1) if n % d == 0]
