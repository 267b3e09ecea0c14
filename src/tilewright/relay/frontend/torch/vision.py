"""Operators of torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.torch.context import TorchContext
from tilewright.relay.frontend.torch.registry import converter

_LEAST = np.finfo(np.float32).min


@converter("torchvision::roi_align", in_float32=True)
def convert_roi_align(
    ctx: TorchContext,
    x: RelayExpr,
    regions: RelayExpr,
    scale: float,
    height: int,
    width: int,
    ratio: int,
    aligned: bool,
) -> RelayExpr:
    """Samples of regions (batch index, left, top, right, bottom), averaged."""
    parts = relay_op.split(regions, (1,), axis=1)
    batch = typed(relay_op.cast(relay_op.squeeze(parts[0], axis=[1]), "int64"))
    found: RelayExpr = ctx.part(
        "RoiAlign", [x, typed(parts[1]), batch], output_height=int(height), output_width=int(width),
        sampling_ratio=max(ratio, 0), spatial_scale=float(scale),
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )  # fmt: skip
    return found


@converter("torchvision::roi_pool", in_float32=True)
def convert_roi_pool(
    ctx: TorchContext, x: RelayExpr, regions: RelayExpr, scale: float, height: int, width: int
) -> list[Any]:
    """Maxima of the bins of regions; their places are not computed."""
    return [
        ctx.part("MaxRoiPool", [x, regions], pooled_shape=[int(height), int(width)], spatial_scale=float(scale)),
        None,
    ]


@converter("torchvision::nms")
def convert_nms(ctx: TorchContext, boxes: RelayExpr, scores: RelayExpr, threshold: float) -> RelayExpr:
    """The boxes that overlap no better one by more than the threshold, the best first."""
    rows = ctx.cast(typed(relay_op.expand_dims(boxes, axis=0)), "float32")
    scores = relay_op.maximum(ctx.cast(scores, "float32"), const(_LEAST))  # ONNX leaves boxes of score -inf out
    values = typed(relay_op.expand_dims(scores, axis=0, num_newaxis=2))
    most = const(1 << 30, "int64")
    found = ctx.part("NonMaxSuppression", [rows, values, most, const(float(threshold), "float32")])
    return relay_op.take(found, const(2, "int64"), axis=1)


@converter("torchvision::deform_conv2d", in_float32=True)
def convert_deform_conv(
    ctx: TorchContext, x: RelayExpr, weight: RelayExpr, offset: RelayExpr, mask: RelayExpr, bias: RelayExpr,
    stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, groups: int,
    offset_groups: int, use_mask: bool,
) -> RelayExpr:  # fmt: skip
    """A convolution whose taps move."""
    found: RelayExpr = ctx.part(
        "DeformConv", [x, weight, offset, bias, mask if use_mask else None], strides=[stride_h, stride_w],
        pads=[pad_h, pad_w, pad_h, pad_w], dilations=[dilation_h, dilation_w], group=groups, offset_group=offset_groups,
    )  # fmt: skip
    return found
