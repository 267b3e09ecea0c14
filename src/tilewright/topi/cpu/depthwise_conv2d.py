"""Depthwise convolution of channel-packed and of plain data."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    find_anchor,
    inline_injective,
    machine,
    output_tensors,
    worth_threads,
)
from tilewright.topi.cpu.conv2d import padding_of, same_shape, unroll_and_vectorize
from tilewright.topi.cpu.conv2d_plain import schedule_conv_direct
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.tiling import choose_tile

_MIN_TASKS = 16  # parallel iterations that still occupy the cores of a large machine


def schedule_depthwise_conv2d_NCHWc(outs: Any) -> te.Schedule:
    """Schedule ``depthwise_conv2d_NCHWc`` with injective computes after it.

    One task pads and convolves a band of rows of one channel block, so the padded rows stay in cache; a tile of
    columns times the block's channels accumulates in registers.
    """
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = find_anchor(tensors, lambda op: op.tag == "depthwise_conv2d_NCHWc")
    assert anchor is not None
    pad = padding_of(anchor)
    inline_injective(s, tensors, keep=[pad] if pad is not None else [])
    if any(constant_extent(a) == 0 for a in anchor.axis):
        return s
    conv, last = anchor.output(0), tensors[0].op
    if last is not anchor and not same_shape(last, anchor):
        schedule_injective_from_existing(s, tensors[0])
        last = anchor
    accumulators = s.cache_write(conv, "local") if last is anchor else conv
    out = s[last]
    if last is not anchor:
        s[conv].set_scope("local")
    n, c, oh, ow, block = out.op.axis
    rows, columns = constant_extent(oh) or 1, constant_extent(ow) or 1
    tile = choose_tile(machine(), min(columns, 64), [1])
    spatial = min(tile.spatial, 8 if columns % 8 == 0 else 7 if columns % 7 == 0 else tile.spatial)
    band = max((d for d in range(1, rows + 1) if rows % d == 0 and rows // d * _planes(out) >= _MIN_TASKS), default=1)
    band_outer, _ = out.split(oh, factor=band)
    ow_outer, ow_inner = out.split(ow, factor=spatial)
    if columns % spatial:
        out.pragma(ow_outer, "loop_partition_hint", 1)
    fused = out.fuse(n, c, band_outer)
    if worth_threads(anchor):
        out.parallel(fused)
    unroll_and_vectorize(out, [ow_inner], block)
    inner = s[accumulators]
    inner.compute_at(out, ow_outer)
    tn, tc, toh, tow, tblock = inner.op.axis
    inner.reorder(tn, tc, toh, *inner.op.reduce_axis, tow, tblock)
    unroll_and_vectorize(inner, [*inner.op.reduce_axis, tow], tblock)
    if pad is not None:
        s[pad].compute_at(out, fused)
        s[pad].vectorize(pad.axis[-1])
    return s


def _planes(stage: te.Stage) -> int:
    return (constant_extent(stage.op.axis[0]) or 1) * (constant_extent(stage.op.axis[1]) or 1)


schedule_depthwise_conv2d_nchw = schedule_conv_direct
schedule_depthwise_conv2d_nhwc = schedule_conv_direct
