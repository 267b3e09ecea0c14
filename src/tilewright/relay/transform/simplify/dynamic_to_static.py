"""DynamicToStatic: turn operators on values that are constants into those with attributes.

Before::

    %0 = shape_of(%y);            # %y: Tensor[(8, 3), float32]
    dyn.reshape(%x, %0)

after::

    reshape(%x, newshape=[8, 3])

Constants are folded in between, until nothing changes; a branch on a constant is resolved.
"""

from __future__ import annotations

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.relay.expr import Call, Function, If
from tilewright.relay.transform.common import TypedMutator, scalar_constant, trait_of
from tilewright.relay.transform.simplify.fold_constant import fold_constant
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import ExprMutator, is_closed


class _ToStatic(ExprMutator):
    children = TypedMutator.children

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        to_static = trait_of(post, "FToStatic")
        return post if to_static is None else to_static(post) or post

    def visit_if(self, expr: If) -> RelayExpr:
        cond = scalar_constant(self.visit(expr.cond))
        if cond is None:
            return super().visit_if(expr)
        return self.visit(expr.true_branch if cond else expr.false_branch)


def DynamicToStatic() -> Pass:
    """Make operators on known values static."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        result = infer_module(mod)
        while True:
            changed = {}
            for var, func in result.items():
                if isinstance(func, Function) and not is_closed(func):
                    static = _ToStatic().visit(fold_constant(func))
                    if static is not func:
                        changed[var] = static
            if not changed:
                return result
            result = result.copy()
            for var, static in changed.items():
                result[var] = static
            result = infer_module(result)

    return ModulePass(run, PassInfo(1, "DynamicToStatic"))
