"""WidenWeights: make convolutions' weights of half precision float32 when the library is loaded.

Before::

    nn.conv2d(%x, meta[relay.Constant][0], out_dtype="float32")         // %x: float32, the constant: float16

after::

    %0 = nn.contrib_widen_weight(meta[relay.Constant][0]);
    nn.conv2d(%x, %0, out_dtype="float32")

A convolution uses each weight for many positions, so that it is limited by arithmetic: kernels that convert weights as
they read them take up to 1.8 times as long, and Winograd's method has none. The library stays small. Products whose
weights are read for a few rows wait for memory, and convert as they read.

``PackNarrow`` then lets weights be packed before they are widened, which FoldConstant does when it compiles, and lets
Winograd's transform, whose result is float32, read them as they are::

    layout_transform(nn.contrib_widen_weight(%w), ...)  ->  nn.contrib_widen_weight(layout_transform(%w, ...))
    nn.contrib_conv2d_winograd_weight_transform(nn.contrib_widen_weight(%w))
                                                            ->  nn.contrib_conv2d_winograd_weight_transform(%w)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant, Function
from tilewright.relay.op.nn.widen import WidenWeight, contrib_widen_weight
from tilewright.relay.op.nn.winograd import ContribConv2DWinogradWeightTransform
from tilewright.relay.op.transform.layout import LayoutTransform
from tilewright.relay.transform.common import call_of, concrete_shape, open_children, trait_of, typed_function_pass
from tilewright.relay.transform.simplify.fold_constant import grows_at_load
from tilewright.relay.visitor import ExprRewriter

_WIDE = "float32"
_FEW_POSITIONS = 16  # of a result, for which a weight is not worth its memory


def _dtype(expr: RelayExpr) -> str:
    type_ = expr.checked_type
    return type_.dtype if isinstance(type_, TensorType) else ""


def _takes_wide(call: Call) -> bool:
    """Return whether a convolution computes in float32 with a weight in half precision, at many positions."""
    attrs = call.attrs
    if trait_of(call, "TFactors", 0) != 2 or not hasattr(attrs, "kernel_layout"):
        return False
    types = _dtype(call.args[0]), _dtype(call)
    if types != (_WIDE, _WIDE) or not dt.is_half(_dtype(call.args[1])):
        return False
    result, channels = concrete_shape(call), getattr(attrs, "channels", None)
    return result is None or not channels or math.prod(result) >= _FEW_POSITIONS * int(channels)


class _Widener(ExprRewriter):
    def __init__(self) -> None:
        super().__init__()
        self.weights: set[RelayExpr] = set()  # operators on constants alone
        self.made: dict[RelayExpr, RelayExpr] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def _is_weight(self, expr: RelayExpr) -> bool:
        return isinstance(expr, Constant) or expr in self.weights

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if post.args and all(map(self._is_weight, post.args)):
            self.weights.add(post)
        elif _takes_wide(pre) and self._is_weight(post.args[1]):
            weight = post.args[1]
            if weight not in self.made:
                self.made[weight] = contrib_widen_weight(weight)
            return Call(post.op, [post.args[0], self.made[weight]], post.attrs, post.type_args, post.span)
        return post


class _Packer(ExprRewriter):
    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if post.op is not LayoutTransform.op and post.op is not ContribConv2DWinogradWeightTransform.op:
            return post
        widened = call_of(post.args[0], WidenWeight.op)
        if widened is None:
            return post
        if post.op is ContribConv2DWinogradWeightTransform.op:
            return Call(post.op, widened.args, post.attrs, span=post.span)
        return contrib_widen_weight(Call(post.op, widened.args, post.attrs, post.type_args, post.span))


def WidenWeights() -> Pass:
    """Widen weights of convolutions when the library is loaded; nothing where libraries do not prepare weights."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Widener().visit(func) if grows_at_load(WidenWeight.op) else func

    return typed_function_pass(run, "WidenWeights", 2)


def PackNarrow() -> Pass:
    """Pack weights before they are widened."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Packer().visit(func)

    return typed_function_pass(run, "PackNarrow", 2)
