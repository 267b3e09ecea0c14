"""Choice of the layouts of a packed convolution, and of the rows that it merges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.autotvm.task.choices import choose
from tilewright.ir import dtype as dt
from tilewright.target.features import CpuFeatures, features
from tilewright.target.target import Target
from tilewright.topi import nn
from tilewright.topi.cpu.byte_tiles import has_tiles
from tilewright.topi.cpu.model.float_tiles import conv2d_float_tiles
from tilewright.topi.cpu.model.matrix_tiles import are_rows_merged
from tilewright.topi.cpu.model.tiling import (
    RegisterTile,
    block_vectors,
    channel_rate,
    choose_channel_tile,
    divisors_up_to,
    tile_cost,
)
from tilewright.topi.cpu.tile_code import SIDE

_MOST_VECTORS = 3  # of a block of channels


@dataclass(frozen=True)
class Conv2dLayouts:
    """Layouts of a packed convolution, and their block sizes.

    ``side``: how many inputs' weights lie side by side for each output, in lanes of their own; more than one only in
    direct convolutions, which take ``direct_kernel_layout`` instead of ``kernel_layout``. ``time``: modelled, of a
    multiply-add of one channel, in units of the machine's peak; 0 of depthwise convolutions and shared vectors.
    """

    data_layout: str
    kernel_layout: str
    out_layout: str
    in_block: int
    out_block: int
    side: int = 1
    time: float = 0.0

    @property
    def direct_kernel_layout(self) -> str:
        """The kernel's layout in direct convolutions."""
        if self.side == 1:
            return self.kernel_layout
        return f"OIHW{self.in_block // self.side}i{self.out_block}o{self.side}i"


