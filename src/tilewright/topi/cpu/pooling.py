"""Schedules of pooling."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright import te
from tilewright.autotvm.task.choices import choose
from tilewright.te.operation import producer_loads
from tilewright.tir.expr import IterVar
from tilewright.tir.visitor import free_vars
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    find_anchor,
    inline_injective,
    machine,
    measured,
    operations,
    output_tensors,
    same_shape,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.loops import (
    accumulate_windows,
    fuse_all,
    schedule_windows,
    split_vector,
    tile_windows,
    unroll_and_vectorize,
)
from tilewright.topi.cpu.model.windows import band_tile, plane_bytes, reads_past_border, window_tile
from tilewright.topi.cpu.reduction import innermost_is_reduced, schedule_reduce
from tilewright.topi.kinds import PAD, POOL_COLUMNS, POOL_ROWS, POOLS


def _takes_whole_rows(pool: Any) -> bool:
    """Return whether windows are as wide as the data, with no padding along the width."""
    moving = {iv.var for iv in pool.axis}
    rows = [load.indices[-1] for load in producer_loads(pool.body[0].source)]
    padded = any(PAD(t.op) for t in pool.input_tensors)
    return not padded and innermost_is_reduced(pool) and not any(v in moving for i in rows for v in free_vars(i))


def schedule_pool(outs: Any, layout: str) -> te.Schedule:
    """Schedule a local, adaptive or global pooling with injective computes before and after it.

    Windows as wide as the data, such as those of a global pooling, take the schedule of row reductions. Packed channels
    are reduced in register blocks (``_schedule_packed``), columns in planes (``_schedule_planes``).
    """
    tensors = output_tensors(outs)
    pool = find_anchor(tensors, POOLS)
    if pool is not None and _takes_whole_rows(pool):
        return schedule_reduce(outs)
    s = create_schedule(tensors)
    if pool is None:
        inline_injective(s, tensors)
        return s
    packed = layout[-1:] in ("c", "C")
    parts = _PoolParts.of(tensors, pool, packed)
    weights = [op for op in operations(tensors) if op.name == "pool_weights" and not packed]
    inline_injective(s, tensors, keep=[*parts.pads, *weights])
    if any(constant_extent(a) == 0 for a in pool.axis):
        return s
    if packed and parts.fills_vectors:
        _schedule_packed(s, parts)
    else:
        _schedule_planes(s, parts)
    if parts.out.op is not pool and not parts.follows:
        schedule_injective_from_existing(s, parts.out)
    return s


@dataclass(frozen=True)
class _PoolParts:
    """The operations of a pooling, as ``topi.nn.pool_nd`` makes them, and the computes after it.

    ``passes`` reduce rows of packed windows, each from where the one before it ended; ``shared`` the columns that
    windows have in common, of which ``direct`` ones read the data itself, and others the padded copies ``pads``.
    ``follows``: the result ``out`` is computed along with the windows of ``pool``, element by element.
    """

    out: te.Tensor
    pool: Any
    passes: list[Any]
    shared: list[Any]
    direct: list[Any]
    pads: list[Any]
    follows: bool

    @staticmethod
    def of(tensors: list[te.Tensor], pool: Any, packed: bool) -> _PoolParts:
        """Collect the parts of ``pool``, on which ``tensors`` depend."""
        passes = [op for op in operations(tensors) if POOL_ROWS(op)]
        below = [t.op for op in (*passes, pool) for t in op.input_tensors if t.op not in passes]
        shared = [op for op in below if POOL_COLUMNS(op)]
        direct = [op for op in shared if not packed and reads_past_border(op, tensors[0].dtype)]
        readers = [] if packed or direct else [*below, *(t.op for op in shared for t in op.input_tensors)]
        pads = [op for op in readers if PAD(op)]
        out = tensors[0]
        follows = out.op is not pool and same_shape(out.op, pool)
        return _PoolParts(out, pool, passes, shared, direct, pads, follows)

    @property
    def fills_vectors(self) -> bool:
        """Return whether windows are two-dimensional and a block has enough channels to fill vectors."""
        windows = bool(self.shared) or len(self.pool.reduce_axis) == 2
        block = constant_extent(self.pool.axis[-1]) or 0
        return windows and len(self.pool.axis) == 5 and block >= measured().pooling.least_block

    @property
    def last(self) -> Any:
        """The operation whose loops hold the windows."""
        return self.out.op if self.follows else self.pool


def _schedule_packed(s: te.Schedule, parts: _PoolParts) -> None:
    """Reduce blocks of channels in registers, a tile of columns at a time; passes run a row of the result at a time."""
    pool, stage = parts.pool, s[parts.last]
    sums = pool.output(0) if parts.follows else s.cache_write(pool.output(0), "local")
    parallel = worth_threads(pool)
    if parts.passes:
        _schedule_passes(s, stage, s[sums], parts.passes, parts.shared, parallel)
    elif parts.shared:
        _schedule_shared_columns(stage, s[sums], s[parts.shared[0]], parallel)
    else:
        extents = (*stage.op.axis[2:4], pool.reduce_axis[1])
        schedule_windows(stage, s[sums], window_tile(*(constant_extent(a) or 1 for a in extents)), parallel)


def _schedule_planes(s: te.Schedule, parts: _PoolParts) -> None:
    """Reduce windows plane by plane, a row of the result at a time, in vectors along its columns.

    Padding is materialised per plane, so that no lane has to test for it.
    """
    pool, stage, dtype = parts.pool, s[parts.last], parts.pool.output(0).dtype
    axes = list(stage.op.axis)
    leading = 2 if len(axes) > 3 else 1
    plane = fuse_all(stage, axes[:leading])
    assert plane is not None
    inner = axes[leading:]
    if parts.follows and parts.shared:
        _schedule_sums(stage, s[pool], inner, parts.out.dtype)
    elif parts.follows:
        if inner:
            _split_row(stage, inner[-1], parts.out.dtype)
        s[pool].compute_at(stage, plane)
        _schedule_windows(s[pool], list(pool.axis), dtype, leading)
    else:
        _schedule_windows(stage, [plane, *inner], dtype, 1)
    for op in parts.pads:
        s[op].compute_at(stage, plane)
        for axis in op.axis[leading:]:
            s[op].pragma(axis, "loop_partition_hint", 1)  # rows without their border are for LLVM: it copies them
    row = (inner if parts.follows else pool.axis)[-2 if len(pool.axis) > 3 else -1]
    _schedule_columns(s, parts, plane, row, leading)
    if worth_threads(pool):
        stage.parallel(plane)


def _schedule_columns(s: te.Schedule, parts: _PoolParts, plane: IterVar, row: IterVar, leading: int) -> None:
    """Reduce the shared columns of windows per ``plane``, or per ``row`` if a plane exceeds the first-level cache."""
    for op in (*parts.shared, *parts.passes):
        # A row that has just been stored is loaded slowly from where two stores meet: a plane of them is done first.
        whole = op in parts.direct or parts.passes or plane_bytes(op, leading) <= machine().l1_bytes
        s[op].compute_at(s[parts.last], plane if whole else row)
        if op in parts.direct:
            _schedule_direct_columns(s[op], leading)
        else:
            _schedule_windows(s[op], list(op.axis), parts.pool.output(0).dtype, leading)


def _schedule_direct_columns(columns: te.Stage, leading: int) -> None:
    """Reduce the columns of a plane with the border partitioned off, so that sums inside need no conditions."""
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
    """Schedule overlapping packed windows: ``columns`` reduces each column of a window, ``sums`` adds columns.

    Unrolled, neighbouring windows share columns, which LLVM computes once: every element is loaded once for each row
    of a window, and loads and stores alternate. Bursts of loads leave memory idle in between: of 3x3 windows one apart,
    in no cache, 77 instead of 91 % of the bandwidth of a copy, and 55 % where each window reads all of its elements.
    """
    pooling = measured().pooling
    taps = prod(constant_extent(stage.op.reduce_axis[0]) or 1 for stage in (columns, sums))
    small = taps <= measured().convolution.most_taps
    most = min(pooling.widest_tile, pooling.most_written_out // taps) if small else pooling.large_windows
    row, tiles, column = tile_windows(out, band_tile(out.op, columns.op.input_tensors[0], most), parallel)
    out.pragma(row, "loop_partition_hint", 1)
    accumulate_windows(sums, out, column if small else tiles)
    accumulate_windows(columns, out, column if small else tiles, small)


def _schedule_passes(s: te.Schedule, out: te.Stage, sums: te.Stage, passes: list[Any], columns: list[Any],
                     parallel: bool) -> None:  # fmt: skip
    """Schedule packed windows whose rows are reduced in ``passes``, each over a row of the result, and then summed.

    The tiles of a pass are small and its loop stays one, so that loads keep the order of memory, whatever LLVM's
    scheduler does with them: a row of 14 windows that is unrolled reads at 60 % of the bandwidth.
    """
    below = passes[0].input_tensors[0].op
    data = (below if below in columns else passes[0]).input_tensors[0]
    tile = band_tile(out.op, data, measured().pooling.pass_tile)
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


def _split_row(stage: te.Stage, axis: IterVar, dtype: str) -> tuple[IterVar, IterVar | None]:
    """Split by ``split_vector``, but take rows shorter than a vector as one (3x3 windows, stride 2: 35, not 116 us)."""
    extent, lanes = constant_extent(axis), vector_lanes(dtype)
    if extent is None or not 1 < extent < lanes:
        return split_vector(stage, axis, extent, lanes)
    stage.vectorize(axis)
    return axis, axis


def _schedule_windows(stage: te.Stage, axes: list[IterVar], dtype: str, leading: int) -> None:
    """Vectorise the innermost output axis inside the loops over the window, which tuning may unroll."""
    taps = [constant_extent(axis) for axis in stage.op.reduce_axis]
    small = None not in taps and prod(tap or 1 for tap in taps) <= measured().convolution.most_taps
    if small and choose("write_out_windows", [False, True], False):
        for axis in stage.op.reduce_axis:
            stage.unroll(axis)
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
