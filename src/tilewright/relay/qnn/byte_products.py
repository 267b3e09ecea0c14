"""Quantized convolutions as sums of products of integers, where the target has instructions for them.

Data is uint8, or int16 less its zero point; weights are int8.

Zero points and bias become one number for each channel::

    sum((x - zx) * w) + b  ==  sum(x * w) + (b - zx * sum(w))

Channels that fill no vectors are made more, with weights of 0. A depthwise convolution, whose sums are short, reads
bytes and sums them as floats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.expr import RelayExpr
from tilewright.ir.transform import PassContext
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, const
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.qnn.groups import Array, Product
from tilewright.relay.transform.layout.alter_op_layout import AlterOpLayout

Zero = int | RelayExpr  # a zero point: a scalar of int32 where it is known only when the program runs
EXACT = 2**24  # float32 has every integer up to this


def packs_integers() -> bool:
    """Return whether this build chooses layouts, and may compute quantized layers on integers."""
    ctx = PassContext.current()
    packs = ctx.pass_enabled(AlterOpLayout().info) and not ctx.option("relay.backend.use_auto_scheduler")
    return packs and bool(ctx.option("relay.qnn.bytes"))


def multiplies_bytes() -> bool:
    """Return whether the target sums products of bytes fast, in layouts that this build chooses."""
    return packs_integers() and topi.nn.conv2d_byte_channels(64, 64, 1) is not None


def plus_offset(total: RelayExpr, bias: Array | None, zero: Zero, sums: Array, dtype: str) -> RelayExpr:
    """Add what bias and zero point make of the sums of weights, one number for each channel."""
    known = np.zeros_like(sums) if bias is None else bias.reshape(sums.shape)
    if isinstance(zero, int):
        offset = known - zero * sums
        return relay_op.add(total, const(offset.astype(dtype))) if offset.any() else total
    part = relay_op.multiply(relay_op.cast(zero, dtype), const(sums.astype(dtype)))
    return relay_op.add(total, relay_op.subtract(const(known.astype(dtype)), part))


@dataclass(frozen=True)
class ByteLayer:
    """A convolution of integers: the group, its weight of so many channels that they fill vectors, and its data's type.

    ``data``: uint8, or int16 less the zero point.
    """

    group: Product
    depthwise: bool
    data: str = "uint8"

    @staticmethod
    def of(group: Product, channels: int) -> ByteLayer | None:
        """Return the layer of a group whose data has ``channels``, perhaps more than the weight takes; or None."""
        attrs: Any = group.operator.attrs
        groups, (out, each) = int(attrs.groups), group.weight.shape[:2]
        if group.operator.op is not Conv2D.op or not min(group.weight.shape):
            return None
        if groups > 1 and (each, out) == (1, groups):
            layer = ByteLayer(_with_channels(group, each, channels), True)
            return layer if multiplies_bytes() and layer._largest() < EXACT else None
        found = topi.nn.conv2d_of_integers(group.weight, channels, groups) if group.weight.dtype == np.int8 else None
        if found is None or (groups > 1 and found[1:] != (each * groups, out)):
            return None
        layer = ByteLayer(_with_channels(group, found[1] // groups, found[2]), False, found[0])
        return layer if layer._largest() < 2**31 else None

    def _largest(self) -> int:
        """No sum is larger, with or without its offset."""
        sums = 255 * np.abs(self._rows()).sum(axis=1)
        return max(int((2 * sums).max(initial=0)), self.group.largest_sum)

    def _rows(self) -> Any:
        return self.group.weight.reshape(len(self.group.weight), -1).astype(np.int64)

    @property
    def out_channels(self) -> int:
        """Channels of the result."""
        return len(self.group.weight)

    def value(self, data: RelayExpr, channels: int, zero: Zero) -> RelayExpr:
        """Return the result before rounding, of ``data`` with so many channels and this zero point."""
        attrs: Any = self.group.operator.attrs
        shifted = not isinstance(zero, int) or zero != 0
        top, left, bottom, right = padding_of(attrs.padding, 2) if shifted else (0, 0, 0, 0)
        more = 0 if self.depthwise or attrs.groups > 1 else self.group.weight.shape[1] - channels
        if any((more, top, left, bottom, right)):
            border = float(zero) if isinstance(zero, int) else relay_op.cast(zero, self.data)
            data = relay_op.nn.pad(data, ((0, 0), (0, more), (top, bottom), (left, right)), border)
            attrs = attrs.replace(padding=(0, 0)) if shifted else attrs
        weight, dtype = self.group.weight, "int32"
        if self.depthwise:
            weight, dtype = weight.astype("float32"), "float32"
        groups = self.out_channels if self.depthwise else attrs.groups
        attrs = attrs.replace(out_dtype=dtype, channels=self.out_channels, groups=groups)
        total: RelayExpr = Call(self.group.operator.op, [data, const(weight)], attrs)
        total = plus_offset(total, self.group.bias, zero, self._rows().sum(axis=1).reshape(-1, 1, 1), dtype)
        if dtype == "int32":
            total = relay_op.cast(total, "float32")
        return relay_op.multiply(total, const(self.group.multiplier.reshape(-1, 1, 1)))


def _with_channels(group: Product, each: int, out: int) -> Product:
    """Return the group with ``each`` input channels in a group of channels, and ``out`` output channels."""
    rows, columns = out - group.weight.shape[0], each - group.weight.shape[1]
    if not rows and not columns:
        return group
    weight = np.pad(group.weight, ((0, rows), (0, columns), (0, 0), (0, 0)))
    bias = None if group.bias is None else np.pad(group.bias, (0, rows))
    return replace(group, weight=weight, bias=bias, multiplier=np.pad(group.multiplier, (0, rows)))
