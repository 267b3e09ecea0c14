"""EtaExpand: constructors and global functions that are values become functions that call them.

Before::

    def @main() -> fn (int32) -> int32 {
      @aux
    }

after, with ``expand_global_var``::

    def @main() -> fn (int32) -> int32 {
      fn (%x: int32) -> int32 {
        @aux(%x)
      }
    }
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import FuncType, Type, TypeCall
from tilewright.relay.adt import Constructor
from tilewright.relay.expr import Call, Function, Var
from tilewright.relay.transform.common import open_children, typed_function_pass
from tilewright.relay.visitor import ExprMutator


class _Expander(ExprMutator):
    """Expander that keeps callees as they are."""

    def __init__(self, kinds: tuple[type[RelayExpr], ...], mod: IRModule) -> None:
        super().__init__()
        self.mod = mod
        self.kinds = kinds

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        if isinstance(expr, Call) and isinstance(expr.op, self.kinds):
            return expr.args
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        if not isinstance(expr.op, self.kinds):
            return super().visit_call(expr)
        args = [self.visit(arg) for arg in expr.args]
        same = all(a is b for a, b in zip(args, expr.args, strict=True))
        return expr if same else Call(expr.op, args, expr.attrs, expr.type_args, expr.span)

    def default(self, expr: RelayExpr) -> RelayExpr:
        return _wrapped(expr, self.mod) if isinstance(expr, self.kinds) else expr


def _type_of(expr: RelayExpr, mod: IRModule) -> Type:
    if isinstance(expr, Constructor):
        variables = mod[expr.belong_to].type_vars
        return FuncType(expr.inputs, TypeCall(expr.belong_to, variables), variables)
    type_: Type = mod[expr].checked_type  # type: ignore[index]
    return type_


def _wrapped(expr: RelayExpr, mod: IRModule) -> RelayExpr:
    type_ = _type_of(expr, mod)
    if not isinstance(type_, FuncType):
        raise TilewrightError(f"{expr} should be a function, found {type_}")
    params = [Var(f"eta_expand_param{i}" if i else "eta_expand_param", t) for i, t in enumerate(type_.arg_types)]
    return Function(params, Call(expr, params), type_.ret_type, type_.type_params)


def EtaExpand(expand_constructor: bool = False, expand_global_var: bool = False) -> Pass:
    """Wrap data constructors, global functions, or both in functions where they are not called at once."""
    kinds: list[type[RelayExpr]] = [*([Constructor] * expand_constructor), *([GlobalVar] * expand_global_var)]

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Expander(tuple(kinds), mod).visit(func)

    return typed_function_pass(run, "EtaExpand", 1, required=())
