"""Depthwise convolution of channel-packed and of plain data."""

from __future__ import annotations

from typing import Any

from tilewright import autotvm, te
from tilewright.autotvm.space import ConfigSpace, SplitEntity
from tilewright.tir.expr import IterVar
from tilewright.topi import nn
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    find_anchor,
    inline_injective,
    machine,
    measured,
    output_tensors,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.conv2d import same_shape, unroll_and_vectorize
from tilewright.topi.cpu.conv2d_plain import schedule_conv_direct
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.tiling import block_vectors, even_tile
from tilewright.topi.utils import get_const_tuple


@autotvm.register_topi_compute("depthwise_conv2d_NCHWc.x86")
def depthwise_conv2d_NCHWc(
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
    """``topi.nn.depthwise_conv2d_NCHWc``: data (n, C, h, w, c), kernel (C, 1, kh, kw, 1, c)."""
    out = nn.depthwise_conv2d_NCHWc(data, kernel, strides, padding, dilation, layout, out_layout, out_dtype)
    rows, columns, block, window = (
        d if isinstance(d, int) else 1 for d in get_const_tuple((*out.shape[2:], kernel.shape[3]))
    )
    cfg.define_split("tile_oh", max(rows, 1), num_outputs=2, max_factor=32)
    cfg.define_split("tile_ow", max(columns, 1), num_outputs=2, max_factor=32, policy="verbose", no_tail=False)
    if cfg.is_fallback:
        band, tile = window_tile(rows, columns, window, block_vectors(block, vector_lanes(out.dtype)))
        cfg["tile_oh"], cfg["tile_ow"] = SplitEntity([-1, band]), SplitEntity([-1, tile])
    return out


@autotvm.register_topi_schedule("depthwise_conv2d_NCHWc.x86")
def schedule_depthwise_conv2d_NCHWc(cfg: ConfigSpace, outs: Any) -> te.Schedule:
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
    tile = cfg["tile_oh"].size[-1], cfg["tile_ow"].size[-1]
    schedule_windows(out, s[accumulators], tile, parallel=worth_threads(anchor))
    return s


def window_tile(rows: int, columns: int, window: int, vectors: int = 1) -> tuple[int, int]:
    """Rows of a band and columns of a tile for a result of ``rows`` x ``columns``, of windows ``window`` wide.

    ``vectors``: registers that a block of channels takes.
    """
    return _band_height(max(rows, 1)), _tile_width(columns, window, vectors)


def schedule_windows(out: te.Stage, accumulators: te.Stage, tile: tuple[int, int], parallel: bool) -> None:
    """Schedule the windows of packed data (n, c, oh, ow, block): a tile of columns accumulates in registers.

    ``accumulators`` reduces over the window's rows and columns, ``out`` stores a tile. Threads take bands of rows.
    ``tile`` is a band's rows and a tile's columns. Tiles whose windows reach into the padding get loops of their own.
    """
    accumulate_windows(accumulators, out, tile_windows(out, tile, parallel)[1])


def accumulate_windows(stage: te.Stage, at: te.Stage, loop: IterVar, written_out: bool = True) -> None:
    """Reduce a tile of packed windows (n, c, oh, ow, block) in registers, in ``loop`` of ``at``.

    The tile's columns are written out; with ``written_out`` the window's columns too, and its rows, while that makes no
    more elements than the record's ``most_taps``.
    """
    convolution = measured().convolution
    stage.set_scope("local")
    stage.compute_at(at, loop)
    n, c, oh, ow, block = stage.op.axis
    stage.reorder(n, c, oh, *stage.op.reduce_axis, ow, block)
    unrolled, taps = [ow], 1
    for axis in reversed(stage.op.reduce_axis):
        taps *= constant_extent(axis) or convolution.most_taps
        if not written_out or taps > convolution.most_taps:
            break
        unrolled.insert(0, axis)
    unroll_and_vectorize(stage, unrolled, block)


def tile_windows(out: te.Stage, tile: tuple[int, int], parallel: bool) -> tuple[IterVar, IterVar, IterVar]:
    """Cut a result (n, c, oh, ow, block) into bands of rows for threads and tiles of columns.

    Gives the loops over a band's rows, a row's tiles and a tile's columns.
    """
    n, c, oh, ow, block = out.op.axis
    tiles, column = out.split(ow, factor=tile[1])
    out.pragma(tiles, "loop_partition_hint", 1)
    band, row = out.split(oh, factor=tile[0])
    # Threads take bands of rows, as in the convolutions before and after: what they read, they wrote themselves.
    out.reorder(n, band, c, row, tiles, column, block)
    fused = out.fuse(n, band, c)
    if parallel:
        out.parallel(fused)
    unroll_and_vectorize(out, [column], block)
    return row, tiles, column


def _band_height(rows: int) -> int:
    """Rows that one thread computes of a channel block at a time: few, of bands that two threads can share."""
    fitting = [d for d in range(1, measured().convolution.most_band_rows + 1) if rows % d == 0]
    return max([d for d in fitting if rows // d % 2 == 0] or fitting)


def _tile_width(columns: int, window: int, vectors: int) -> int:
    """Positions of a row to work on at a time: tiles of like size, each with registers to spare for what it loads."""
    most = max(1, machine().vector_registers // 2 // vectors)
    return even_tile(columns, min(most, 8) if window <= measured().convolution.narrow_window else most)


schedule_depthwise_conv2d_nchw = schedule_conv_direct
schedule_depthwise_conv2d_nhwc = schedule_conv_direct
