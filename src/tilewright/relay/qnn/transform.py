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
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function, const, is_whole
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
from tilewright.relay.visitor import post_order

_EXACT = 2**24  # float32 has every integer up to this


def _whole(data: Quantized, tensor: RelayExpr, dtype: str = "float32") -> RelayExpr:
    """The integers less their zero point."""
    wide = relay_op.cast(tensor, dtype)
    return relay_op.subtract(wide, const(data.zero, dtype)) if data.zero else wide


def _rounded(value: RelayExpr, output: Output) -> RelayExpr:
    whole = relay_op.nearbyint(value)
    shifted = relay_op.add(whole, const(float(output.zero))) if output.zero else whole
    return relay_op.cast(relay_op.clip(shifted, float(output.low), float(output.high)), output.dtype)


class _Canonicalizer(Recognizer):
    """Replaces groups whose inner values are used nowhere else; other operators by what they declare."""

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
                    relay_op.multiply(_whole(side, self.visit(side.tensor)), const(factor))
                    for side, factor in zip(group.data, group.multipliers, strict=True)
                )
                return _rounded(relay_op.add(*products), group.output)
            case Mean():
                attrs: Any = group.operator.attrs
                keeps = group.operator.op is not MeanOp.op or bool(attrs.keepdims)
                whole = _whole(group.data, self.visit(group.data.tensor))
                total = relay_op.sum(whole, axis=[2, 3], keepdims=keeps)
                return _rounded(relay_op.multiply(total, const(group.multiplier)), group.output)
            case Move():
                return self._moved(group)

    def _product(self, group: Product) -> RelayExpr:
        operator = group.operator
        attrs: Any = operator.attrs
        weight = const(group.weight.astype("float32"))
        dtype = "float32" if group.largest_sum < _EXACT and is_whole(weight) else "int32"
        if dtype == "int32":
            attrs, weight = attrs.replace(out_dtype="int32"), const(group.weight.astype(dtype))
        data = _whole(group.data, self.visit(group.data.tensor), dtype)
        total = Call(operator.op, [data, weight], attrs)
        across = (-1,) if operator.op is Dense.op else (-1, 1, 1)
        if group.bias is not None:
            total = relay_op.add(total, const(group.bias.astype(dtype).reshape(across)))
        if dtype == "int32":
            total = relay_op.cast(total, "float32")
        return _rounded(relay_op.multiply(total, const(group.multiplier.reshape(across))), group.output)

    def _moved(self, group: Move) -> RelayExpr:
        data, output = group.data, group.output
        tensor = self.visit(data.tensor)
        if group.operator is not None:
            tensor = Call(group.operator.op, [tensor], group.operator.attrs)
        if group.multiplier != 1 or data.zero != output.zero:
            return _rounded(relay_op.multiply(_whole(data, tensor), const(group.multiplier)), output)
        if (output.low, output.high) == dt.int_range(output.dtype):
            return tensor
        clipped = relay_op.clip(relay_op.cast(tensor, "float32"), float(output.low), float(output.high))
        return relay_op.cast(clipped, output.dtype)


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
