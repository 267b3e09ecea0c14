"""LambdaLift: functions inside of functions become global ones.

Before::

    def @main(%y) {
      let %f = fn (%x) { add(%x, %y) };
      %f(%y)
    }

after::

    def @main(%y) {
      let %f = @lifted_name(%y);
      %f(%y)
    }
    def @lifted_name(%y, Closure=1) {
      fn (%x) { add(%x, %y) }
    }

A function that uses no variable from outside becomes a global function as it is. A let-bound function that calls itself
calls the global one. Finished kernels and other compilers' functions stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.type import Type
from tilewright.relay.analysis import free_type_vars, free_vars
from tilewright.relay.expr import Call, Function, Let, Var
from tilewright.relay.function_attributes import CLOSURE
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import ExprMutator, is_closed, substitute


def _typed(name: str, type_: Type) -> Var:
    return Var(name, type_).with_checked_type(type_)


@dataclass
class _Lifted:
    """The functions of a module, to which lifted ones are added."""

    functions: dict[GlobalVar, Function]
    taken: set[str] = field(default_factory=set)

    def new_var(self) -> GlobalVar:
        """Return a name that no function has."""
        number = 0
        while f"lifted_name{number}" in self.taken:
            number += 1
        name = f"lifted_name{number}"
        self.taken.add(name)
        return GlobalVar(name)

    def lift(self, func: Function, name: Var | None = None) -> RelayExpr:
        """Lift ``func``, which a let may call ``name``, and return its replacement."""
        if is_closed(func):
            return func
        captured = [var for var in free_vars(func) if var is not name]
        params = [_typed(var.name_hint, var.checked_type) for var in captured]
        var = self.new_var()
        binds: dict[Var, RelayExpr] = dict(zip(captured, params, strict=True))
        if name is not None:
            binds[name] = Call(var, params) if params else var
        inner = substitute(func, binds) if binds else func
        assert isinstance(inner, Function)
        inner = self.inside(inner)
        outer_types = free_type_vars(func)
        if captured:
            self.functions[var] = Function(params, inner, None, outer_types, {CLOSURE.key: 1})
            return Call(var, captured)
        self.functions[var] = inner.replace(type_params=(*outer_types, *inner.type_params))
        return var

    def inside(self, func: Function) -> Function:
        """Return ``func`` with the functions in its body lifted."""
        body = _Lifter(self).visit(func.body)
        return func if body is func.body else func.replace(body=body)


class _Lifter(ExprMutator):
    """Lifter of the functions of one body, outer ones first: inner ones are lifted out of the lifted outer ones."""

    def __init__(self, lifted: _Lifted) -> None:
        super().__init__()
        self.lifted = lifted

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        if isinstance(expr, Function):
            return ()
        if isinstance(expr, Let) and isinstance(expr.value, Function):
            return (expr.var, expr.body)
        return super().children(expr)

    def visit_let(self, expr: Let) -> RelayExpr:
        if not isinstance(expr.value, Function):
            return super().visit_let(expr)
        value = self.lifted.lift(expr.value, expr.var)
        return Let(expr.var, value, self.visit(expr.body), expr.span)

    def visit_function(self, expr: Function) -> RelayExpr:
        return self.lifted.lift(expr)


def LambdaLift() -> Pass:
    """Lift inner functions to global functions."""

    def lift(mod: IRModule, ctx: PassContext) -> IRModule:
        result = infer_module(mod).copy()
        lifted = _Lifted({}, {var.name_hint for var, _ in result.items()})
        for var, func in list(result.items()):
            if not isinstance(func, Function) or is_closed(func):
                continue
            # a function that an earlier run has lifted returns a closure, which stays
            inner = func.body if CLOSURE.on(func) else None
            if isinstance(inner, Function):
                result[var] = func.replace(body=lifted.inside(inner))
            else:
                result[var] = lifted.inside(func)
        for var, func in lifted.functions.items():
            result[var] = func
        return infer_module(result)

    return ModulePass(lift, PassInfo(1, "LambdaLift"))
