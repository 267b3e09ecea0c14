"""Schedules of pooling."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.tir.expr import IterVar
from tilewright.topi import tag
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    find_anchor,
    fuse_all,
    operations,
    output_tensors,
    split_vector,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.depthwise_conv2d import schedule_windows, window_tile
from tilewright.topi.cpu.injective import schedule_injective_from_existing

_LEAST_BLOCK = 4  # packed channels that are worth a vector


def _is_pool(op: Any) -> bool:
    return op.tag.startswith(("pool_max", "pool_sum", "adaptive_pool"))


def schedule_pool(outs: Any, layout: str) -> te.Schedule:
    """Schedule a local, adaptive or global pooling with injective computes before and after it.

    The window is reduced for one row of output at a time; the innermost dimension (packed channels, or columns) is
    vectorised. Packed channels are reduced in registers, a tile of columns at a time. Where columns are innermost,
    padding is materialised per plane, so that no lane has to test for it.
    """
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    pool = find_anchor(tensors, _is_pool)
    packed = layout[-1:] == "c" or layout[-1:] == "C"
    pads = [
        op for op in operations(tensors) if "pad" in op.tag and not packed and pool is not None
        and any(t.op is op for t in pool.input_tensors)
    ]  # fmt: skip
    for op in operations(tensors):
        if isinstance(op, te.ComputeOp) and tag.is_injective(op.tag) and op not in s.outputs and op not in pads:
            s[op].compute_inline()
    if pool is None or any(constant_extent(a) == 0 for a in pool.axis):
        return s
    out = tensors[0]
    follows = out.op is not pool and _same_shape(out.op, pool)
    stage = s[out.op] if follows else s[pool]
    axes = list(stage.op.axis)
    if packed and len(axes) == 5 and len(pool.reduce_axis) == 2 and (constant_extent(axes[-1]) or 0) >= _LEAST_BLOCK:
        sums = pool.output(0) if follows else s.cache_write(pool.output(0), "local")
        s[sums].set_scope("local")
        tile = window_tile(*(constant_extent(a) or 1 for a in (*axes[2:4], pool.reduce_axis[1])))
        schedule_windows(stage, s[sums], tile, parallel=worth_threads(pool))
        if out.op is not pool and not follows:
            schedule_injective_from_existing(s, out)
        return s
    outer, inner = (axes[:2], axes[2:]) if len(axes) > 3 else (axes[:1], axes[1:])
    plane = fuse_all(stage, outer)
    assert plane is not None
    if follows:
        _vectorize(stage, inner, out.dtype)
        s[pool].compute_at(stage, plane)
        _schedule_windows(s[pool], list(pool.axis), pool.output(0).dtype, len(outer))
    else:
        _schedule_windows(stage, [plane, *inner], pool.output(0).dtype, 1)
    for op in pads:
        s[op].compute_at(stage, plane)
    if worth_threads(pool):
        stage.parallel(plane)
    if out.op is not pool and not follows:
        schedule_injective_from_existing(s, out)
    return s


def _same_shape(a: Any, b: Any) -> bool:
    return [constant_extent(x) for x in a.axis] == [constant_extent(x) for x in b.axis]


def _vectorize(stage: te.Stage, axes: list[IterVar], dtype: str) -> None:
    if axes:
        split_vector(stage, axes[-1], constant_extent(axes[-1]), vector_lanes(dtype))


def _schedule_windows(stage: te.Stage, axes: list[IterVar], dtype: str, leading: int) -> None:
    """Vectorise the innermost output axis inside the loops over the window."""
    if len(axes) <= leading:
        return
    blocks, vector = split_vector(stage, axes[-1], constant_extent(axes[-1]), vector_lanes(dtype))
    if vector is None:
        return
    outer = [*axes[:-1], *([] if blocks is vector else [blocks])]
    stage.reorder(*outer, *stage.op.reduce_axis, vector)


def schedule_adaptive_pool(outs: Any, layout: str = "NCHW") -> te.Schedule:
    """Schedule an adaptive or global pooling."""
    return schedule_pool(outs, layout)
