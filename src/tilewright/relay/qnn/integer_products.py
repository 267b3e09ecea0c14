"""Quantized convolutions and dense layers on integers alone, for code without a runtime: microcontrollers.

Weights stay int8, sums are int32, and their rounding is that of float32, to the bit, done on integers
(``topi.micro``). The zero point becomes a part of the bias::

    sum((x - zx) * w) + b  ==  sum(x * w) + (b - zx * sum(w))
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import IntImm
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, const
from tilewright.relay.op.attributes import call, ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.nn.conv2d import conv2d
from tilewright.relay.op.nn.dense import Dense
from tilewright.relay.op.nn.integer_conv2d import IntegerConv2D, IntegerConv2DAttrs
from tilewright.relay.op.nn.pooling import avg_pool2d
from tilewright.relay.op.reduce.reduce import Mean as MeanOp
from tilewright.relay.qnn.byte_products import packs_integers
from tilewright.relay.qnn.groups import Mean, Product, Windows
from tilewright.target.interfaces import is_freestanding
from tilewright.target.target import Target
from tilewright.topi.micro import fixed_point

_MOST_SUMS = 2**20  # that are tried
_BEYOND = 512  # results from here on have the limits' value, whatever their zero point


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


def integer_windows(group: Windows, tensor: RelayExpr) -> RelayExpr | None:
    """Return means of windows as a convolution by ones; None where windows differ in size, or no factor gives them."""
    operator, attrs = group.operator, cast(Any, group.operator.attrs)
    if operator.op is not avg_pool2d.op or attrs.layout != "NCHW":
        return None
    (channels, *extents), size = group.data.tensor.checked_type.shape[1:], ints(attrs.pool_size)  # type: ignore
    pads = padding_of(attrs.padding, 2)
    if any(pads) and not attrs.count_include_pad:
        return None
    strides, dilation = ints(attrs.strides), ints(attrs.dilation)
    window = {"strides": strides, "padding": pads, "dilation": dilation, "kernel_size": size}
    if attrs.ceil_mode and _reach_beyond(window, [int(e) for e in extents]):
        return None
    count = int(np.prod(size))
    factor = _one_factor(count, group.multiplier, count * group.data.largest)
    if factor is None:
        return None
    weight = np.ones((int(channels), 1, *size), np.int8)
    made = conv2d(tensor, const(weight), groups=int(channels), channels=int(channels), **window)
    return integer_product(
        Product(made, group.data, weight, None, np.full(int(channels), factor, np.float32), group.output), tensor
    )


def _reach_beyond(window: dict[str, Any], extents: list[int]) -> bool:
    """Return whether a row or column of windows is left that begins inside and ends outside of the padding."""
    top, left, bottom, right = window["padding"]
    for k, extent in enumerate((extents[0] + top + bottom, extents[1] + left + right)):
        if (extent - (window["kernel_size"][k] - 1) * window["dilation"][k] - 1) % window["strides"][k]:
            return True
    return False


def _one_factor(count: int, factor: np.float32, largest: int) -> np.float32 | None:
    """Return f: ``rint(s * f)`` is ``rint(s * float32(1 / count) * factor)`` of all sums up to ``largest``, or None."""
    if largest >= _MOST_SUMS:
        return None
    sums = np.arange(-largest, largest + 1).astype(np.float32)
    wanted = np.clip(np.rint(sums * (np.float32(1) / np.float32(count)) * factor), -_BEYOND, _BEYOND)
    middle = np.float32(np.float64(factor) / count)
    for ulps in (0, 1, -1, 2, -2):
        found = (middle.view(np.int32) + np.int32(ulps)).view(np.float32)
        if np.array_equal(np.clip(np.rint(sums * found), -_BEYOND, _BEYOND), wanted):
            return found
    return None


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
