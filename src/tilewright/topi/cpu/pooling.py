"""Schedules of pooling."""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright import te
from tilewright.ir import dtype as dt
from tilewright.te.operation import producer_loads
from tilewright.tir.expr import IterVar
from tilewright.tir.visitor import free_vars
from tilewright.topi import tag
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    element_count,
    find_anchor,
    fuse_all,
    machine,
    measured,
    operations,
    output_tensors,
    split_vector,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.conv2d import unroll_and_vectorize
from tilewright.topi.cpu.depthwise_conv2d import (
    accumulate_windows,
    schedule_windows,
    tile_windows,
    window_tile,
)
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.reduction import innermost_is_reduced, schedule_reduce
from tilewright.topi.cpu.tiling import even_tile


def _is_pool(op: Any) -> bool:
    return op.tag.startswith(("pool_max", "pool_sum", "adaptive_pool"))


def _takes_whole_rows(pool: Any) -> bool:
    """Whether windows are as wide as the data, of which nothing is padding."""
    moving = {iv.var for iv in pool.axis}
    rows = [load.indices[-1] for load in producer_loads(pool.body[0].source)]
    padded = any("pad" in t.op.tag for t in pool.input_tensors)
    return not padded and innermost_is_reduced(pool) and not any(v in moving for i in rows for v in free_vars(i))


def schedule_pool(outs: Any, layout: str) -> te.Schedule:
    """Schedule a local, adaptive or global pooling with injective computes before and after it.

    The window is reduced for one row of output at a time; the innermost dimension (packed channels, or columns) is
    vectorised. Packed channels are reduced in registers, a tile of columns at a time, and where ``pool_nd`` has cut the
    windows into passes over their rows, a row of the result at a time for each pass. Where columns are innermost,
    padding is materialised per plane, so that no lane has to test for it; so is what windows share, or per row where a
    plane of it does not fit the first-level cache. Windows as wide as the data, such as those of a global pooling, are
    reduced as any other rows.
    """
    tensors = output_tensors(outs)
    pool = find_anchor(tensors, _is_pool)
    if pool is not None and _takes_whole_rows(pool):
        return schedule_reduce(outs)
    s = create_schedule(tensors)
    packed = layout[-1:] == "c" or layout[-1:] == "C"
    passes = [op for op in operations(tensors) if op.tag == "pool_rows"]
    below = [] if pool is None else [t.op for op in (*passes, pool) for t in op.input_tensors if t.op not in passes]
    shared = [op for op in below if op.tag == "pool_columns"]
    readers = [*below, *(t.op for op in shared for t in op.input_tensors)]
    direct = [op for op in shared if not packed and _reads_past_border(op, tensors[0].dtype)]
    pads = [op for op in readers if "pad" in op.tag and not packed and not direct]
    once = [op for op in operations(tensors) if op.name == "pool_weights" and not packed]
    for op in operations(tensors):
        if isinstance(op, te.ComputeOp) and tag.is_injective(op.tag) and op not in (*s.outputs, *pads, *once):
            s[op].compute_inline()
    if pool is None or any(constant_extent(a) == 0 for a in pool.axis):
        return s
    out = tensors[0]
    follows = out.op is not pool and _same_shape(out.op, pool)
    stage = s[out.op] if follows else s[pool]
    axes = list(stage.op.axis)
    windows = bool(shared) or len(pool.reduce_axis) == 2
    if packed and windows and len(axes) == 5 and (constant_extent(axes[-1]) or 0) >= measured().pooling.least_block:
        sums = pool.output(0) if follows else s.cache_write(pool.output(0), "local")
        if passes:
            _schedule_passes(s, stage, s[sums], passes, shared, worth_threads(pool))
        elif shared:
            _schedule_shared_columns(stage, s[sums], s[shared[0]], worth_threads(pool))
        else:
            tile = window_tile(*(constant_extent(a) or 1 for a in (*axes[2:4], pool.reduce_axis[1])))
            schedule_windows(stage, s[sums], tile, worth_threads(pool))
        if out.op is not pool and not follows:
            schedule_injective_from_existing(s, out)
        return s
    outer, inner = (axes[:2], axes[2:]) if len(axes) > 3 else (axes[:1], axes[1:])
    plane = fuse_all(stage, outer)
    assert plane is not None
    row = stage if follows else s[pool], (inner if follows else pool.axis)[-2 if len(pool.axis) > 3 else -1]
    if follows and shared:
        _schedule_sums(stage, s[pool], inner, out.dtype)
    elif follows:
        if inner:
            _split_row(stage, inner[-1], out.dtype)
        s[pool].compute_at(stage, plane)
        _schedule_windows(s[pool], list(pool.axis), pool.output(0).dtype, len(outer))
    else:
        _schedule_windows(stage, [plane, *inner], pool.output(0).dtype, 1)
    for op in pads:
        s[op].compute_at(stage, plane)
        for axis in op.axis[len(outer) :]:
            s[op].pragma(axis, "loop_partition_hint", 1)  # rows without their border are for LLVM: it copies them
    for op in (*shared, *passes):
        # A row that has just been stored is loaded slowly from where two stores meet: a plane of them is done first.
        if op in direct or passes or _plane_bytes(op, len(outer)) <= machine().l1_bytes:
            s[op].compute_at(stage, plane)
        else:
            s[op].compute_at(*row)
        if op in direct:
            _schedule_direct_columns(s[op], len(outer))
        else:
            _schedule_windows(s[op], list(op.axis), pool.output(0).dtype, len(outer))
    if worth_threads(pool):
        stage.parallel(plane)
    if out.op is not pool and not follows:
        schedule_injective_from_existing(s, out)
    return s


