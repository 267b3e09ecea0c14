"""NarrowFactors: round the data of products with bfloat16 weights, where the target multiplies bfloat16.

Before, for a target whose processor has such instructions::

    nn.dense(%x, meta[relay.Constant][0], out_dtype="float32")          // %x: float32, the constant: bfloat16

after::

    %0 = cast(%x, dtype="bfloat16");
    nn.dense(%0, meta[relay.Constant][0], out_dtype="float32")

Sums are float32 in both. The cast fuses with what makes the data; data that was bfloat16 before is taken as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import topi
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant, Function
from tilewright.relay.op.nn.dense import Dense
from tilewright.relay.op.tensor.unary import Cast, cast
from tilewright.relay.transform.common import call_of, open_children, typed_function_pass
from tilewright.relay.visitor import ExprRewriter

_HALF, _WIDE = "bfloat16", "float32"


class _Narrower(ExprRewriter):
    def __init__(self) -> None:
        super().__init__()
        self.made: dict[RelayExpr, RelayExpr] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if pre.op is not Dense.op or not isinstance(post.args[1], Constant):
            return post
        data, weight = (arg.checked_type for arg in pre.args)
        if not isinstance(data, TensorType) or not isinstance(weight, TensorType):
            return post
        types = data.dtype, weight.dtype, getattr(pre.attrs, "out_dtype", "")
        if types != (_WIDE, _HALF, _WIDE) or not topi.nn.dense_takes_halves(data, weight):
            return post
        return Call(post.op, [self._narrow(pre.args[0], post.args[0]), post.args[1]], post.attrs, span=post.span)

    def _narrow(self, before: RelayExpr, data: RelayExpr) -> RelayExpr:
        widened = call_of(before, Cast.op)
        if widened is not None and widened.args[0].checked_type.dtype == _HALF:  # type: ignore[attr-defined]
            assert isinstance(data, Call)
            return data.args[0]
        if data not in self.made:
            self.made[data] = cast(data, _HALF)
        return self.made[data]


def NarrowFactors() -> Pass:
    """Round the data of products with bfloat16 weights where the target multiplies bfloat16 faster."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Narrower().visit(func)

    return typed_function_pass(run, "NarrowFactors", 1)
