"""The layouts of packed convolutions: those of a record, else those of the model."""

from __future__ import annotations

import math
from typing import Any

from tilewright.autotvm.task.space import ConfigSpace
from tilewright.topi import nn
from tilewright.topi.cpu.model.conv2d import Conv2dLayouts, conv2d_layouts
from tilewright.topi.nn.conv import per_dim

DATA_BLOCK, OUT_BLOCK = "tile_ic", "tile_oc"  # knobs of TVM's template, whose last part is the block


def layouts_of(
    cfg: ConfigSpace, in_channels: int, out_channels: int, groups: int, dtype: str, window: int
) -> Conv2dLayouts | None:
    """What a configuration of a convolution's task says of its layouts; the model where it says nothing that fits."""
    chosen = conv2d_layouts(in_channels, out_channels, groups, dtype, window=window)
    if chosen is None or DATA_BLOCK not in cfg or OUT_BLOCK not in cfg:
        return chosen
    data_block, out_block = (int(cfg[name].size[-1]) for name in (DATA_BLOCK, OUT_BLOCK))
    if (data_block, out_block) == (chosen.in_block, chosen.out_block):
        return chosen
    depthwise = 1 < groups == in_channels
    each = out_channels if depthwise else in_channels // groups
    if (
        min(data_block, out_block) < 1
        or each % data_block
        or (out_channels // (1 if depthwise else groups)) % out_block
    ):
        return chosen
    if depthwise:
        kernel = f"OIHW1i{out_block}o"
        return chosen if data_block != out_block else _layouts(out_block, kernel, out_block)
    return _layouts(data_block, f"OIHW{data_block}i{out_block}o", out_block)


def _layouts(data_block: int, kernel: str, out_block: int) -> Conv2dLayouts:
    return Conv2dLayouts(f"NCHW{data_block}c", kernel, f"NCHW{out_block}c", data_block, out_block)


@nn.conv2d_infer_layout.register("cpu")
def conv2d_infer_layout_cpu(workload: Any, cfg: Any) -> Any:
    """By the configuration's blocks; NCHW where channels are not packed."""
    _, (_, data, dtype), (_, kernel, _), strides, padding, dilation, *_ = workload
    n, in_channels, *image = data
    out_channels, each, *window = kernel
    chosen = layouts_of(cfg, in_channels, out_channels, max(1, in_channels // max(each, 1)), dtype, math.prod(window))
    top, left, bottom, right = (*padding, *padding)[:4] if len(padding) == 2 else padding
    pads, steps, rates = (top + bottom, left + right), per_dim(strides, 2), per_dim(dilation, 2)
    sides = zip(image, window, pads, steps, rates, strict=True)
    out = [(x + pad - (k - 1) * rate - 1) // step + 1 for x, k, pad, step, rate in sides]
    if chosen is None:
        return (((n, in_channels, *image), "NCHW"),), (((n, out_channels, *out), "NCHW"),)
    data_shape = (n, in_channels // chosen.in_block, *image, chosen.in_block)
    out_shape = (n, out_channels // chosen.out_block, *out, chosen.out_block)
    return ((data_shape, chosen.data_layout),), ((out_shape, chosen.out_layout),)


nn.depthwise_conv2d_infer_layout.register("cpu", conv2d_infer_layout_cpu)
