"""Batch normalization."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.dynamic import runtime_extent
from tilewright.relay.frontend.tensorflow.context import NodeContext
from tilewright.relay.frontend.tensorflow.conv import is_channels_first, over_images
from tilewright.relay.frontend.tensorflow.registry import converter


@converter("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def convert_fused_batch_norm(ctx: NodeContext) -> list[Any]:
    """Data less the mean of their channel, over its deviation: stated ones, or in training those of the data."""
    data, scale, offset, mean, variance = ctx.inputs(0, 5)
    epsilon, wide = float(ctx.attr("epsilon", 1e-4)), ctx.dtype(scale)
    first = is_channels_first(ctx)
    own = ctx.dtype(data)
    stated: list[RelayExpr] = [mean, variance]
    if ctx.attr("is_training", True):
        stated = _statistics(ctx, ctx.cast(data, wide), first)
    centre, spread = (stated[0], stated[1]) if not ctx.attr("is_training", True) else (stated[0], stated[2])

    def build(image: RelayExpr) -> RelayExpr:
        found = relay_op.nn.batch_norm(ctx.cast(image, wide), scale, offset, centre, spread, axis=1, epsilon=epsilon)
        return ctx.cast(typed(found[0]), own)

    normal = over_images(ctx, data, first, build)
    return [normal, stated[0], stated[1], stated[0], spread]


def _statistics(ctx: NodeContext, data: RelayExpr, first: bool) -> list[RelayExpr]:
    """Return the means of the channels, their variances without bias, and their variances."""
    rank = ctx.rank(data)
    axes = [a for a in range(rank) if a != (1 if first else rank - 1)]
    mean = ctx.part("ReduceMean", [data, ctx.int64(axes)], keepdims=1)
    off = ctx.part("Sub", [data, mean])
    spread = ctx.part("ReduceMean", [ctx.part("Mul", [off, off]), ctx.int64(axes)], keepdims=0)
    dims = [ctx.dims(data)[a] for a in axes]
    dtype = ctx.dtype(data)
    if all(map(is_number, dims)):
        count = math.prod(dims)
        unbiased = relay_op.multiply(spread, const(count / max(count - 1, 1), dtype))
    else:
        total: RelayExpr = const(np.array(1, "int64"))
        for axis in axes:
            total = relay_op.multiply(total, runtime_extent(data, axis))
        number = relay_op.cast(total, dtype)
        less = relay_op.maximum(relay_op.subtract(number, const(1.0, dtype)), const(1.0, dtype))
        unbiased = relay_op.multiply(spread, relay_op.divide(number, less))
    flat = ctx.part("ReduceMean", [data, ctx.int64(axes)], keepdims=0)
    return [flat, typed(unbiased), spread]


@converter("BatchNormWithGlobalNormalization")
def convert_batch_norm_with_global_normalization(ctx: NodeContext) -> RelayExpr:
    """Data less a mean, over a deviation, times a scale where that is asked for."""
    data, mean, variance, offset, scale = ctx.inputs(0, 5)
    if not ctx.attr("scale_after_normalization", False):
        scale = typed(relay_op.ones_like(mean))
    epsilon = float(ctx.attr("variance_epsilon", 1e-4))
    return over_images(
        ctx, data, False,
        lambda image: relay_op.nn.batch_norm(image, scale, offset, mean, variance, axis=1, epsilon=epsilon)[0],
    )  # fmt: skip
