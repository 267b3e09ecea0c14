"""Convolution of channel-packed data: the fast path, whose layouts AlterOpLayout chooses.

Data is NCHW<i>c, the kernel OIHW<i>i<o>o and the output NCHW<o>c, o being a whole number of vector registers. The
inner loops hold a register tile of accumulators (see ``tiling``) over the whole reduction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import autotvm, te
from tilewright.autotvm.space import ConfigSpace, OtherOptionEntity, SplitEntity
from tilewright.ir import dtype as dt
from tilewright.target.features import CpuFeatures, features
from tilewright.target.target import Target
from tilewright.tir.analysis import conjuncts
from tilewright.tir.expr import IterVar
from tilewright.tir.visitor import stmt_vars
from tilewright.topi import nn
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    element_count,
    find_anchor,
    fuse_all,
    inline_injective,
    machine,
    measured,
    operations,
    output_tensors,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.conv2d_patches import schedule_patches
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.tiling import (
    RegisterTile,
    block_vectors,
    channel_rate,
    choose_channel_tile,
    divisors_up_to,
    even_tile,
    steps_to_unroll,
    tile_cost,
)
from tilewright.topi.nn.conv import per_dim
from tilewright.topi.nn.conv2d import ADDED_LANES
from tilewright.topi.utils import get_const_tuple

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
    """The layouts that a convolution runs fastest in on ``target``; None when packing does not suit it.

    ``in_channels`` and ``out_channels`` are those of the whole convolution, ``window`` the elements of its windows. A
    depthwise convolution (as many groups as channels, one kernel each) has kernel layout OIHW1i<o>o. Groups of less
    than a vector share one.
    """
    cpu = features(target)
    lanes = cpu.lanes(_bits(dtype))
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
    shuffles = used is not None and used.kind.name == "llvm"  # lanes written out one by one take C compilers minutes
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


@nn.conv2d_channel_lanes.register("cpu")
def channel_lanes() -> int:
    """Lanes of a vector of floats."""
    return features().lanes(32)


@nn.conv2d_channel_time.register("cpu")
def channel_time(in_channels: int, channels: int, window: int) -> float | None:
    """Modelled time of a vector multiply-add in the best packed layouts; None without such."""
    chosen = conv2d_layouts(in_channels, channels, window=window)
    return chosen.time if chosen else None


def _times(
    cpu: CpuFeatures, products: int, in_block: int, chunks: int, out_block: int, lanes: int, most: int
) -> dict[int, float]:
    """Modelled times of a multiply-add, by how many inputs (up to ``most``) a step multiplies in lanes of their own.

    Each of ``chunks`` blocks of ``out_block`` results sums so many ``products``. 24 results fill three registers of 16
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
    """Channels to pack: what fills vectors best, such as 16 of 64 and 40 of 1000 for 16 lanes; the fewest of such.

    A block that is no multiple of the lanes ends in shorter vectors, each of which takes as long as a whole one. Of
    channels that four do not divide, the block whose pairs fill vectors best, such as 18 of 54.
    """
    unit = min(4, lanes)
    divisors = [block for block in range(1, min(channels, _MOST_VECTORS * lanes) + 1) if channels % block == 0]
    blocks, times = [block for block in divisors if block % unit == 0], 1
    if not blocks:
        blocks, times = divisors, 2
    return min(blocks, key=lambda block: (block_vectors(times * block, lanes) / block, block), default=1)


def _bits(dtype: str) -> int:
    """Bits of an accumulator's lane: narrow types are summed in wider ones."""
    return max(32, dt.bits(dtype))