def conv2d_layouts(
    in_channels: int,
    out_channels: int,
    groups: int = 1,
    dtype: str = "float32",
    target: Target | None = None,
    window: int = 1,
) -> Conv2dLayouts | None:
    """Return the layouts in which ``target`` runs a convolution fastest; None when packing does not suit it.

    ``in_channels`` and ``out_channels`` are those of the whole convolution, ``window`` the elements of its windows. A
    depthwise convolution (as many groups as channels, one kernel each) has kernel layout OIHW1i<o>o. Groups of less
    than a vector share one.
    """
    cpu = features(target)
    lanes = cpu.lanes(accumulator_bits(dtype))
    if groups > 1 and groups == in_channels:
        if out_channels != in_channels:
            return None
        block = channel_block(out_channels, lanes)
        if block == 1:
            return None
        return Conv2dLayouts(f"NCHW{block}c", f"OIHW1i{block}o", f"NCHW{block}c", block, block)
    if in_channels % groups or out_channels % groups:
        return None
    each, used = in_channels // groups, target or Target.current()
    shuffles = used is not None and used.kind.capabilities.vector_shuffles
    even = groups > 1 and in_channels == out_channels and lanes % each == 0 and in_channels % lanes == 0
    if shuffles and even and each < lanes:
        return Conv2dLayouts(f"NCHW{lanes}c", f"OIHW{each}i{lanes}o", f"NCHW{lanes}c", lanes, lanes)
    in_block, out_block = channel_block(each, lanes), channel_block(out_channels // groups, lanes)
    chunks = out_channels // groups // out_block
    times = _times(cpu, each * window, in_block, chunks, out_block, lanes, most=lanes if shuffles else 1)
    side = next(side for side in times if cpu.processor.convolution.worth_adding * times[side] <= min(times.values()))
    if out_block % min(4, lanes) and (not shuffles or (side == 1 and 2 * out_block < lanes)):
        return None
    layouts = f"NCHW{in_block}c", f"OIHW{in_block}i{out_block}o", f"NCHW{out_block}c"
    return Conv2dLayouts(*layouts, in_block, out_block, side, times[side])


@nn.conv2d_channel_lanes.provide("cpu")
def channel_lanes() -> int:
    """Lanes of a vector of floats."""
    return features().lanes(32)


@nn.conv2d_channel_time.provide("cpu")
def channel_time(in_channels: int, channels: int, window: int, dtype: str = "float32") -> float | None:
    """Modelled time of a vector multiply-add in the best packed layouts; None without such.

    Weights of bfloat16 that fill tiles take a small part of it.
    """
    if has_tiles(features(), dtype) and dtype == "bfloat16" and channels % SIDE == 0:
        return features().processor.matrix_tiles.half_time
    chosen = conv2d_layouts(in_channels, channels, window=window)
    return chosen.time if chosen else None


def _times(
    cpu: CpuFeatures, products: int, in_block: int, chunks: int, out_block: int, lanes: int, most: int
) -> dict[int, float]:
    """Return modelled times of a multiply-add, by how many inputs (up to ``most``) a step multiplies in separate lanes.

    Each of ``chunks`` blocks of ``out_block`` results sums ``products`` products. 24 results fill three registers of 16
    lanes with pairs, instead of half of the second of two; and those of one or seven registers make tiles of two
    registers. The lanes are added up at the end. Only x86 broadcasts a pair.
    """
    convolution = cpu.processor.convolution

    def time(side: int) -> float:
        rate = channel_rate(cpu, chunks, side * out_block, lanes)
        if side > 1 and block_vectors(side * out_block, lanes) == 1:
            rate *= convolution.lone_register_time
        return rate + convolution.adding_time * (side - 1) / max(products, 1)

    if cpu.arch != "x86" or not cpu.has_fma:
        most = 1
    return {side: time(side) for side in divisors_up_to(lanes, most) if in_block % side == 0}


def channel_block(channels: int, lanes: int) -> int:
    """Return how many channels to pack: the smallest block that fills vectors best, such as 40 of 1000 for 16 lanes.

    A block that is no multiple of the lanes ends in shorter vectors, each of which takes as long as a whole one. Of
    channels that four do not divide, the block whose pairs fill vectors best, such as 18 of 54.
    """
    unit = min(4, lanes)
    divisors = [block for block in range(1, min(channels, _MOST_VECTORS * lanes) + 1) if channels % block == 0]
    blocks, times = [block for block in divisors if block % unit == 0], 1
    if not blocks:
        blocks, times = divisors, 2
    return min(blocks, key=lambda block: (block_vectors(times * block, lanes) / block, block), default=1)


def accumulator_bits(dtype: str) -> int:
    """Return the bits of an accumulator's lane: narrow types are summed in wider ones."""
    return max(32, dt.bits(dtype))


def is_streamed(cpu: CpuFeatures, weight_bytes: int) -> bool:
    """Return whether weights are too large for a core's cache to hold them from one row of an image to the next."""
    return weight_bytes > cpu.l2_bytes // 2


@nn.conv2d_rows_to_merge.provide("cpu")
def rows_to_merge(
    data: Sequence[int],
    kernel: Sequence[int],
    out: Sequence[int],
    dtype: str,
    target: Target | None = None,
    computed: float = 1.0,
) -> int:
    """Return how many rows of its result a packed convolution should merge into one; 1: none.

    Merged rows leave fewer columns over that make no whole tile, and fewer tasks for the cores. Unless windows are the
    points of the image one after the other, they have to be copied first (``conv2d_patches``).

    Parameters
    ----------
    data, kernel : (n, C, h, w, c) and (O, C / groups, kh, kw, c, o), or (..., c / 2, o, 2), as of ``conv2d_NCHWc``
    out : height and width of the result
    dtype : of the data; of bytes the kernel is (..., c / 4, o, 4), of bfloat16 (..., c / 2, o, 2)
    computed : share of the products that a direct convolution computes, the others being of padding
    """
    if _is_for_float_tiles(features(target), data, kernel, out, dtype):
        return choose("merged_rows", [1, out[0]], out[0])
    cpu, lanes = features(target), features(target).lanes(accumulator_bits(dtype))
    convolution = cpu.processor.convolution
    images, in_chunks, *image, in_block = data
    out_chunks, group_chunks, kh, kw, steps, out_block, side = (*kernel, 1)[:7]
    height, width = out
    if steps * side < in_block or not all((*data, *kernel, *out)):
        return 1
    # neighbours along the sum, which one instruction adds up
    of_words = dtype in ("uint8", "int16", "bfloat16") and len(kernel) == 7
    copied = (kh, kw) != (1, 1) or image != [height, width]
    lane_block = out_block if of_words else out_block * side
    registers = block_vectors(lane_block, lanes)
    chunks_per_group = out_chunks * group_chunks // in_chunks
    copying = convolution.copy_time / (chunks_per_group * out_block) if copied else 0.0

    def cost(rows: int) -> float:
        tile = choose_channel_tile(cpu, rows * width, chunks_per_group, lane_block, lanes)
        tasks = images * (height // rows) * (out_chunks // tile.vectors)
        idle = -(-tasks // cpu.cores) * cpu.cores / tasks
        rate = tile_cost(cpu, rows * width, RegisterTile(tile.spatial, tile.vectors * registers))
        return idle * rate * computed if rows == 1 else idle * rate + copying

    size = dt.nbytes(dtype)
    row_bytes, weight_bytes = width * in_chunks * kh * kw * in_block * size, math.prod(kernel) * size
    if copied and images * height * row_bytes > max(cpu.l2_bytes, weight_bytes):
        return 1
    in_tiles = are_rows_merged(cpu, out, kernel, copied, computed, dtype) if of_words else None
    if in_tiles is not None:
        return choose("merged_rows", [1, height], height if in_tiles else 1)
    if is_streamed(cpu, weight_bytes):
        # All rows run through a few channels' weights, and then through the next: the data is read as often, unless a
        # cache holds it. Rows that are not merged read all weights, each.
        blocks = out_chunks // choose_channel_tile(cpu, height * width, chunks_per_group, lane_block, lanes).vectors
        data_bytes = images * height * row_bytes
        fits = data_bytes <= max(cpu.l2_bytes, images * weight_bytes * height // blocks)
        choices = [1, height] if fits else [1]
    else:
        choices = divisors_up_to(height, max(1, cpu.l2_bytes // 4 // row_bytes))
    best = min(choices, key=lambda rows: (cost(rows), rows))
    best = best if cost(best) < convolution.worth_merging * cost(1) else 1
    return choose("merged_rows", sorted({1, *choices}), best)


def _is_for_float_tiles(
    cpu: CpuFeatures, data: Sequence[int], kernel: Sequence[int], out: Sequence[int], dtype: str
) -> bool:
    """Return whether tiles compute a convolution of floats whose result is one row."""
    tiles = conv2d_float_tiles(cpu, data, kernel, (1, math.prod(out)), dtype)
    return tiles is not None and tiles.is_faster
