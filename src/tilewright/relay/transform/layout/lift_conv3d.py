"""LiftConv3D: compute 3-D convolutions, and the operators between them, as 2-D ones on the slices.

Before::

    %0 = nn.conv3d(%x, %w, padding=[1, 1, 1, 1, 1, 1], channels=8, kernel_size=[3, 3, 3]);
    add(%0, %bias)                                    // %x: Tensor[(1, 4, 5, 6, 7)], %bias: Tensor[(8, 1, 1, 1)]

after::

    %0 = transpose(%x, axes=[0, 2, 1, 3, 4]);
    %1 = reshape(%0, newshape=[5, 4, 6, 7]);          // a batch of 5 slices
    %2 = nn.pad(%1, 0, pad_width=[[1, 1], [0, 0], [0, 0], [0, 0]]);
    %3 = (%2[0:5], %2[1:6], %2[2:7]);                 // the depth of each window as channels
    %4 = concatenate(%3, axis=1);
    %5 = nn.conv2d(%4, %v, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]);    // %v: (8, 12, 3, 3), from %w
    %6 = reshape(%bias, newshape=[8, 1, 1]);
    %7 = add(%5, %6);
    %8 = reshape(%7, newshape=[1, 5, 8, 6, 7]);
    transpose(%8, axes=[0, 2, 1, 3, 4])

So the optimizations of 2-D convolutions (packed channels, Winograd's method, folded scales, fusion) apply to 3-D ones
too, at the cost of as many copies of each slice as windows are deep. Values stay batches of slices from one convolution
to the next. A window of one position in each of several slices (kernel_size=[3, 1, 1]) needs no copies: it is a column
in an image whose rows are slices or parts of them, (N, C, D, H * W).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function, Tuple, const
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.nn.conv3d import Conv3D
from tilewright.relay.op.nn.pooling import MaxPool3D
from tilewright.relay.op.reduce.reduce import Mean, reduce_axes
from tilewright.relay.op.transform.join import Concatenate
from tilewright.relay.transform.common import concrete_shape, typed_function_pass
from tilewright.relay.transform.layout.lifting import FEWEST_CHANNELS, Lifter, Rule, Shape
from tilewright.topi.utils import largest_divisor

_SWAPPED = [0, 2, 1, 3, 4]  # channels and depth
_ROW_BYTES = 512 << 10  # of all slices that a row of the result reads: a second-level cache holds them


class _Lifter(Lifter):
    """Lifter of values (N, C, D, H, W) to (N * D, C, H, W)."""

    rank = 5

    def rule(self, op: Op, data: RelayExpr) -> Rule | None:
        rules: dict[Op, Rule] = {Conv3D.op: self._conv, Concatenate.op: self._concatenate}
        if data in self.lifted:
            rules |= {MaxPool3D.op: self._max_pool, Mean.op: self._mean}
        return rules.get(op)

    def lowered(self, value: RelayExpr, shape: Shape) -> RelayExpr:
        batch, channels, depth, *extents = shape
        return relay_op.transpose(relay_op.reshape(value, (batch, depth, channels, *extents)), _SWAPPED)

    def image(self, expr: RelayExpr) -> RelayExpr:
        if expr not in self.lifted:
            shape = concrete_shape(expr)
            assert shape is not None
            batch, channels, depth, *extents = shape
            swapped = relay_op.transpose(self.visit(expr), _SWAPPED)
            self.lifted[expr] = relay_op.reshape(swapped, (batch * depth, channels, *extents))
        return self.lifted[expr]

    def _conv(self, expr: Call) -> RelayExpr | None:
        attrs: Any = expr.attrs
        result, shape, weight = (concrete_shape(e) for e in (expr, *expr.args))
        layouts = attrs.data_layout, attrs.out_layout or "NCDHW", attrs.kernel_layout
        if layouts != ("NCDHW", "NCDHW", "OIDHW") or result is None or shape is None or weight is None:
            return None
        outputs, inputs, depth, *kernel = weight
        if int(attrs.groups) != 1 or outputs < FEWEST_CHANNELS or 0 in result:
            return None
        front, top, left, back, bottom, right = padding_of(attrs.padding, 3)
        strides, dilation = ints(attrs.strides), ints(attrs.dilation)
        if depth > 1 and [*kernel, *strides[1:]] == [1, 1, 1, 1] and not any((top, left, bottom, right)):
            return self._conv_of_slices(expr, shape, weight, result[2])
        starts = [k * dilation[0] for k in range(depth)]
        seen = self._neighbours(expr.args[0], shape, (front, back), starts, strides[0], result[2])
        kernels = relay_op.transpose(self.visit(expr.args[1]), _SWAPPED)
        return relay_op.nn.conv2d(
            seen[0] if depth == 1 else relay_op.concatenate(Tuple(seen), axis=1),
            relay_op.reshape(kernels, (outputs, depth * inputs, *kernel)),
            strides=strides[1:],
            padding=(top, left, bottom, right),
            dilation=dilation[1:],
            channels=outputs,
            kernel_size=tuple(kernel),
            out_dtype=attrs.out_dtype,
        )

    def _conv_of_slices(self, expr: Call, shape: Shape, weight: Shape, slices: int) -> RelayExpr:
        """Return a convolution whose windows are one position in several slices, as one over images of a row a slice.

        An image takes so many rows of each slice, one after the other, that the windows of its row are ``_ROW_BYTES``.
        """
        attrs: Any = expr.attrs
        front, _, _, back, _, _ = padding_of(attrs.padding, 3)
        outputs, inputs, depth, *_ = weight
        batch, _, count, height, width = shape
        together = largest_divisor(height, max(1, _ROW_BYTES // max(1, 4 * inputs * depth * width)))
        cut = (height // together, together * width)
        rows = relay_op.reshape(self.image(expr.args[0]), (batch, count, inputs, *cut))
        images = relay_op.transpose(rows, (0, 3, 2, 1, 4))
        conv = relay_op.nn.conv2d(
            relay_op.reshape(images, (batch * cut[0], inputs, count, cut[1])),
            relay_op.reshape(self.visit(expr.args[1]), (outputs, inputs, depth, 1)),
            strides=(ints(attrs.strides)[0], 1),
            padding=(front, 0, back, 0),
            dilation=(ints(attrs.dilation)[0], 1),
            channels=outputs,
            kernel_size=(depth, 1),
            out_dtype=attrs.out_dtype,
        )
        parts = relay_op.reshape(conv, (batch, cut[0], outputs, slices, cut[1]))
        return relay_op.reshape(relay_op.transpose(parts, (0, 3, 2, 1, 4)), (batch * slices, outputs, height, width))

    def _neighbours(
        self,
        data: RelayExpr,
        shape: tuple[int, ...],
        padding: tuple[int, int],
        starts: Sequence[int],
        step: int,
        count: int,
    ) -> list[RelayExpr]:
        """Return, for each of ``starts``, ``count`` lifted slices of every image from there on, in steps of
        ``step``.
        """
        batch, channels, depth, *extents = shape
        value, axis = self.image(data), 0
        if batch > 1:  # the depth is a dimension of its own
            value, axis = relay_op.reshape(value, (batch, depth, channels, *extents)), 1
        if any(padding):
            rank = len(extents) + 2 + axis
            value = relay_op.nn.pad(value, [padding if i == axis else (0, 0) for i in range(rank)])
            depth += sum(padding)
        if (list(starts), step, count) == ([0], 1, depth):
            parts = [value]
        else:
            ends = [start + (count - 1) * step + 1 for start in starts]
            parts = [
                relay_op.strided_slice(value, [start], [end], [step], axes=[axis])
                for start, end in zip(starts, ends, strict=True)
            ]
        whole = (batch * count, channels, *extents)
        return [relay_op.reshape(part, whole) for part in parts] if batch > 1 else parts

    def _max_pool(self, expr: Call) -> RelayExpr | None:
        """Return the maximum over each window's slices, then over positions in them."""
        attrs: Any = expr.attrs
        result, shape = concrete_shape(expr), concrete_shape(expr.args[0])
        front, top, left, back, bottom, right = padding_of(attrs.padding, 3)
        size, strides, dilation = ints(attrs.pool_size), ints(attrs.strides), ints(attrs.dilation)
        if attrs.layout != "NCDHW" or attrs.out_layout not in ("", "NCDHW") or front or back:
            return None
        if result is None or shape is None:
            return None
        starts = [k * dilation[0] for k in range(size[0])]
        if starts[-1] + (result[2] - 1) * strides[0] >= shape[2]:  # ceil_mode reaches behind the last slice
            return None
        value, *others = self._neighbours(expr.args[0], shape, (0, 0), starts, strides[0], result[2])
        kind = expr.checked_type
        if others and isinstance(kind, TensorType) and dt.is_float(kind.dtype):
            value, *others = (_numbers(part) for part in (value, *others))
        for other in others:
            value = relay_op.maximum(value, other)
        return relay_op.nn.max_pool2d(
            value,
            pool_size=size[1:],
            strides=strides[1:],
            dilation=dilation[1:],
            padding=(top, left, bottom, right),
            ceil_mode=attrs.ceil_mode,
        )

    def operand(self, arg: RelayExpr, result: Shape) -> RelayExpr | None:
        shape = concrete_shape(arg)
        if shape is None:
            return None
        if shape == result:
            return self.image(arg)
        aligned = (1,) * (5 - len(shape)) + shape
        if math.prod(aligned) != aligned[1]:
            return None
        return relay_op.reshape(self.visit(arg), (aligned[1], 1, 1))

    def _concatenate(self, expr: Call) -> RelayExpr | None:
        attrs: Any = expr.attrs
        fields = self.lifted_fields(expr)
        return None if fields is None or attrs.axis % 5 != 1 else relay_op.concatenate(fields, axis=1)

    def _mean(self, expr: Call) -> RelayExpr | None:
        """Return the mean over depth, height and width of one image."""
        attrs: Any = expr.attrs
        data, result = self.lifted[expr.args[0]], concrete_shape(expr)
        shape = concrete_shape(expr.args[0])
        if shape is None or result is None or shape[0] != 1 or tuple(reduce_axes(attrs, 5)) != (2, 3, 4):
            return None
        mean = relay_op.mean(data, axis=[0, 2, 3], keepdims=True)
        return mean if attrs.keepdims else relay_op.reshape(mean, result)


def _numbers(value: RelayExpr) -> RelayExpr:
    """Replace NaN, which pools ignore but maxima propagate, by the least number."""
    lowest = relay_op.full_like(value, relay_op.cast_like(const(float("-inf"), "float32"), value))
    return relay_op.where(relay_op.isnan(value), lowest, value)


def LiftConv3D() -> Pass:
    """Compute 3-D convolutions as 2-D ones."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Lifter().visit(func)

    return typed_function_pass(run, "LiftConv3D", 3)
