"""Convolution of channel-packed data: the fast path, whose layouts AlterOpLayout chooses.

Data is NCHW<i>c, the kernel OIHW<i>i<o>o and the output NCHW<o>c, o being a whole number of vector registers. The
inner loops hold a register tile of accumulators (see ``tiling``) over the whole reduction.
"""

from __future__ import annotations

import math
from typing import Any

from tilewright import autotvm, te
from tilewright.autotvm.task.choices import choose
from tilewright.autotvm.task.space import ConfigSpace, OtherOptionEntity, SplitEntity
from tilewright.ir import dtype as dt
from tilewright.target.features import features
from tilewright.tir.analysis import conjuncts
from tilewright.tir.expr import IterVar
from tilewright.tir.visitor import stmt_vars
from tilewright.topi import nn
from tilewright.topi.cpu.common import (
    PREFETCH_STEPS,
    constant_extent,
    create_schedule,
    element_count,
    inline_injective,
    machine,
    measured,
    operations,
    output_tensors,
    padding_of,
    same_shape,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.conv2d_parts import schedule_conv2d_of_parts
from tilewright.topi.cpu.conv2d_patches import schedule_patches
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.loops import unroll_and_vectorize
from tilewright.topi.cpu.model.conv2d import (
    accumulator_bits,
    is_streamed,
)
from tilewright.topi.cpu.model.float_tiles import conv2d_float_tiles
from tilewright.topi.cpu.model.tiling import (
    RegisterTile,
    block_vectors,
    choose_channel_tile,
    even_tile,
    steps_to_unroll,
)
from tilewright.topi.kinds import CONV2D_NCHWC, CONV2D_PARTS, CONV2D_PATCHES, Kinds
from tilewright.topi.nn.conv import pad_spatial, per_dim
from tilewright.topi.nn.conv2d import ADDED_LANES
from tilewright.topi.nn.float_parts import conv2d_of_parts, parts_of_image
from tilewright.topi.utils import get_const_tuple, get_pad_tuple

UNKNOWN_EXTENT = 8  # tiles of rows whose extent is known when the kernel runs: each number of columns is code


@autotvm.register_topi_compute("conv2d_NCHWc.x86", version="2")
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
    """Compute ``topi.nn.conv2d_NCHWc``: data (n, C, h, w, c), kernel (O, C / groups, kh, kw, c, o).

    An image of unknown extents is padded first: code for each number of columns in a tail, times that for either end of
    a row, would be much.
    """
    if not all(isinstance(d, int) for d in get_const_tuple(data.shape)[2:4]):
        window = [
            (k - 1) * d + 1 for k, d in zip(get_const_tuple(kernel.shape)[2:4], per_dim(dilation, 2), strict=True)
        ]
        top, left, bottom, right = get_pad_tuple(padding, window)
        data, padding = pad_spatial(data, (2, 3), (top, left), (bottom, right), "data_pad"), 0
    out = nn.conv2d_NCHWc(data, kernel, strides, padding, dilation, layout, out_layout, out_dtype)
    _define_config(cfg, out, data, kernel, per_dim(strides, 2))
    return _in_float_tiles(cfg, data, kernel, out) if is_pointwise(kernel, strides, padding) else out


def is_pointwise(kernel: te.Tensor, strides: Any, padding: Any) -> bool:
    """Return whether windows are the points of the image, one after the other."""
    return set(per_dim(strides, 2)) | set(get_const_tuple(kernel.shape)[2:4]) == {1} and not any(
        get_pad_tuple(padding, (1, 1))
    )


def _in_float_tiles(cfg: ConfigSpace, data: te.Tensor, kernel: te.Tensor, out: te.Tensor) -> te.Tensor:
    """Return the product in tiles of parts of its floats where the configuration has them; else ``out``."""
    shape = get_const_tuple(out.shape)
    tiles = conv2d_float_tiles(
        machine(), get_const_tuple(data.shape), get_const_tuple(kernel.shape), shape[2:4], out.dtype
    )
    if tiles is None or {data.dtype, kernel.dtype} != {"float32"}:
        return out
    cfg.define_knob("matrix_tiles", [True, False])
    cfg.settle("matrix_tiles", OtherOptionEntity(tiles.is_faster))
    if not cfg["matrix_tiles"].val:
        return out
    parts = parts_of_image(data, tiles.blocks, tiles.tiles, tiles.height, tiles.parts)
    return conv2d_of_parts(parts, kernel, shape, tiles.tiles, tiles.chunk)


def _define_config(cfg: ConfigSpace, out: te.Tensor, data: te.Tensor, kernel: te.Tensor, strides: Any) -> None:
    """Define the knobs of the tile and of the loop order; untuned, the model in ``tiling`` sets them."""
    cpu = features()
    _, _, oh, ow, _ = get_const_tuple(out.shape)
    _, in_chunks, *_, in_block = get_const_tuple(data.shape)
    out_chunks, group_chunks, _, _, each, out_block, *pair = get_const_tuple(kernel.shape)
    chunks_per_group = out_chunks // (in_chunks // group_chunks)
    if not all(isinstance(d, int) for d in (oh, ow)):
        oh, ow = (d if isinstance(d, int) else UNKNOWN_EXTENT for d in (oh, ow))
    cfg.define_split("tile_chunks", max(out_chunks, 1), num_outputs=2, max_factor=8)
    cfg.define_split("tile_ow", max(ow, 1), num_outputs=2, max_factor=32, policy="verbose", no_tail=False)
    cfg.define_knob("channels_outer", [True, False])
    lanes = cpu.lanes(accumulator_bits(out.dtype))
    tile = choose_channel_tile(cpu, max(ow, 1), max(chunks_per_group, 1), math.prod((out_block, *pair)), lanes)
    if kernel.ndim == 6 and each < in_block:
        # All weights of a position stay in registers, and so do its data and one choice of their lanes.
        most = max(1, cpu.vector_registers - each - 2)
        tile = RegisterTile(even_tile(ow, most), 1)
    size = accumulator_bits(out.dtype) // 8
    blocks = max(1, out_chunks // tile.vectors)
    data_bytes = oh * ow * strides[0] * strides[1] * in_chunks * in_block * size
    weight_bytes = (element_count(kernel) or 0) * size
    # TVM's records have columns of one block of channels.
    chunks = tile.vectors if cfg.is_fallback or "tile_ow" not in cfg else 1
    cfg.settle("tile_chunks", SplitEntity([-1, chunks]), lambda entity: out_chunks % entity.size[-1] == 0)
    cfg.settle("tile_ow", SplitEntity([-1, tile.spatial]))
    # Threads share rows where a core's cache holds the weights: then they read what they wrote in the layer before,
    # instead of half of it from the other cores' caches.
    streamed = is_streamed(cpu, weight_bytes)
    outer = streamed and (oh == 1 or data_bytes * blocks <= weight_bytes * oh)
    cfg.settle("channels_outer", OtherOptionEntity(outer))


@autotvm.register_topi_schedule("conv2d_NCHWc.x86")
def schedule_conv2d_NCHWc(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule ``conv2d_NCHWc`` and the injective computes after it, which run on each finished tile."""
    threads = measured().threads
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = Kinds(CONV2D_NCHWC, CONV2D_PARTS).among(tensors)
    if CONV2D_PARTS(anchor):
        _schedule_float_tiles(s, tensors, anchor)
        return s
    added = [op for op in operations(tensors) if op.name == ADDED_LANES]  # the last one first
    last, result = tensors[0].op, added[0] if added else anchor
    follows = last is anchor or same_shape(last, result)
    partial_sums = [op for op in added[1:] if follows]
    padded = padding_of(anchor)
    inline_injective(s, tensors, keep=[*partial_sums, padded])
    if any(constant_extent(a) == 0 for a in anchor.axis):
        return s
    conv = anchor.output(0)
    for tensor in anchor.input_tensors:
        if CONV2D_PATCHES(tensor.op):
            schedule_patches(s, tensor.op)
    if padded is not None:
        schedule_injective_from_existing(s, padded.output(0))
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
    for op in partial_sums:
        stage = s[op]
        stage.set_scope("local")
        stage.compute_at(out, tile_at)
        unroll_and_vectorize(stage, list(op.axis[1:-1]), op.axis[-1])
    return s


def _schedule_float_tiles(s: te.Schedule, tensors: list[te.Tensor], anchor: Any) -> None:
    """Compute a convolution of floats in the processor's tiles, then what comes after it where it has its shape."""
    cut = next(op for op in operations(tensors) if anchor.output(0) in op.input_tensors)
    follows = same_shape(tensors[0].op, cut)
    inline_injective(s, tensors, keep=[] if follows else [cut])
    if not follows:
        schedule_injective_from_existing(s, tensors[0])
    schedule_conv2d_of_parts(s, anchor, tensors[0].op if follows else cut)


def _schedule_tile(s: te.Schedule, cfg: ConfigSpace, out: te.Stage, accumulators: te.Tensor, parallel: bool) -> IterVar:
    """Schedule the loops; return the one in which a tile is computed."""
    n, oc, oh, ow, block = out.op.axis
    oc_outer, oc_inner = cfg["tile_chunks"].apply(s, out.op, oc)
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
    tile.pragma(ico, "no_unroll")  # all steps of a short sum are unrolled else, and their registers spill
    if group_loop is not None:
        _prefetch_next_group(cfg, tile, weights, ici, out, group_loop)
    else:
        ahead = measured().memory.steps_ahead if _needs_prefetch(weights) else 0
        ahead = choose("prefetch_steps", PREFETCH_STEPS, ahead)
        if ahead:
            tile.prefetch(weights, ici, ahead)
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
    """Return whether sharing tiles of columns among cores is better than sharing the few rows and channel blocks.

    Every task then reads all weights, so these have to fit a core's cache. The tiles at the ends of rows are outside of
    the parallel loop (see ``loop_partition_hint``), and count as the work of one core.
    """
    convolution = measured().convolution
    size = element_count(weights)
    images, chunks, oh, ow = (constant_extent(axis) or 0 for axis in out.axis[:4])
    if size is None or size * dt.nbytes(weights.dtype) > machine().l2_bytes:
        return False
    cores = machine().cores
    rows = images * (chunks // cfg["tile_chunks"].size[-1]) * oh
    tiles = -(-ow // cfg["tile_ow"].size[-1])
    worth = bool((-(-(tiles - 2) // cores) + 2) * rows < convolution.worth_columns * -(-rows // cores) * tiles)
    return choose("parallel_columns", [True, False], worth)


def _needs_prefetch(weights: te.Tensor) -> bool:
    """Return whether the weights are too large to stay in cache, so that tiles would wait for memory in every run."""
    return (element_count(weights) or 0) * dt.nbytes(weights.dtype) > machine().l2_bytes // 4


def _groups_occupy_cores(cfg: ConfigSpace, conv: Any, weights: te.Tensor) -> bool:
    """Return whether groups of channels are enough tasks, so that the next group's weights can be prefetched."""
    groups = (constant_extent(conv.axis[1]) or 1) // cfg["tile_chunks"].size[-1]
    even = groups % machine().cores == 0 or groups > 8 * machine().cores
    outermost = bool(cfg["channels_outer"].val) and constant_extent(conv.axis[0]) == 1
    return outermost and even and _needs_prefetch(weights)


def _prefetch_next_group(
    cfg: ConfigSpace, tile: te.Stage, weights: te.Tensor, channels: IterVar, out: te.Stage, loop: IterVar
) -> None:
    """Prefetch the weights of the next channel group, a line every few steps, while the tiles of one are computed.

    Prefetched just before their use, they would delay the first row of an image, and memory would idle during the
    others.
    """
    oh, ow, block = (constant_extent(axis) or 1 for axis in out.op.axis[-3:])
    chunks, columns = cfg["tile_chunks"].size[-1], cfg["tile_ow"].size[-1]
    registers = chunks * block_vectors(block, vector_lanes(out.op.output(0).dtype))
    steps = oh * -(-ow // columns) // chunks
    # Written-out steps spill registers where they meet the tests of what lies outside of rows.
    most = 1 if tests_columns(tile.op) else min(4, steps)
    extent = constant_extent(channels) or 1
    step, rest = tile.split(channels, factor=steps_to_unroll(machine(), RegisterTile(columns, registers), extent, most))
    tile.unroll(rest)
    tile.prefetch(weights, step, 1, ahead=loop)


def tests_columns(conv: Any) -> bool:
    """Return whether windows of ``conv`` reach beyond the ends of rows."""
    return any(conv.reduce_axis[2].var in stmt_vars(part) for part in conjuncts(conv.body[0].condition))
