"""Quantized convolutions and dense layers on integers alone, for code without a runtime: microcontrollers.

Weights stay int8, sums are int32, and their rounding is that of float32, to the bit, done on integers
(``topi.micro``). The zero point becomes a part of the bias::

    sum((x - zx) * w) + b  ==  sum(x * w) + (b - zx * sum(w))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import IntImm
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, const
from tilewright.relay.op.attributes import call
from tilewright.relay.op.nn.conv2d import conv2d
from tilewright.relay.op.nn.dense import Dense
from tilewright.relay.op.nn.integer_conv2d import IntegerConv2D, IntegerConv2DAttrs
from tilewright.relay.op.reduce.reduce import Mean as MeanOp
from tilewright.relay.qnn.byte_products import packs_integers
from tilewright.relay.qnn.groups import Mean, Product
from tilewright.target.interfaces import is_freestanding
from tilewright.target.target import Target
from tilewright.topi.micro import fixed_point


def computes_on_integers() -> bool:
    """Return whether the target runs where floats may be slow, or missing, and layouts are chosen."""
    target = Target.current()
    return target is not None and is_freestanding(target) and packs_integers()


def integer_product(group: Product, tensor: RelayExpr) -> RelayExpr | None:
    """Return what a group computes of its integers ``tensor``; None where int32 or its weights' type is too small."""
    weight, output = group.weight, group.output
    if weight.dtype != np.int8 or not weight.size or output.early:
        return None
    rows = weight.reshape(len(weight), -1).astype(np.int64)
    bias = (0 if group.bias is None else group.bias) - group.data.zero * rows.sum(axis=1)
    point = fixed_point(group.multiplier, _largest(group, rows, bias))
    if point is None:
        return None
    factors = np.ascontiguousarray(group.multiplier, np.float32).view(np.int32)
    channels = np.stack([bias.astype(np.int32), point.multipliers, factors], axis=1)
    common: dict[str, Any] = {"zero": group.data.zero, "shift": point.shift, "out_zero": output.zero}
    common |= {"low": output.low, "high": output.high, "out_dtype": output.dtype}
    if group.operator.op is Dense.op:
        return _dense(tensor, group, const(channels), common)
    given: Any = group.operator.attrs
    names = ("strides", "padding", "dilation", "groups", "channels", "kernel_size")
    attrs = IntegerConv2DAttrs(**{name: getattr(given, name) for name in names}, **common)
    return Call(IntegerConv2D.op, [tensor, const(weight), const(channels)], attrs)


def integer_mean(group: Mean, tensor: RelayExpr) -> RelayExpr | None:
    """Return means over images as a convolution by ones; None of other means."""
    shape = group.data.tensor.checked_type.shape  # type: ignore[attr-defined]
    if len(shape) != 4 or group.axes != (2, 3) or not isinstance(shape[0], IntImm) or not isinstance(shape[1], IntImm):
        return None
    batch, channels, *size = (int(d) for d in shape)
    weight = np.ones((channels, 1, *size), np.int8)
    window = conv2d(tensor, const(weight), groups=channels, channels=channels, kernel_size=size)
    multiplier = np.full(channels, group.multiplier, np.float32)
    found = integer_product(Product(window, group.data, weight, None, multiplier, group.output), tensor)
    attrs: Any = group.operator.attrs
    keeps = group.operator.op is not MeanOp.op or bool(attrs.keepdims)
    return found if keeps or found is None else relay_op.reshape(found, (batch, channels))


def _largest(group: Product, rows: Any, bias: Any) -> int:
    """No sum is larger, complete or not."""
    low, high = (0, 255) if group.data.dtype == "uint8" else (-128, 127)
    sums = np.abs(rows).sum(axis=1) * max(-low, high) + np.abs(bias)
    return int(sums.max(initial=0))


def _dense(tensor: RelayExpr, group: Product, channels: RelayExpr, common: dict[str, Any]) -> RelayExpr:
    """A dense layer as a convolution over an image of one row, which has a pixel for each row of the data."""
    *outer, inner = (int(d) for d in group.data.tensor.checked_type.shape)  # type: ignore[attr-defined]
    units = len(group.weight)
    image = relay_op.reshape(tensor, (1, 1, int(np.prod(outer)), inner))
    weight = const(group.weight.reshape(units, 1, 1, inner))
    attrs = IntegerConv2DAttrs(data_layout="NHWC", kernel_layout="OHWI", channels=units, kernel_size=(1, 1), **common)
    return relay_op.reshape(call(IntegerConv2D.name, [image, weight, channels], attrs), (*outer, units))
