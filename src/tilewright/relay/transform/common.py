"""What the passes share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.relay.expr import Function
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import direct_children


def is_closed(func: RelayExpr) -> bool:
    """Whether a function is a finished kernel, or another compiler's: passes leave its body alone."""
    return isinstance(func, Function) and bool(func.attrs.get("Primitive") or func.attrs.get("Compiler"))


def open_children(expr: RelayExpr) -> Sequence[RelayExpr]:
    """Sub-expressions, without the bodies of closed functions."""
    return () if is_closed(expr) else direct_children(expr)


def typed_function_pass(
    run: Callable[[Function, IRModule, PassContext], RelayExpr], name: str, opt_level: int = 0
) -> Pass:
    """A pass that maps every open Relay function of a typed module with ``run``, and types the result."""

    def transform(mod: IRModule, ctx: PassContext) -> IRModule:
        result = infer_module(mod).copy()
        changed = False
        for var, func in list(result.items()):
            if not isinstance(func, Function) or is_closed(func) or func.attrs.get("SkipOptimization"):
                continue
            new = run(func, result, ctx)
            assert isinstance(new, Function)
            if new is not func:
                result[var] = new
                changed = True
        return infer_module(result) if changed else result

    return ModulePass(transform, PassInfo(name, opt_level))
