"""ToGraphNormalForm: turn lets back into a data-flow graph.

Before::

    let %x = nn.conv2d(%d1, %w1);
    nn.relu(%x)

after::

    %0 = nn.conv2d(%d1, %w1);
    nn.relu(%0)

A let whose value may have a side effect (references) stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, Pass, PassContext, PassInfo
from tilewright.relay.expr import Function, Let, RefCreate, RefRead, RefWrite
from tilewright.relay.visitor import ExprMutator, direct_children, post_order_visit


class _ToGraphNormalForm(ExprMutator):
    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        if isinstance(expr, Let):
            return (expr.value,)
        return direct_children(expr)

    def visit_let(self, expr: Let) -> RelayExpr:
        body: RelayExpr = expr
        while isinstance(body, Let):
            self.memo_map[body.var] = self.visit(body.value)
            body = body.body
        return self.visit(body)


def to_graph_normal_form(expr: RelayExpr) -> RelayExpr:
    """Return ``expr`` with the value of each let, shared, in place of its variable; effects lose their order."""
    return _ToGraphNormalForm().visit(expr)


def _touches_references(func: Function) -> bool:
    found = False

    def visit(expr: RelayExpr) -> None:
        nonlocal found
        found = found or isinstance(expr, (RefCreate, RefRead, RefWrite))

    post_order_visit(func, visit)
    return found


def ToGraphNormalForm() -> Pass:
    """Replace each let-bound variable by its value, shared; functions that use references keep their lets."""

    def convert(func: Function, mod: IRModule, ctx: PassContext) -> Function:
        if _touches_references(func):
            return func
        result = to_graph_normal_form(func)
        assert isinstance(result, Function)
        return result

    return FunctionPass(convert, PassInfo(1, "ToGraphNormalForm"), Function)
