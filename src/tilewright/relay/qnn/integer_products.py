"""Quantized convolutions and dense layers on integers alone, for code without a runtime: microcontrollers.

Weights stay int8, sums are int32, and their rounding is that of float32, to the bit, done on integers
(``topi.micro``). The zero point becomes a part of the bias::

    sum((x - zx) * w) + b  ==  sum(x * w) + (b - zx * sum(w))
"""

from __future__ import annotations

from dataclasses import dataclass
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
from tilewright.relay.op.tensor.binary import add, multiply
from tilewright.relay.op.tensor.unary import Cast, Clip, floor, sign
from tilewright.relay.op.tensor.unary import abs as abs_
from tilewright.relay.qnn.byte_products import packs_integers
from tilewright.relay.qnn.groups import Mean, Output, Product, Quantized, Windows
from tilewright.relay.transform.common import call_of, op_of, scalar_constant
from tilewright.target.interfaces import is_freestanding
from tilewright.target.target import Target
from tilewright.topi.micro import fixed_point

_MOST_SUMS = 2**20  # that are tried
_ULPS = (0, 1, -1, 2, -2, 4, 8, 16, 32)  # how far from it a factor is looked for
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
    window = _Window.of(group.operator)
    if window is None:
        return None
    sums = window.sums(group.data.largest)
    share = sums * (np.float32(1) / np.float32(window.count)) * group.multiplier
    factor = _one_factor(sums, np.rint(share), np.float64(group.multiplier) / window.count)
    return None if factor is None else window.means(group.data, tensor, factor, group.output)


def rounded_means(call: Call) -> tuple[Quantized, Call, np.float32] | None:
    """Return the bytes, the pool and the addend of ``cast(clip(sign(mean) * floor(abs(mean) + addend)))``; or None."""
    clip = call_of(call.args[0], Clip.op)
    product = None if clip is None else call_of(clip.args[0], multiply.op)
    if product is None or op_of(product.args[0]) is not sign.op:
        return None
    pool = product.args[0].args[0]  # type: ignore[attr-defined]
    whole = call_of(product.args[1], floor.op)
    total = None if whole is None else call_of(whole.args[0], add.op)
    half = None if total is None else scalar_constant(total.args[1])
    if half is None or total is None or op_of(total.args[0]) is not abs_.op:
        return None
    data = call_of(pool.args[0], Cast.op) if op_of(pool) is avg_pool2d.op else None
    if data is None or total.args[0].args[0] is not pool:  # type: ignore[attr-defined]
        return None
    if str(data.args[0].checked_type.dtype) not in ("int8", "uint8"):  # type: ignore[attr-defined]
        return None
    return Quantized(data.args[0], 1.0, 0), pool, np.float32(half)


def rounded_windows(call: Call, data: Quantized, pool: Call, half: np.float32, tensor: RelayExpr) -> RelayExpr | None:
    """Return means of windows, halves away from 0 as TensorFlow Lite rounds, as a convolution by ones; or None.

    ``call`` limits what ``sign(mean) * floor(abs(mean) + half)`` is, of the windows' means that ``pool`` computes.
    """
    window = _Window.of(pool)
    if window is None:
        return None
    attrs: Any = call.args[0].attrs  # type: ignore[attr-defined]
    output = Output(str(call.attrs.dtype), 0, int(attrs.a_min), int(attrs.a_max))  # type: ignore[union-attr]
    sums = window.sums(data.largest)
    mean = sums * (np.float32(1) / np.float32(window.count))
    factor = _one_factor(sums, np.sign(mean) * np.floor(np.abs(mean) + half), 1 / window.count)
    return None if factor is None else window.means(data, tensor, factor, output)


@dataclass(frozen=True)
class _Window:
    """Windows of one size over images (n, c, h, w)."""

    channels: int
    attrs: dict[str, Any]

    @property
    def count(self) -> int:
        return int(np.prod(self.attrs["kernel_size"]))

    @staticmethod
    def of(pool: Call) -> _Window | None:
        """Return the windows of a pool of means; None where they differ in size, or are none of this form."""
        attrs, shape = cast(Any, pool.attrs), pool.args[0].checked_type.shape  # type: ignore[attr-defined]
        if pool.op is not avg_pool2d.op or attrs.layout != "NCHW" or not all(isinstance(d, IntImm) for d in shape):
            return None
        window = {"strides": ints(attrs.strides), "padding": padding_of(attrs.padding, 2)}
        window |= {"dilation": ints(attrs.dilation), "kernel_size": ints(attrs.pool_size)}
        if any(window["padding"]) and not attrs.count_include_pad:
            return None
        if attrs.ceil_mode and _reach_beyond(window, [int(e) for e in shape[2:]]):
            return None
        return _Window(int(shape[1]), window)

    def sums(self, largest: int) -> Any:
        """Return every sum of a window's numbers up to ``largest``; none where they are too many to be tried."""
        most = self.count * largest
        return np.arange(-most, most + 1 if most < _MOST_SUMS else -most).astype(np.float32)

    def means(self, data: Quantized, tensor: RelayExpr, factor: np.float32, output: Output) -> RelayExpr | None:
        """Return the sums times a factor, rounded."""
        weight = np.ones((self.channels, 1, *self.attrs["kernel_size"]), np.int8)
        made = conv2d(tensor, const(weight), groups=self.channels, channels=self.channels, **self.attrs)
        multiplier = np.full(self.channels, factor, np.float32)
        return integer_product(Product(made, data, weight, None, multiplier, output), tensor)


def _reach_beyond(window: dict[str, Any], extents: list[int]) -> bool:
    """Return whether a row or column of windows is left that begins inside and ends outside of the padding."""
    top, left, bottom, right = window["padding"]
    for k, extent in enumerate((extents[0] + top + bottom, extents[1] + left + right)):
        if (extent - (window["kernel_size"][k] - 1) * window["dilation"][k] - 1) % window["strides"][k]:
            return True
    return False


def _one_factor(sums: Any, wanted: Any, middle: float) -> np.float32 | None:
    """Return f next to ``middle`` with ``rint(s * f)`` as wanted of all ``sums``; None where there is none."""
    if not sums.size:
        return None
    limited = np.clip(wanted, -_BEYOND, _BEYOND)
    for ulps in _ULPS:
        found = (np.float32(middle).view(np.int32) + np.int32(ulps)).view(np.float32)
        if np.array_equal(np.clip(np.rint(sums * found), -_BEYOND, _BEYOND), limited):
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