def _plane_bytes(op: Any, leading: int) -> int:
    return prod(constant_extent(a) or 1 for a in op.axis[leading:]) * dt.nbytes(op.output(0).dtype)


def _reads_past_border(columns: Any, dtype: str) -> bool:
    """Whether ``columns`` reads the data, not a padded copy of it: few rows of planes that fit a cache, and long ones.

    LLVM vectorises the inside of a row, at any alignment, but writes rows out that are shorter than two vectors.
    """
    convolution = measured().convolution
    width = constant_extent(columns.axis[-1]) or 0
    few = (constant_extent(columns.reduce_axis[0]) or convolution.most_taps) <= convolution.most_taps
    fits = _plane_bytes(columns, len(columns.axis) - 2) <= machine().l1_bytes
    return few and fits and width > 2 * vector_lanes(dtype)


def _schedule_direct_columns(columns: te.Stage, leading: int) -> None:
    """Columns of a plane, the border cut off: an element of the inside is a sum without conditions."""
    columns.reorder(*columns.op.axis, *columns.op.reduce_axis)
    for axis in columns.op.reduce_axis:
        columns.unroll(axis)
    for axis in columns.op.axis[leading:]:
        columns.pragma(axis, "loop_partition_hint", 1)


def _schedule_sums(out: te.Stage, sums: te.Stage, inner: list[IterVar], dtype: str) -> None:
    """Add up columns in registers, a vector of the result at a time."""
    convolution = measured().convolution
    blocks, vector = _split_row(out, inner[-1], dtype)
    sums.set_scope("local")
    sums.compute_at(out, inner[-2] if blocks is vector else blocks)
    *lead, row = sums.op.axis
    sums.reorder(*lead, *sums.op.reduce_axis, row)
    taps = [
        axis
        for axis in sums.op.reduce_axis
        if (constant_extent(axis) or convolution.most_taps) <= convolution.most_taps
    ]
    unroll_and_vectorize(sums, taps, row)


