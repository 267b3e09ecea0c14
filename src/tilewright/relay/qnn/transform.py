"""CanonicalizeOps: quantized groups, and ``qnn`` operators outside of them, in operators that every target has.

Before::

    %0 = qnn.dequantize(%x, 0.1f, 3);
    %1 = qnn.dequantize(meta[relay.Constant][0], 0.02f, 0);      // int8 weights
    %2 = nn.conv2d(%0, %1);
    qnn.quantize(%2, 0.5f, 0)

after::

    %0 = cast(%x, dtype="float32");
    %1 = subtract(%0, 3f);
    %2 = nn.conv2d(%1, meta[relay.Constant][0]);                 // the same weights, as float32
    %3 = multiply(%2, 0.004f);
    %4 = nearbyint(%3);
    cast(clip(%4, -128f, 127f), dtype="int8")

``groups`` tells the arithmetic. Sums of products of integers are exact in float32 while they stay below 2 ** 24,
whatever the order; a layer whose weights could exceed that is computed in int32. (Convolutions of whole numbers are
left to such kernels that sum products: ``relay.expr.is_whole``.)

Where the target multiplies bytes fast (``topi.nn.conv2d_takes_bytes``), a convolution stays one of integers. Its zero
points and bias are a number for each channel, and int8 is uint8 with 128 more of everything, from layer to layer::

    %0 = nn.conv2d(%x, meta[relay.Constant][0], out_dtype="int32");   // uint8 by int8
    %1 = add(%0, meta[relay.Constant][1]);                            // bias - zero point * sum of weights
    %2 = multiply(cast(%1, dtype="float32"), 0.004f);
    cast(clip(nearbyint(%2), 0f, 255f), dtype="uint8")
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function, const, is_whole
from tilewright.relay.op.attributes import padding as padding_of
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.nn.dense import Dense
from tilewright.relay.op.reduce.reduce import Mean as MeanOp
from tilewright.relay.qnn.groups import (
    Group,
    Mean,
    Move,
    Output,
    Product,
    Quantized,
    Sum,
    describe,
)
from tilewright.relay.qnn.op import Dequantize, Quantize
from tilewright.relay.qnn.operators.parameters import check_values
from tilewright.relay.transform.common import Recognizer, op_of, open_children, typed_function_pass
from tilewright.relay.transform.hook_passes import LegalizeRewriter
from tilewright.relay.transform.layout.alter_op_layout import AlterOpLayout
from tilewright.relay.visitor import post_order

_FLIP = 128  # from int8 to uint8
_EXACT = 2**24  # float32 has every integer up to this


def _rounded(value: RelayExpr, output: Output) -> RelayExpr:
    whole = relay_op.nearbyint(value)
    shifted = relay_op.add(whole, const(float(output.zero))) if output.zero else whole
    return relay_op.cast(relay_op.clip(shifted, float(output.low), float(output.high)), output.dtype)


def _packs() -> bool:
    """Return whether convolutions get the layouts that products of bytes need."""
    ctx = PassContext.current()
    auto_scheduled = bool(ctx.option("relay.backend.use_auto_scheduler"))
    return bool(ctx.option("relay.qnn.bytes")) and ctx.pass_enabled(AlterOpLayout().info) and not auto_scheduled


def takes_bytes(group: Product) -> bool:
    """Return whether the target sums a group's products of bytes faster than those of floats, without overflow."""
    attrs: Any = group.operator.attrs
    sums = 255 * np.abs(group.weight.astype(np.int64)).reshape(len(group.weight), -1).sum(axis=1)
    if group.operator.op is not Conv2D.op or max(sums.max(initial=0) * 2, group.largest_sum) >= 2**31:
        return False
    groups, (out, each) = int(attrs.groups), group.weight.shape[:2]
    return bool(topi.nn.conv2d_takes_bytes(each * groups, out, groups))