@autotvm.register_topi_compute("conv2d_NCHWc.x86")
def conv2d_NCHWc(
    cfg: ConfigSpace,
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    layout: str = "",
    out_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """``topi.nn.conv2d_NCHWc``: data (n, C, h, w, c), kernel (O, C / groups, kh, kw, c, o)."""
    out = nn.conv2d_NCHWc(data, kernel, strides, padding, dilation, layout, out_layout, out_dtype)
    _define_config(cfg, out, data, kernel, per_dim(strides, 2))
    return out


def _define_config(cfg: ConfigSpace, out: te.Tensor, data: te.Tensor, kernel: te.Tensor, strides: Any) -> None:
    """Open the choices of the tile and of the loop order; the fallback takes them from the model in ``tiling``."""
    cpu = features()
    _, _, oh, ow, _ = get_const_tuple(out.shape)
    _, in_chunks, *_, in_block = get_const_tuple(data.shape)
    out_chunks, group_chunks, _, _, each, out_block, *pair = get_const_tuple(kernel.shape)
    chunks_per_group = out_chunks // (in_chunks // group_chunks)
    if not all(isinstance(d, int) for d in (oh, ow)):
        oh, ow = 1, 1
    cfg.define_split("tile_oc", max(out_chunks, 1), num_outputs=2, max_factor=8)
    cfg.define_split("tile_ow", max(ow, 1), num_outputs=2, max_factor=32, policy="verbose", no_tail=False)
    cfg.define_knob("channels_outer", [True, False])
    if cfg.is_fallback:
        lanes = cpu.lanes(_bits(out.dtype))
        tile = choose_channel_tile(cpu, max(ow, 1), max(chunks_per_group, 1), math.prod((out_block, *pair)), lanes)
        if kernel.ndim == 6 and each < in_block:
            # All weights of a position stay in registers, and so do its data and one choice of their lanes.
            most = max(1, cpu.vector_registers - each - 2)
            tile = RegisterTile(even_tile(ow, most), 1)
        size = _bits(out.dtype) // 8
        blocks = max(1, out_chunks // tile.vectors)
        data_bytes = oh * ow * strides[0] * strides[1] * in_chunks * in_block * size
        weight_bytes = (element_count(kernel) or 0) * size
        cfg["tile_oc"] = SplitEntity([-1, tile.vectors])
        cfg["tile_ow"] = SplitEntity([-1, tile.spatial])
        # Threads share rows where a core's cache holds the weights: then they read what they wrote in the layer before,
        # instead of half of it from the other cores' caches.
        streamed = _is_streamed(cpu, weight_bytes)
        cfg["channels_outer"] = OtherOptionEntity(streamed and (oh == 1 or data_bytes * blocks <= weight_bytes * oh))


def _is_streamed(cpu: CpuFeatures, weight_bytes: int) -> bool:
    """Whether weights are too many for a core's cache to hold them from one row of an image to the next."""
    return weight_bytes > cpu.l2_bytes // 2


@nn.conv2d_rows_to_merge.register("cpu")
def rows_to_merge(
    data: Sequence[int],
    kernel: Sequence[int],
    out: Sequence[int],
    dtype: str,
    target: Target | None = None,
    computed: float = 1.0,
) -> int:
    """Rows of its result that a packed convolution does well to take as one; 1: leave them as they are.

    Merged rows leave fewer columns over that make no whole tile, and fewer tasks for the cores. Unless windows are the
    points of the image one after the other, they have to be copied first (``conv2d_patches``).

    Parameters
    ----------
    data, kernel : (n, C, h, w, c) and (O, C / groups, kh, kw, c, o), or (..., c / 2, o, 2), as of ``conv2d_NCHWc``
    out : height and width of the result
    computed : share of the products that a direct convolution computes, the others being of padding
    """
    cpu, lanes = features(target), features(target).lanes(_bits(dtype))
    convolution = cpu.processor.convolution
    images, in_chunks, *image, in_block = data
    out_chunks, group_chunks, kh, kw, steps, out_block, side = (*kernel, 1)[:7]
    height, width = out
    if steps * side < in_block or not all((*data, *kernel, *out)):
        return 1
    registers = block_vectors(out_block * side, lanes)
    chunks_per_group = out_chunks * group_chunks // in_chunks
    copied = (kh, kw) != (1, 1) or image != [height, width]
    copying = convolution.copy_time / (chunks_per_group * out_block) if copied else 0.0

    def cost(rows: int) -> float:
        tile = choose_channel_tile(cpu, rows * width, chunks_per_group, out_block * side, lanes)
        tasks = images * (height // rows) * (out_chunks // tile.vectors)
        idle = -(-tasks // cpu.cores) * cpu.cores / tasks
        rate = tile_cost(cpu, rows * width, RegisterTile(tile.spatial, tile.vectors * registers))
        return idle * rate * computed if rows == 1 else idle * rate + copying

    size = dt.nbytes(dtype)
    row_bytes, weight_bytes = width * in_chunks * kh * kw * in_block * size, math.prod(kernel) * size
    if copied and images * height * row_bytes > max(cpu.l2_bytes, weight_bytes):
        return 1
    if _is_streamed(cpu, weight_bytes):  # then all rows run through a few channels' weights
        choices = [1, height]
    else:
        choices = divisors_up_to(height, max(1, cpu.l2_bytes // 4 // row_bytes))
    best = min(choices, key=lambda rows: (cost(rows), rows))
    return best if cost(best) < convolution.worth_merging * cost(1) else 1


def same_shape(a: Any, b: Any) -> bool:
    """Whether two operations have output axes of the same extents."""
    return len(a.axis) == len(b.axis) and all(
        constant_extent(x) == constant_extent(y) for x, y in zip(a.axis, b.axis, strict=True)
    )


def padding_of(anchor: Any) -> Any | None:
    """The operation that pads the anchor's data, or None."""
    return next((t.op for t in anchor.input_tensors if isinstance(t.op, te.ComputeOp) and "pad" in t.op.tag), None)


def schedule_padding(s: te.Schedule, op: Any) -> None:
    """Pad as a step of its own: parallel over all but the last two dimensions, vectorised over the last."""
    stage = s[op]
    axes = list(op.axis)
    extent = constant_extent(axes[-1])
    lanes = vector_lanes(op.output(0).dtype)
    if extent is not None and extent > 1 and (extent % lanes == 0 or extent in (2, 4, 8)):
        stage.vectorize(axes[-1] if extent <= lanes else stage.split(axes[-1], factor=lanes)[1])
    outer = fuse_all(stage, axes[:-2])
    if outer is not None and worth_threads(op):
        stage.parallel(outer)


@autotvm.register_topi_schedule("conv2d_NCHWc.x86")
def schedule_conv2d_NCHWc(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule ``conv2d_NCHWc`` with injective computes after it, which run on each tile as it is done."""
    threads = measured().threads
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = find_anchor(tensors, lambda op: op.tag == "conv2d_NCHWc")
    assert anchor is not None
    added = [op for op in operations(tensors) if op.name == ADDED_LANES]  # the last one first
    last, result = tensors[0].op, added[0] if added else anchor
    follows = last is anchor or same_shape(last, result)
    halves = [op for op in added[1:] if follows]
    inline_injective(s, tensors, keep=halves)
    if any(constant_extent(a) == 0 for a in anchor.axis):
        return s
    conv = anchor.output(0)
    for tensor in anchor.input_tensors:
        if tensor.op.tag == "conv2d_patches":
            schedule_patches(s, tensor.op)
    if not follows:
        schedule_injective_from_existing(s, tensors[0])
        last = anchor
    if last is anchor:
        accumulators = s.cache_write(conv, "local")
        out = s[conv]
    else:
        accumulators = conv
        s[conv].set_scope("local")
        out = s[last]
    tile_at = _schedule_tile(s, cfg, out, accumulators, parallel=worth_threads(anchor, threads.least_products))
    for op in halves:
        stage = s[op]
        stage.set_scope("local")
        stage.compute_at(out, tile_at)
        unroll_and_vectorize(stage, list(op.axis[1:-1]), op.axis[-1])
    return s


def _schedule_tile(s: te.Schedule, cfg: ConfigSpace, out: te.Stage, accumulators: te.Tensor, parallel: bool) -> IterVar:
    """Schedule the loops; gives the one in which a tile is computed."""
    n, oc, oh, ow, block = out.op.axis
    oc_outer, oc_inner = cfg["tile_oc"].apply(s, out.op, oc)
    ow_outer, ow_inner = cfg["tile_ow"].apply(s, out.op, ow)
    rows = [oc_outer, oh] if cfg["channels_outer"].val else [oh, oc_outer]
    tile = s[accumulators]
    weights = tile.op.input_tensors[1]
    group_loop: IterVar | None = None
    if parallel and _columns_occupy_cores(cfg, out.op, weights):
        out.reorder(ow_outer, n, *rows, oc_inner, ow_inner, block)
        out.parallel(ow_outer)
        tile_at = rows[-1]
    else:
        out.reorder(n, *rows, ow_outer, oc_inner, ow_inner, block)
        if _groups_occupy_cores(cfg, out.op, weights):
            group_loop = outer = out.fuse(n, oc_outer)
        else:
            outer = out.fuse(n, *rows)
        if parallel:
            out.parallel(outer)
        tile_at = ow_outer
    out.pragma(ow_outer, "loop_partition_hint", 1)
    unroll_and_vectorize(out, [oc_inner, ow_inner], block)
    tile.compute_at(out, tile_at)
    tn, toc, toh, tow, tblock = tile.op.axis
    ico, rh, rw, ici = tile.op.reduce_axis
    # Positions outside channels: the weights of a step stay in registers, one broadcast value at a time joins them.
    tile.reorder(tn, toh, ico, rh, rw, ici, tow, toc, tblock)
    tile.pragma(ico, "no_unroll")  # all steps of a short sum are written out else, and their registers spill
    if group_loop is not None:
        _fetch_next_group(cfg, tile, weights, ici, out, group_loop)
    elif _takes_time_to_fetch(weights):
        tile.prefetch(weights, ici, measured().memory.steps_ahead)
    if tests_columns(tile.op):
        tile.pragma(rw, "loop_partition_hint", 1)
    data = tile.op.input_tensors[0]
    if weights.ndim > 6 or constant_extent(ici) == get_const_tuple(data.shape)[-1]:
        unroll_and_vectorize(tile, [tow, toc], tblock)
    else:  # several groups in a vector: it is loaded once, and for each of a group's channels lanes are picked
        tile.reorder(tow, toc, ici, tblock)
        unroll_and_vectorize(tile, [tow, toc, ici], tblock)
    return tile_at


def _columns_occupy_cores(cfg: ConfigSpace, out: Any, weights: te.Tensor) -> bool:
    """Whether tiles of columns share the work better than rows and blocks of channels do: where those are few.

    Every task then runs through all weights, so they have to stay in the cache of a core. The tiles at the ends of
    rows are apart from the parallel loop (see ``loop_partition_hint``), and counted as done by one core.
    """
    convolution = measured().convolution
    size = element_count(weights)
    images, chunks, oh, ow = (constant_extent(axis) or 0 for axis in out.axis[:4])
    if size is None or size * dt.nbytes(weights.dtype) > machine().l2_bytes:
        return False
    cores = machine().cores
    rows = images * (chunks // cfg["tile_oc"].size[-1]) * oh
    tiles = -(-ow // cfg["tile_ow"].size[-1])
    return bool((-(-(tiles - 2) // cores) + 2) * rows < convolution.worth_columns * -(-rows // cores) * tiles)


def _takes_time_to_fetch(weights: te.Tensor) -> bool:
    """Whether the weights are so many that tiles would wait for them: in a network they come from memory each time."""
    return (element_count(weights) or 0) * dt.nbytes(weights.dtype) > machine().l2_bytes // 4


def _groups_occupy_cores(cfg: ConfigSpace, conv: Any, weights: te.Tensor) -> bool:
    """Whether groups of channels alone are tasks enough, so that one's weights can be fetched during another."""
    groups = (constant_extent(conv.axis[1]) or 1) // cfg["tile_oc"].size[-1]
    even = groups % machine().cores == 0 or groups > 8 * machine().cores
    outermost = bool(cfg["channels_outer"].val) and constant_extent(conv.axis[0]) == 1
    return outermost and even and _takes_time_to_fetch(weights)


def _fetch_next_group(
    cfg: ConfigSpace, tile: te.Stage, weights: te.Tensor, channels: IterVar, out: te.Stage, loop: IterVar
) -> None:
    """While the tiles of one group of channels are computed, fetch the weights of the next, a line every few steps.

    Fetched just ahead of their use, they hold up the first row of an image, and memory idles during the others.
    """
    oh, ow, block = (constant_extent(axis) or 1 for axis in out.op.axis[-3:])
    chunks, columns = cfg["tile_oc"].size[-1], cfg["tile_ow"].size[-1]
    registers = chunks * block_vectors(block, vector_lanes(out.op.output(0).dtype))
    steps = oh * -(-ow // columns) // chunks
    # Written-out steps spill registers where they meet the tests of what lies outside of rows.
    most = 1 if tests_columns(tile.op) else min(4, steps)
    extent = constant_extent(channels) or 1
    step, rest = tile.split(channels, factor=steps_to_unroll(machine(), RegisterTile(columns, registers), extent, most))
    tile.unroll(rest)
    tile.prefetch(weights, step, 1, ahead=loop)


def tests_columns(conv: Any) -> bool:
    """Whether windows of ``conv`` reach beyond the ends of rows."""
    return any(conv.reduce_axis[2].var in stmt_vars(part) for part in conjuncts(conv.body[0].condition))


def unroll_and_vectorize(stage: te.Stage, unrolled: list[IterVar], vector: IterVar) -> None:
    """Write out the loops ``unrolled`` and run ``vector`` as one vector: what keeps a tile in registers."""
    for axis in unrolled:
        stage.unroll(axis)
    stage.vectorize(vector)