def _schedule_shared_columns(out: te.Stage, sums: te.Stage, columns: te.Stage, parallel: bool) -> None:
    """Schedule packed windows that overlap: ``columns`` reduces what is in a column of them, ``sums`` columns.

    Written out, neighbours have columns in common, which LLVM computes once: every element is loaded once for each row
    of a window, and loads and stores alternate. Bursts of loads leave memory idle in between: of 3x3 windows one apart,
    in no cache, 77 instead of 91 % of the bandwidth of a copy, and 55 % where each window reads all of its elements.
    """
    pooling = measured().pooling
    taps = prod(constant_extent(stage.op.reduce_axis[0]) or 1 for stage in (columns, sums))
    small = taps <= measured().convolution.most_taps
    most = min(pooling.widest_tile, pooling.most_written_out // taps) if small else pooling.large_windows
    row, tiles, column = tile_windows(out, _band_tile(out.op, columns.op.input_tensors[0], most), parallel)
    out.pragma(row, "loop_partition_hint", 1)
    accumulate_windows(sums, out, column if small else tiles)
    accumulate_windows(columns, out, column if small else tiles, small)


def _schedule_passes(s: te.Schedule, out: te.Stage, sums: te.Stage, passes: list[Any], columns: list[Any],
                     parallel: bool) -> None:  # fmt: skip
    """Schedule packed windows whose rows are reduced in ``passes``, each over a row of the result, and then ``sums``.

    The tiles of a pass are small and its loop stays one, so that loads keep the order of memory, whatever LLVM's
    scheduler does with them: a row of 14 windows that is written out reads at 60 % of the bandwidth.
    """
    below = passes[0].input_tensors[0].op
    data = (below if below in columns else passes[0]).input_tensors[0]
    tile = _band_tile(out.op, data, measured().pooling.pass_tile)
    row, tiles, _ = tile_windows(out, tile, parallel)
    out.pragma(row, "loop_partition_hint", 1)
    out.pragma(tiles, "no_unroll", 1)
    accumulate_windows(sums, out, tiles)
    for op in passes:
        partial, line = s[s.cache_write(op.output(0), "local")], s[op]
        line.compute_at(out, row)
        tiles, column = line.split(line.op.axis[3], factor=tile[1])
        line.pragma(tiles, "loop_partition_hint", 1)
        line.pragma(tiles, "no_unroll", 1)
        unroll_and_vectorize(line, [column], line.op.axis[4])
        accumulate_windows(partial, line, tiles)
        if op is passes[0] and below in columns:
            accumulate_windows(s[below], line, tiles)


def _band_tile(out: Any, data: te.Tensor, most: int) -> tuple[int, int]:
    """Rows of a band and columns of a tile, at ``most`` so many, for packed windows of ``data``.

    A thread that starts anew elsewhere in memory waits for some 0.8 us. So threads take whole planes, unless these are
    large or few.
    """
    pooling = measured().pooling
    planes, (rows, width) = prod(constant_extent(a) or 1 for a in out.axis[:2]), out.axis[2:4]
    plane = (element_count(data) or 0) * dt.nbytes(data.dtype) // planes
    bands, missing = plane // pooling.long_band, -(-pooling.bands_per_core * machine().cores // planes)
    bands = 1 if max(bands, missing) <= 1 else 2 * -(-max(bands, missing) // 2)
    return -(-(constant_extent(rows) or 1) // bands), even_tile(constant_extent(width) or 1, most)


def _same_shape(a: Any, b: Any) -> bool:
    return [constant_extent(x) for x in a.axis] == [constant_extent(x) for x in b.axis]


def _split_row(stage: te.Stage, axis: IterVar, dtype: str) -> tuple[IterVar, IterVar | None]:
    """``split_vector``, but a row shorter than a vector is one: 3x3 windows two apart of 28x28 35 instead of 116 us."""
    extent, lanes = constant_extent(axis), vector_lanes(dtype)
    if extent is None or not 1 < extent < lanes:
        return split_vector(stage, axis, extent, lanes)
    stage.vectorize(axis)
    return axis, axis


def _schedule_windows(stage: te.Stage, axes: list[IterVar], dtype: str, leading: int) -> None:
    """Vectorise the innermost output axis inside the loops over the window."""
    if len(axes) <= leading:
        return
    blocks, vector = _split_row(stage, axes[-1], dtype)
    if vector is None:
        return
    outer = [*axes[:-1], *([] if blocks is vector else [blocks])]
    stage.reorder(*outer, *stage.op.reduce_axis, vector)


def schedule_adaptive_pool(outs: Any, layout: str = "NCHW") -> te.Schedule:
    """Schedule an adaptive or global pooling."""
    return schedule_pool(outs, layout)
