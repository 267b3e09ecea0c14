"""EliminateCommonSubexpr: compute equal calls once.

Before::

    %0 = exp(%x);
    %1 = exp(%x);
    add(%0, %1)

after::

    %0 = exp(%x);
    add(%0, %0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.structural import structural_equal
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Function, TupleGetItem
from tilewright.relay.transform.common import open_children, typed_function_pass
from tilewright.relay.visitor import ExprMutator


class _Eliminator(ExprMutator):
    def __init__(self, fskip: Callable[[RelayExpr], bool] | None) -> None:
        super().__init__()
        self.fskip = fskip
        self.calls: dict[tuple[RelayExpr, tuple[RelayExpr, ...]], list[Call]] = {}
        self.fields: dict[tuple[RelayExpr, int], TupleGetItem] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        if not isinstance(post, Call) or not isinstance(post.op, Op):
            return post
        if post.op.get_attr("TOpIsStateful") or (self.fskip and self.fskip(post)):
            return post
        known = self.calls.setdefault((post.op, post.args), [])
        for other in known:
            if structural_equal(other.attrs, post.attrs, exact=True):
                return other
        known.append(post)
        return post

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        post = super().visit_tuple_getitem(expr)
        if not isinstance(post, TupleGetItem):
            return post
        return self.fields.setdefault((post.tuple_value, post.index), post)


def EliminateCommonSubexpr(fskip: Callable[[RelayExpr], bool] | None = None) -> Pass:
    """Compute equal calls once; calls for which ``fskip(call)`` is true are kept."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        result = _Eliminator(fskip).visit(func)
        return result

    return typed_function_pass(run, "EliminateCommonSubexpr", 3)
