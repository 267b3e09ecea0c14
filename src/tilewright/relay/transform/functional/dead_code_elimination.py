"""DeadCodeElimination: drop lets whose variable is not used.

Before::

    let %a = exp(%x);
    let %b = add(%x, %x);
    %b

after::

    let %b = add(%x, %x);
    %b

A value that writes a reference, calls an unknown function or a stateful operator is kept. With
``inline_once`` a value used once replaces its variable.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import FunctionPass, Pass, PassContext, PassInfo
from tilewright.relay.adt import Constructor
from tilewright.relay.expr import Call, Function, Let, RefCreate, RefRead, RefWrite, Var
from tilewright.relay.function_attributes import PRIMITIVE
from tilewright.relay.visitor import ExprMutator, direct_children


def _has_effect(root: RelayExpr) -> bool:
    """Return whether evaluating ``root`` has side effects. Making a function has none."""
    seen: set[RelayExpr] = set()
    stack = [root]
    while stack:
        expr = stack.pop()
        if expr in seen or isinstance(expr, Function):
            continue
        seen.add(expr)
        if isinstance(expr, (RefWrite, RefCreate, RefRead)):
            return True
        if isinstance(expr, Call):
            if isinstance(expr.op, Op):
                if expr.op.get_attr("TOpIsStateful"):
                    return True
            elif isinstance(expr.op, Function):
                if not PRIMITIVE.on(expr.op):
                    stack.append(expr.op.body)
            elif not isinstance(expr.op, Constructor):
                return True
        stack.extend(direct_children(expr))
    return False


def _count_uses(root: RelayExpr) -> dict[Var, int]:
    uses: dict[Var, int] = {}
    seen: set[RelayExpr] = set()
    stack = [root]
    while stack:
        expr = stack.pop()
        if isinstance(expr, Var):
            uses[expr] = uses.get(expr, 0) + 1
            continue
        if expr in seen:
            continue
        seen.add(expr)
        stack.extend((expr.value, expr.body) if isinstance(expr, Let) else direct_children(expr))
    return uses


class _Eliminator(ExprMutator):
    """Rewriter of chains of lets in a loop: a dropped or inlined let leaves only its value behind."""

    def __init__(self, uses: dict[Var, int], inline_once: bool) -> None:
        super().__init__()
        self.uses = uses
        self.inline_once = inline_once
        self.changed = False

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return (expr.value,) if isinstance(expr, Let) else direct_children(expr)

    def visit_let(self, expr: Let) -> RelayExpr:
        kept: list[tuple[Let, RelayExpr]] = []
        body: RelayExpr = expr
        while isinstance(body, Let):
            value = self.visit(body.value)
            count = self.uses.get(body.var, 0)
            if count > 1 or (count == 1 and not self.inline_once) or _has_effect(value):
                kept.append((body, value))
            else:
                self.changed = True
                if count == 1:
                    self.memo_map[body.var] = value
            body = body.body
        result = self.visit(body)
        for let, value in reversed(kept):
            same = value is let.value and result is let.body
            result = let if same else Let(let.var, value, result, let.span)
        return result


def eliminate_dead_code(func: Function, inline_once: bool = False) -> Function:
    """Drop unused lets of ``func``, repeatedly, until none is left."""
    while True:
        eliminator = _Eliminator(_count_uses(func.body), inline_once)
        result = eliminator.visit(func)
        assert isinstance(result, Function)
        if not eliminator.changed:
            return result
        func = result


def DeadCodeElimination(inline_once: bool = False) -> Pass:
    """Drop lets whose variable is not used."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return eliminate_dead_code(func, inline_once)

    return FunctionPass(run, PassInfo(1, "DeadCodeElimination"), Function)
