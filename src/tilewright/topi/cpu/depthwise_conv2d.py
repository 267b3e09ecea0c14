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
from tilewright.topi.cpu.conv2d import same_shape, unroll_and_vectorize
from tilewright.topi.cpu.conv2d_plain import schedule_conv_direct
from tilewright.topi.cpu.injective import schedule_injective_from_existing

_MOST_ROWS = 8  # of a band: the rows at both ends are read twice
_MOST_TAPS = 32  # of a window that is written out
_NARROW = 3  # columns of a window below which tiles of 8 positions keep the units busy (measured)


def schedule_depthwise_conv2d_NCHWc(outs: Any) -> te.Schedule:
    """Schedule ``depthwise_conv2d_NCHWc`` with injective computes after it.

    A tile of columns times the block's channels accumulates in registers over the whole window. Windows that reach
    into the padding have loops of their own: the tiles at both ends of a row, and the rows at the top and bottom.
    """
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = find_anchor(tensors, lambda op: op.tag == "depthwise_conv2d_NCHWc")
    assert anchor is not None
    inline_injective(s, tensors)
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
    schedule_windows(out, s[accumulators], parallel=worth_threads(anchor))
    return s


def schedule_windows(out: te.Stage, accumulators: te.Stage, parallel: bool) -> None:
    """Schedule the windows of packed data (n, c, oh, ow, block): a tile of columns accumulates in registers.

    ``accumulators`` reduces over the window's rows and columns, ``out`` stores a tile. Tiles whose windows reach into
    the padding get loops of their own.
    """
    n, c, oh, ow, block = out.op.axis
    rh, rw = accumulators.op.reduce_axis
    width, height = constant_extent(rw) or _MOST_TAPS, constant_extent(rh) or _MOST_TAPS
    ow_outer, ow_inner = out.split(ow, factor=_tile_width(constant_extent(ow) or 1, width))
    out.pragma(ow_outer, "loop_partition_hint", 1)
    band, row = out.split(oh, factor=_band_height(constant_extent(oh) or 1))
    # Threads take bands of rows, as in the convolutions before and after: what they read, they wrote themselves.
    out.reorder(n, band, c, row, ow_outer, ow_inner, block)
    fused = out.fuse(n, band, c)
    if parallel:
        out.parallel(fused)
    unroll_and_vectorize(out, [ow_inner], block)
    accumulators.compute_at(out, ow_outer)
    tn, tc, toh, tow, tblock = accumulators.op.axis
    accumulators.reorder(tn, tc, toh, rh, rw, tow, tblock)
    written_out = [tow] if width > _MOST_TAPS else [rw, tow] if width * height > _MOST_TAPS else [rh, rw, tow]
    unroll_and_vectorize(accumulators, written_out, tblock)


def _band_height(rows: int) -> int:
    """Rows that one thread computes of a channel block at a time: few, of bands that two threads can share."""
    fitting = [d for d in range(1, _MOST_ROWS + 1) if rows % d == 0]
    return max([d for d in fitting if rows // d % 2 == 0] or fitting)


def _tile_width(columns: int, window: int) -> int:
    """Positions of a row to work on at a time: tiles of like size, each with registers to spare for what it loads."""
    most = machine().vector_registers // 2
    tiles = -(-columns // (min(most, 8) if window <= _NARROW else most))
    return -(-columns // tiles)


schedule_depthwise_conv2d_nchw = schedule_conv_direct
schedule_depthwise_conv2d_nhwc = schedule_conv_direct
