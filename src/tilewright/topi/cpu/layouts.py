"""Layouts of packed convolutions: the model's, or those of a tuning record (``autotvm.task.choices``)."""

from __future__ import annotations

import math
from typing import Any

from tilewright.autotvm.task.choices import ALGORITHM, choose_part, choosing
from tilewright.target.features import features
from tilewright.target.target import Target
from tilewright.topi import nn
from tilewright.topi.cpu.model.conv2d import Conv2dLayouts, accumulator_bits, channel_block, conv2d_layouts
from tilewright.topi.nn.conv import output_extent, per_dim
from tilewright.topi.utils import get_pad_tuple

DIRECT, WINOGRAD, PLAIN, STRASSEN = "direct", "winograd", "plain", "strassen"
DATA_BLOCK, OUT_BLOCK, COLUMN_BLOCK = (
    "tile_ic",
    "tile_oc",
    "tile_x",
)  # TVM's names, of splits whose last part is the block


def choose_layouts(in_channels: int, out_channels: int, groups: int, dtype: str, window: int) -> Conv2dLayouts | None:
    """Return the layouts of a direct convolution, by default ``conv2d_layouts`` of the same arguments.

    When the default is not to pack, a record may still choose blocks; None when nothing can be packed.
    """
    best = conv2d_layouts(in_channels, out_channels, groups, dtype, window=window)
    if not min(in_channels, out_channels, groups):
        return best
    lanes, depthwise = features().lanes(accumulator_bits(dtype)), 1 < groups == in_channels
    if best is None:
        target = Target.current()
        shuffles = target is not None and target.kind.capabilities.vector_shuffles
        if depthwise or in_channels % groups or out_channels % groups or not shuffles:
            return None
        data_block, out_block = (channel_block(c // groups, lanes) for c in (in_channels, out_channels))
        best = _layouts(data_block, f"OIHW{data_block}i{out_block}o", out_block)
    if depthwise:
        block = choose_part(OUT_BLOCK, out_channels, _blocks(out_channels, lanes), best.out_block)
        return best if block == best.out_block else _layouts(block, f"OIHW1i{block}o", block)
    each, filters = in_channels // groups, out_channels // groups
    if best.in_block > each:  # several groups share vectors
        return best
    data_block = choose_part(DATA_BLOCK, each, _blocks(each, lanes), best.in_block)
    out_block = choose_part(OUT_BLOCK, filters, _blocks(filters, lanes), best.out_block)
    if (data_block, out_block) == (best.in_block, best.out_block):
        return best
    return _layouts(data_block, f"OIHW{data_block}i{out_block}o", out_block)


def _blocks(channels: int, lanes: int) -> list[int]:
    """Return the channel block sizes to try: divisors and multiples of a vector."""
    return [block for block in (max(1, lanes // 2), lanes, 2 * lanes, 3 * lanes) if channels % block == 0]


def _layouts(data_block: int, kernel: str, out_block: int) -> Conv2dLayouts:
    return Conv2dLayouts(f"NCHW{data_block}c", kernel, f"NCHW{out_block}c", data_block, out_block)


@nn.conv2d_infer_layout.provide("cpu")
def conv2d_infer_layout_cpu(workload: Any, cfg: Any) -> Any:
    """Infer layouts from the configuration's blocks; NCHW for unpacked channels."""
    _, (_, data, dtype), (_, kernel, _), strides, padding, dilation, *_ = workload
    n, in_channels, *image = data
    out_channels, each, *window = kernel
    arguments = in_channels, out_channels, max(1, in_channels // max(each, 1)), dtype
    chosen = conv2d_layouts(*arguments, window=math.prod(window))
    algorithm = str(cfg[ALGORITHM].val) if ALGORITHM in cfg else ""
    if (algorithm == DIRECT or OUT_BLOCK in cfg) and not algorithm.startswith((WINOGRAD, PLAIN)):
        with choosing(cfg):
            chosen = choose_layouts(*arguments, math.prod(window))
    rates = per_dim(dilation, 2)
    top, left, bottom, right = get_pad_tuple(
        padding, [(k - 1) * rate + 1 for k, rate in zip(window, rates, strict=True)]
    )
    sides = zip(image, window, per_dim(strides, 2), rates, (top, left), (bottom, right), strict=True)
    out = [int(output_extent(*side)) for side in sides]
    if chosen is None:
        return (((n, in_channels, *image), "NCHW"),), (((n, out_channels, *out), "NCHW"),)
    data_shape = (n, in_channels // chosen.in_block, *image, chosen.in_block)
    out_shape = (n, out_channels // chosen.out_block, *out, chosen.out_block)
    return ((data_shape, chosen.data_layout),), ((out_shape, chosen.out_layout),)


nn.depthwise_conv2d_infer_layout.provide("cpu", conv2d_infer_layout_cpu)
