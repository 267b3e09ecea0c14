"""PadChannels: pad the output channels of convolutions to whole vectors.

Before, on a processor with vectors of 16 floats::

    %0 = nn.conv2d(%x, %w, channels=1000, kernel_size=[1, 1]);          // %w: a constant, (1000, 512, 1, 1)
    %1 = nn.relu(%0);
    nn.global_avg_pool2d(%1)

after::

    %0 = nn.conv2d(%x, %w2, channels=1008, kernel_size=[1, 1]);         // %w2: %w and 8 channels of zeros
    %1 = nn.relu(%0);
    %2 = nn.global_avg_pool2d(%1);
    strided_slice(%2, begin=[0], end=[1000], strides=[1], axes=[1])

Blocks of 1000 channels end in half a vector, or are half vectors; an odd number of channels cannot be packed at all.
The added channels hold finite values that are not read: operators on single channels keep them, a convolution that
follows has zero weights for them, and all other operators get the original channels. Whether that pays is estimated
from the vector operations that it saves, those added to later convolutions, and the bytes of the slices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant, Function
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.transform.common import (
    concrete_shape,
    open_children,
    padded_constant,
    pattern_of,
    trait_of,
    typed_function_pass,
)
from tilewright.relay.visitor import ExprMutator, post_order

_FLOATS = ("float32", "bfloat16", "float16")  # of weights
_UNPACKED = 2  # how much slower a convolution is whose channels are not packed
_COPIED_BYTES = 8  # bytes that a slice moves in the time of a vector multiply-add: it reads and writes through L2


def _shape(expr: RelayExpr) -> tuple[int, ...]:
    """Return the shape of a tensor where it is known, else ()."""
    return concrete_shape(expr) or ()


def _is_conv(expr: RelayExpr) -> bool:
    """Return whether ``expr`` is a convolution of floats whose weights can be padded."""
    if not isinstance(expr, Call) or expr.op is not Conv2D.op or not isinstance(expr.args[1], Constant):
        return False
    attrs: Any = expr.attrs
    type_ = expr.checked_type
    plain = attrs.data_layout == "NCHW" and attrs.kernel_layout == "OIHW" and attrs.out_layout in ("", "NCHW")
    floats = isinstance(type_, TensorType) and type_.dtype == "float32" and _dtype(expr.args[1]) in _FLOATS
    return plain and floats and bool(_shape(expr)) and (attrs.groups == 1 or _is_depthwise(expr))


def _dtype(weight: RelayExpr) -> str:
    assert isinstance(weight, Constant)
    return str(weight.data.dtype)


def _is_depthwise(expr: Call) -> bool:
    attrs: Any = expr.attrs
    return bool(1 < attrs.groups == _shape(expr.args[1])[0] == _shape(expr.args[0])[1])


def _multiply_adds(conv: Call) -> int:
    return math.prod(_shape(conv)) * math.prod(_shape(conv.args[1])[1:])


def _time(conv: Call, channels: int) -> float:
    """Return the modelled time of a vector multiply-add of ``conv``, if it had so many output channels."""
    _, in_channels, *window = _shape(conv.args[1])
    modelled = topi.nn.conv2d_channel_time(in_channels, channels, math.prod(window), _dtype(conv.args[1]))
    return _UNPACKED if modelled is None else float(modelled)


def _channel_axis(constant: Constant) -> int | None:
    """Return the axis of a broadcast constant that is the channels of NCHW data; None when it has one value for
    all.
    """
    axis = len(constant.data.shape) - 3
    return axis if axis >= 0 and constant.data.shape[axis] != 1 else None


class _Estimate:
    """Estimate of which values could have padded channels, and for which convolutions that pays."""

    def __init__(self, func: Function, lanes: int) -> None:
        self.lanes = lanes
        self.users: dict[RelayExpr, list[RelayExpr]] = {}
        self.possible: set[RelayExpr] = set()
        for expr in post_order(func, open_children):
            for child in open_children(expr):
                self.users.setdefault(child, []).append(expr)
            if self.carries(expr, self.possible) or (_is_conv(expr) and self._starts(expr)):
                self.possible.add(expr)

    def _starts(self, conv: RelayExpr) -> bool:
        assert isinstance(conv, Call)
        return not _is_depthwise(conv) and self.padded(conv) != _shape(conv)[1]

    def padded(self, expr: RelayExpr) -> int:
        """Return the channels of ``expr`` rounded up to whole vectors."""
        return -(-_shape(expr)[1] // self.lanes) * self.lanes

    def carries(self, expr: RelayExpr, padded: Any) -> bool:
        """Return whether ``expr`` can be applied to padded channels, given the ``padded`` values."""
        if not isinstance(expr, Call) or len(_shape(expr)) != 4:
            return False
        data = expr.args[0]
        if trait_of(expr, "TChannelwise"):
            attrs: Any = expr.attrs
            return data in padded and attrs.layout == "NCHW"
        if _is_conv(expr):
            return _is_depthwise(expr) and data in padded
        if not trait_of(expr, "TFinite") or pattern_of(expr) > OpPattern.BROADCAST:
            return False
        values = [a for a in expr.args if not isinstance(a, Constant)]
        channels = _shape(expr)[1]
        same = all(a in padded and len(_shape(a)) == 4 and _shape(a)[1] == channels for a in values)
        return bool(values) and same and all(len(a.data.shape) <= 4 for a in expr.args if isinstance(a, Constant))

    def pays(self, conv: Call) -> bool:
        """Return whether to pad the output channels of ``conv``, by the time in vector multiply-adds."""
        if conv not in self.possible or _is_depthwise(conv):
            return False
        channels, wide = _shape(conv)[1], self.padded(conv)
        saved = _multiply_adds(conv) / self.lanes * (_time(conv, channels) - _time(conv, wide) * wide / channels)
        pending: list[RelayExpr] = [conv]
        seen: set[RelayExpr] = {conv}
        for value in pending:
            sliced = not self.users.get(value)
            for user in self.users.get(value, ()):
                if user in self.possible and self.carries(user, self.possible):
                    if user not in seen:
                        seen.add(user)
                        pending.append(user)
                elif _is_conv(user) and isinstance(user, Call) and not _is_depthwise(user):
                    more = _multiply_adds(user) / self.lanes * (wide - channels) / channels
                    saved -= more * _time(user, self.padded(user))
                else:
                    sliced = True
            saved -= math.prod(_shape(value)) * 4 / _COPIED_BYTES if sliced else 0
        return saved > 0


class _Padder(ExprMutator):
    """Rewriter to padded channels; ``wide[e]`` is the rewritten ``e`` with them."""

    def __init__(self, estimate: _Estimate) -> None:
        super().__init__()
        self.estimate = estimate
        self.wide: dict[RelayExpr, RelayExpr] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Skip finished kernels."""
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        """Rewrite convolutions, and operators that keep padded channels."""
        if _is_conv(expr):
            return self._conv(expr)
        if self.estimate.carries(expr, self.wide):
            channels = _shape(expr)[1]
            args = [self._operand(a, channels, self.estimate.padded(expr)) for a in expr.args]
            return self._sliced(expr, Call(expr.op, args, expr.attrs, expr.type_args, expr.span))
        return super().visit_call(expr)

    def _operand(self, arg: RelayExpr, channels: int, wide: int) -> RelayExpr:
        if not isinstance(arg, Constant):
            return self.wide[arg]
        axis = _channel_axis(arg)
        return arg if axis is None else padded_constant(arg, axis, wide)

    def _conv(self, expr: Call) -> RelayExpr:
        data, weight = expr.args
        assert isinstance(weight, Constant) and expr.attrs is not None
        attrs = expr.attrs
        depthwise = _is_depthwise(expr)
        pays = data in self.wide if depthwise else self.estimate.pays(expr)
        if data in self.wide:
            if not depthwise:
                weight = padded_constant(weight, 1, self.estimate.padded(data))
            new_data = self.wide[data]
        else:
            new_data = self.visit(data)
        if pays:
            channels = self.estimate.padded(expr)
            weight = padded_constant(weight, 0, channels)
            groups = channels if depthwise else 1
            attrs = attrs.replace(channels=channels, groups=groups)
        result = Call(expr.op, [new_data, weight], attrs, expr.type_args, expr.span)
        return self._sliced(expr, result) if pays else result

    def _sliced(self, expr: Call, value: Call) -> RelayExpr:
        self.wide[expr] = value
        return relay_op.strided_slice(value, begin=[0], end=[_shape(expr)[1]], strides=[1], axes=[1])


def PadChannels() -> Pass:
    """Pad the output channels of convolutions to whole vectors where that pays."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        lanes = topi.nn.conv2d_channel_lanes()
        if lanes is None:
            return func
        estimate = _Estimate(func, lanes)
        return _Padder(estimate).visit(func) if estimate.possible else func

    return typed_function_pass(run, "PadChannels", 3)
