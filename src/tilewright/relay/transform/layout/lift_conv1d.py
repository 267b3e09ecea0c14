"""LiftConv1D: compute 1-D convolutions, and the operators between them, as 2-D ones on images of one row.

Before::

    %0 = nn.conv1d(%x, %w, padding=[1, 1], channels=8, kernel_size=[3]);    // %x: Tensor[(1, 4, 10), float32]
    %1 = add(%0, %bias);                                                    // %bias: Tensor[(8, 1), float32]
    nn.max_pool1d(%1, pool_size=[2], strides=[2])

after::

    %0 = expand_dims(%x, axis=2);
    %1 = expand_dims(%w, axis=2);
    %2 = nn.conv2d(%0, %1, padding=[0, 1, 0, 1], channels=8, kernel_size=[1, 3]);
    %3 = expand_dims(%bias, axis=1);
    %4 = add(%2, %3);
    %5 = nn.max_pool2d(%4, pool_size=[1, 2], strides=[1, 2]);
    squeeze(%5, axis=[2])

So the optimizations of 2-D convolutions (packed channels, register tiles, folded scales, fusion) apply to 1-D ones too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function
from tilewright.relay.op import layout_rules
from tilewright.relay.op.attributes import ints
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.nn.conv1d import Conv1D
from tilewright.relay.op.nn.pad import Pad
from tilewright.relay.op.nn.pooling import AdaptiveAvgPool1D, AdaptiveMaxPool1D, AvgPool1D, MaxPool1D
from tilewright.relay.op.reduce.reduce import reduce_axes
from tilewright.relay.op.transform.join import Concatenate
from tilewright.relay.op.transform.slicing import StridedSlice
from tilewright.relay.transform.common import call_of, concrete_shape, typed_function_pass
from tilewright.relay.transform.layout.lifting import FEWEST_CHANNELS, Lifter, Rule, Shape

_ROW = 2  # the axis that is put in: NCW becomes NCHW
_POOLS: dict[Op, Callable[..., Call]] = {
    MaxPool1D.op: relay_op.nn.max_pool2d,
    AvgPool1D.op: relay_op.nn.avg_pool2d,
}
_ADAPTIVE: dict[Op, Callable[..., Call]] = {
    AdaptiveMaxPool1D.op: relay_op.nn.adaptive_max_pool2d,
    AdaptiveAvgPool1D.op: relay_op.nn.adaptive_avg_pool2d,
}


def _axis(axis: int) -> int:
    """Return the position in NCHW of an axis of NCW."""
    axis %= 3
    return axis + (axis >= _ROW)


class _Lifter(Lifter):
    """Lifter of values (N, C, W), and of their keepdims reductions, to (N, C, 1, W)."""

    rank = 3

    def rule(self, op: Op, data: RelayExpr) -> Rule | None:
        always: dict[Op, Rule] = {Conv1D.op: self._conv, Concatenate.op: self._concatenate}
        if op in always:
            return always[op]
        if data not in self.lifted:
            return None
        if op in _POOLS or op in _ADAPTIVE:
            return self._pool
        if op.get_attr("FInferCorrectLayout") is layout_rules.reduction:
            return self._reduce
        return {Pad.op: self._pad, StridedSlice.op: self._slice}.get(op)

    def lowered(self, value: RelayExpr, shape: Shape) -> RelayExpr:
        return relay_op.squeeze(value, axis=[_ROW])

    def image(self, expr: RelayExpr) -> RelayExpr:
        if expr not in self.lifted:
            pad = call_of(expr, Pad.op)  # follows, for FoldExplicitPadding to find it
            self.lifted[expr] = self._pad(pad) if pad else relay_op.expand_dims(self.visit(expr), axis=_ROW)
        return self.lifted[expr]

    def _conv(self, expr: Call) -> RelayExpr | None:
        attrs: Any = expr.attrs
        plain = attrs.data_layout == "NCW" and attrs.out_layout in ("", "NCW") and attrs.kernel_layout == "OIW"
        data, weight = expr.args
        shape = concrete_shape(weight)
        if not plain or concrete_shape(data) is None or shape is None or shape[0] < FEWEST_CHANNELS:
            return None
        left, right = padding_of(attrs.padding, 1)
        return relay_op.nn.conv2d(
            self.image(data),
            relay_op.expand_dims(self.visit(weight), axis=_ROW),
            strides=(1, *ints(attrs.strides)),
            padding=(0, left, 0, right),
            dilation=(1, *ints(attrs.dilation)),
            groups=int(attrs.groups),
            channels=shape[0],
            kernel_size=(1, shape[2]),
            out_dtype=attrs.out_dtype,
        )

    def _pool(self, expr: Call) -> RelayExpr | None:
        attrs: Any = expr.attrs
        op = expr.op
        assert isinstance(op, Op)
        if attrs.layout != "NCW" or attrs.out_layout not in ("", "NCW"):
            return None
        data = self.lifted[expr.args[0]]
        if op in _ADAPTIVE:
            return _ADAPTIVE[op](data, (1, *ints(attrs.output_size))) if attrs.output_size else None
        left, right = padding_of(attrs.padding, 1)
        counted = {"count_include_pad": attrs.count_include_pad} if op is AvgPool1D.op else {}
        return _POOLS[op](
            data,
            pool_size=(1, *ints(attrs.pool_size)),
            strides=(1, *ints(attrs.strides)),
            dilation=(1, *ints(attrs.dilation)),
            padding=(0, left, 0, right),
            ceil_mode=attrs.ceil_mode,
            **counted,
        )

    def operand(self, arg: RelayExpr, result: Shape) -> RelayExpr | None:
        shape = concrete_shape(arg)
        if shape is None:
            return None
        if len(shape) == 3:
            return self.image(arg)
        return relay_op.expand_dims(self.visit(arg), axis=len(shape) - 1) if len(shape) == 2 else self.visit(arg)

    def _concatenate(self, expr: Call) -> RelayExpr | None:
        attrs: Any = expr.attrs
        fields = self.lifted_fields(expr)
        return None if fields is None else relay_op.concatenate(fields, axis=_axis(attrs.axis))

    def _reduce(self, expr: Call) -> RelayExpr | None:
        attrs: Any = expr.attrs
        axes = reduce_axes(attrs, 3)
        if not axes or len(expr.args) != 1:
            return None
        changed = attrs.replace(axis=tuple(sorted({_ROW, *(_axis(a) for a in axes)})), exclude=False)
        return Call(expr.op, [self.lifted[expr.args[0]]], changed, expr.type_args, expr.span)

    def _pad(self, expr: Call) -> RelayExpr:
        attrs: Any = expr.attrs
        widths = list(attrs.pad_width)
        widths.insert(_ROW, (0, 0))
        operands = [self.image(expr.args[0]), *(self.visit(arg) for arg in expr.args[1:])]
        return Call(expr.op, operands, attrs.replace(pad_width=tuple(widths)), expr.type_args, expr.span)

    def _slice(self, expr: Call) -> RelayExpr:
        attrs: Any = expr.attrs
        axes = range(len(attrs.begin)) if attrs.axes is None else attrs.axes
        changed = attrs.replace(axes=tuple(_axis(a) for a in axes))
        return Call(expr.op, [self.lifted[expr.args[0]]], changed, expr.type_args, expr.span)


def LiftConv1D() -> Pass:
    """Compute 1-D convolutions as 2-D ones."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Lifter().visit(func)

    return typed_function_pass(run, "LiftConv1D", 3)
