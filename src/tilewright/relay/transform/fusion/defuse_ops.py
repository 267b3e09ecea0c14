"""DefuseOps: the inverse of FuseOps.

Before::

    %1 = fn (%p0, Primitive=1) {
      %0 = exp(%p0);
      negative(%0)
    };
    %1(%x)

after::

    %0 = exp(%x);
    negative(%0)
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, Pass, PassContext, PassInfo
from tilewright.relay.expr import Call, Function
from tilewright.relay.function_attributes import PRIMITIVE
from tilewright.relay.transform.common import open_children
from tilewright.relay.visitor import ExprMutator, substitute


class _Defuser(ExprMutator):
    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        if isinstance(post, Call) and isinstance(post.op, Function) and PRIMITIVE.on(post.op):
            return substitute(post.op.body, dict(zip(post.op.params, post.args, strict=True)))
        return post


def DefuseOps() -> Pass:
    """Inline fused functions."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> Function:
        result = _Defuser().visit(func)
        assert isinstance(result, Function)
        return result

    return FunctionPass(run, PassInfo(0, "DefuseOps", ("InferType",)), Function)
