"""Depthwise convolution of channel-packed and of plain data."""

from __future__ import annotations

from typing import Any

from tilewright import autotvm, te
from tilewright.autotvm.task.space import ConfigSpace, SplitEntity
from tilewright.topi import nn
from tilewright.topi.cpu.common import (
    constant_extent,
    create_schedule,
    inline_injective,
    output_tensors,
    same_shape,
    vector_lanes,
    worth_threads,
)
from tilewright.topi.cpu.conv2d_plain import schedule_conv_direct
from tilewright.topi.cpu.injective import schedule_injective_from_existing
from tilewright.topi.cpu.loops import schedule_windows
from tilewright.topi.cpu.model.tiling import block_vectors
from tilewright.topi.cpu.model.windows import window_tile
from tilewright.topi.kinds import DEPTHWISE_CONV2D_NCHWC
from tilewright.topi.utils import get_const_tuple


@autotvm.register_topi_compute("depthwise_conv2d_NCHWc.x86", version="2")
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
    """Compute ``topi.nn.depthwise_conv2d_NCHWc``: data (n, C, h, w, c), kernel (C, 1, kh, kw, 1, c)."""
    out = nn.depthwise_conv2d_NCHWc(data, kernel, strides, padding, dilation, layout, out_layout, out_dtype)
    rows, columns, block, window = (
        d if isinstance(d, int) else 1 for d in get_const_tuple((*out.shape[2:], kernel.shape[3]))
    )
    cfg.define_split("tile_oh", max(rows, 1), num_outputs=2, max_factor=32)
    cfg.define_split("tile_ow", max(columns, 1), num_outputs=2, max_factor=32, policy="verbose", no_tail=False)
    band, tile = window_tile(rows, columns, window, block_vectors(block, vector_lanes(out.dtype)))
    cfg.settle("tile_oh", SplitEntity([-1, band]))
    cfg.settle("tile_ow", SplitEntity([-1, tile]))
    return out


@autotvm.register_topi_schedule("depthwise_conv2d_NCHWc.x86")
def schedule_depthwise_conv2d_NCHWc(cfg: ConfigSpace, outs: Any) -> te.Schedule:
    """Schedule ``depthwise_conv2d_NCHWc`` with injective computes after it.

    A tile of columns times the block's channels accumulates in registers over the whole window. Windows that reach
    into the padding have loops of their own: the tiles at both ends of a row, and the rows at the top and bottom.
    """
    tensors = output_tensors(outs)
    s = create_schedule(tensors)
    anchor = DEPTHWISE_CONV2D_NCHWC.among(tensors)
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
    if last.output(0).dtype == "bfloat16":
        out.pragma(out.leaf_iter_vars[1], "flush_subnormals")  # as convolutions in tiles do
    return s


schedule_depthwise_conv2d_nchw = schedule_conv_direct
schedule_depthwise_conv2d_nhwc = schedule_conv_direct
