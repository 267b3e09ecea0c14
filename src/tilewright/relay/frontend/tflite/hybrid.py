"""Products of floats with 8-bit weights (dynamic range): data are rounded to 8 bits when the model runs.

Each row, or image, has a scale and a zero point of its own, so that the least and the greatest of its numbers and 0 are
-128 and 127 steps, as in TensorFlow Lite's XNNPACK kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.tflite.context import OperatorContext, typed

Array = np.ndarray[Any, Any]


def _rounded(value: RelayExpr, axes: Sequence[int]) -> tuple[RelayExpr, RelayExpr]:
    """Return steps less their zero point, float32, and the size of a step, for all but some axes."""
    zero = const(0.0)
    least = relay_op.minimum(relay_op.min(value, axis=list(axes), keepdims=True), zero)
    most = relay_op.maximum(relay_op.max(value, axis=list(axes), keepdims=True), zero)
    alike = relay_op.equal(least, most)
    scale = relay_op.where(alike, const(1.0), relay_op.divide(const(255.0), relay_op.subtract(most, least)))
    low, high = relay_op.multiply(least, scale), relay_op.multiply(most, scale)
    from_low = relay_op.subtract(const(-128.0), low)
    from_high = relay_op.subtract(const(127.0), high)
    errors = relay_op.add(relay_op.add(const(-128.0), low), relay_op.add(const(127.0), high))
    point = relay_op.where(relay_op.greater(errors, zero), from_low, from_high)
    point = relay_op.nearbyint(relay_op.clip(point, -128.0, 127.0))
    steps = relay_op.add(relay_op.nearbyint(relay_op.multiply(value, scale)), point)
    return relay_op.subtract(relay_op.clip(steps, -128.0, 127.0), point), relay_op.divide(const(1.0), scale)


def _scales(ctx: OperatorContext, shape: tuple[int, ...]) -> RelayExpr:
    scale = ctx.tensor(1).scale
    assert scale is not None
    return const(scale.reshape(shape) if scale.size > 1 else scale.reshape(()))


def _steps(ctx: OperatorContext, order: Sequence[int]) -> RelayExpr:
    """Return the weight's integers less their zero points, in another order of axes, as float32."""
    whole = relay_op.cast(ctx.weight(1, lambda array: np.ascontiguousarray(array.transpose(order))), "float32")
    zero = float(ctx.tensor(1).zero.reshape(-1)[0])
    return relay_op.subtract(whole, const(np.float32(zero))) if zero else whole


def dense_of_rounded(ctx: OperatorContext, rows: RelayExpr, units: int) -> RelayExpr:
    """Return the product of rows with the weight in input 1."""
    steps, size = _rounded(rows, [1])
    sums = relay_op.nn.dense(steps, _steps(ctx, (0, 1)), units=units)
    return relay_op.multiply(typed(relay_op.multiply(sums, size)), _scales(ctx, (1, units)))


def convolution_of_rounded(ctx: OperatorContext, order: Sequence[int], attrs: Mapping[str, Any]) -> RelayExpr:
    """Return the convolution of the images in input 0 with the weight in input 1."""
    steps, size = _rounded(ctx.raw(0), [1, 2, 3])
    sums = relay_op.nn.conv2d(steps, _steps(ctx, order), **attrs)
    return relay_op.multiply(typed(relay_op.multiply(sums, size)), _scales(ctx, (1, attrs["channels"], 1, 1)))