class _Canonicalizer(Recognizer):
    """Replaces groups whose inner values are used nowhere else, and other operators by what they declare.

    ``unsigned`` has for expressions of int8 the same as uint8, with 128 added.
    """

    def __init__(self, func: Function) -> None:
        super().__init__(func)
        self.unsigned: dict[RelayExpr, RelayExpr] = {}
        self.flips = _packs() and bool(topi.nn.conv2d_takes_bytes(64, 64, 1))

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if pre.op is Quantize.op:
            group = describe(pre)
            if group is not None and self._is_private(pre, group):
                return self._exact(group)
        hook = pre.op.get_attr("FTVMQnnCanonicalize") if isinstance(pre.op, Op) else None
        if hook is None:
            return post
        check_values(pre)
        types = [arg.checked_type for arg in pre.args] + [pre.checked_type]
        replacement: RelayExpr | None = hook(pre.attrs, list(post.args), types)
        return post if replacement is None else replacement

    def _is_private(self, quantize: Call, group: Group) -> bool:
        """Whether nothing between the group's operator and its end is used outside."""
        value = quantize.args[0]
        while value is not group.operator and op_of(value) is not Dequantize.op:
            if self.uses[value] > 1:
                return False
            assert isinstance(value, Call)
            value = value.args[0]
        return group.operator is None or self.uses[value] == 1

    def _exact(self, group: Group) -> RelayExpr:
        match group:
            case Product():
                return self._product(group)
            case Sum():
                products = (
                    relay_op.multiply(self._whole(side), const(factor))
                    for side, factor in zip(group.data, group.multipliers, strict=True)
                )
                return self._requantized(relay_op.add(*products), group.output)
            case Mean():
                attrs: Any = group.operator.attrs
                keeps = group.operator.op is not MeanOp.op or bool(attrs.keepdims)
                total = relay_op.sum(self._whole(group.data), axis=[2, 3], keepdims=keeps)
                return self._requantized(relay_op.multiply(total, const(group.multiplier)), group.output)
            case Move():
                return self._moved(group)

    def _integers(self, data: Quantized) -> tuple[RelayExpr, int]:
        """``data`` and its zero point; int8 as uint8 where it was computed so."""
        tensor = self.visit(data.tensor)
        unsigned = self.unsigned.get(tensor)
        return (tensor, data.zero) if unsigned is None else (unsigned, data.zero + _FLIP)

    def _whole(self, data: Quantized, dtype: str = "float32") -> RelayExpr:
        """The integers less their zero point."""
        tensor, zero = self._integers(data)
        wide = relay_op.cast(tensor, dtype)
        return relay_op.subtract(wide, const(zero, dtype)) if zero else wide

    def _requantized(self, value: RelayExpr, output: Output) -> RelayExpr:
        """``_rounded``; int8 as the uint8 that products of bytes take, and as int8 where something else reads it."""
        if output.dtype == "uint8" or not self.flips:
            return _rounded(value, output)
        return self._signed(_rounded(value, output.flipped()))

    def _signed(self, unsigned: RelayExpr) -> RelayExpr:
        """The int8 of what was computed as uint8."""
        signed = relay_op.reinterpret(relay_op.bitwise_xor(unsigned, const(_FLIP, "uint8")), "int8")
        self.unsigned[signed] = unsigned
        return signed

    def _product(self, group: Product) -> RelayExpr:
        if self.flips and takes_bytes(group):
            return self._product_of_bytes(group)
        operator = group.operator
        attrs: Any = operator.attrs
        weight = const(group.weight.astype("float32"))
        dtype = "float32" if group.largest_sum < _EXACT and is_whole(weight) else "int32"
        if dtype == "int32":
            attrs, weight = attrs.replace(out_dtype="int32"), const(group.weight.astype(dtype))
        data = self._whole(group.data, dtype)
        total = Call(operator.op, [data, weight], attrs)
        across = (-1,) if operator.op is Dense.op else (-1, 1, 1)
        if group.bias is not None:
            total = relay_op.add(total, const(group.bias.astype(dtype).reshape(across)))
        if dtype == "int32":
            total = relay_op.cast(total, "float32")
        return _rounded(relay_op.multiply(total, const(group.multiplier.reshape(across))), group.output)

    def _product_of_bytes(self, group: Product) -> RelayExpr:
        """Sums of products of bytes: zero points and bias are one number for each channel."""
        attrs: Any = group.operator.attrs
        data, zero = self._unsigned(group.data)
        if zero and any(padding := padding_of(attrs.padding, 2)):
            top, left, bottom, right = padding
            data = relay_op.nn.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)), float(zero))
            attrs = attrs.replace(padding=(0, 0))
        total = Call(group.operator.op, [data, const(group.weight)], attrs.replace(out_dtype="int32"))
        weights = group.weight.reshape(len(group.weight), -1).astype(np.int64).sum(axis=1)
        offset = (0 if group.bias is None else group.bias) - zero * weights
        if offset.any():
            total = relay_op.add(total, const(offset.astype("int32").reshape(-1, 1, 1)))
        scaled = relay_op.multiply(relay_op.cast(total, "float32"), const(group.multiplier.reshape(-1, 1, 1)))
        return self._requantized(scaled, group.output)

    def _unsigned(self, data: Quantized) -> tuple[RelayExpr, int]:
        """``data`` as uint8, and its zero point."""
        tensor, zero = self._integers(data)
        if data.dtype == "uint8" or tensor in self.unsigned.values():
            return tensor, zero
        flipped = relay_op.bitwise_xor(relay_op.reinterpret(tensor, "uint8"), const(_FLIP, "uint8"))
        self.unsigned[tensor] = flipped
        return flipped, zero + _FLIP

    def _moved(self, group: Move) -> RelayExpr:
        output, (tensor, zero) = group.output, self._integers(group.data)
        flipped = zero != group.data.zero
        if group.operator is not None:
            tensor = Call(group.operator.op, [tensor], group.operator.attrs)
        if group.multiplier != 1 or group.data.zero != output.zero:
            wide = relay_op.cast(tensor, "float32")
            whole = relay_op.subtract(wide, const(float(zero))) if zero else wide
            return self._requantized(relay_op.multiply(whole, const(group.multiplier)), output)
        if (output.low, output.high) != dt.int_range(output.dtype):
            limits = output.flipped() if flipped else output
            wide = relay_op.cast(tensor, "float32")
            tensor = relay_op.cast(relay_op.clip(wide, float(limits.low), float(limits.high)), limits.dtype)
        return self._signed(tensor) if flipped else tensor


def CanonicalizeOps() -> Pass:
    """Replace quantized groups by exact arithmetic, and other ``qnn`` operators by what ``FTVMQnnCanonicalize`` gives.

    Raises:
        TilewrightError: a constant scale is not positive, or a zero point is no number of its tensor's type.
    """

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Canonicalizer(func).visit(func)

    return typed_function_pass(run, "QnnCanonicalizeOps")


def Legalize() -> Pass:
    """Replace ``qnn`` operators by what ``FTVMQnnLegalize`` gives under the target, such as one of other bytes.

    Raises:
        TilewrightError: a constant scale is not positive, or a zero point is no number of its tensor's type.
    """

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        for node in post_order(func, open_children):
            if isinstance(node, Call) and isinstance(node.op, Op):
                check_values(node)
        return LegalizeRewriter("FTVMQnnLegalize").visit(func)

    return typed_function_pass(run, "QnnLegalize", 1)
