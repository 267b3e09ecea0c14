"""InlineFunctions, Inline, InlineExternal and RemoveUnusedFunctions.

InlineFunctions replaces calls of functions that are known at the call by their bodies: local closures, let-bound
closures, and global functions marked ``Inline=1``.

Before::

    %1 = fn (%y) { add(%y, %y) };
    %1(%x)

after::

    add(%x, %x)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.relay.call_graph import CallGraph
from tilewright.relay.expr import Function
from tilewright.relay.function_attributes import COMPILER, INLINE
from tilewright.relay.transform.functional.inline_calls import inline_calls, mentions, open_function
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import ExprMutator, post_order_visit


def InlineFunctions() -> Pass:
    """Inline calls of known functions."""

    def inline(mod: IRModule, ctx: PassContext) -> IRModule:
        result = mod.copy()

        def callee(op: RelayExpr) -> Function | None:
            if not isinstance(op, GlobalVar) or op not in result:
                return open_function(op)
            func = open_function(result[op])
            return func if func is not None and INLINE.on(func) and not mentions(func, op) else None

        for var, func in mod.items():
            if open_function(func) is not None:
                result[var] = inline_calls(func, callee)
        return result

    return ModulePass(inline, PassInfo(0, "InlineFunctions"))


class _FunctionsForNames(ExprMutator):
    """Replace global variables by the functions that they name."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        super().__init__()
        self.functions = functions

    def visit_global_var(self, expr: GlobalVar) -> RelayExpr:
        return self.functions.get(expr.name_hint, expr)


def _with_functions(func: RelayExpr, functions: Mapping[str, Function]) -> Function:
    """Return ``func`` with functions in place of their names, and their bodies in place of calls if they are open."""

    def callee(op: RelayExpr) -> Function | None:
        named = functions.get(op.name_hint) if isinstance(op, GlobalVar) else None
        return None if named is None else open_function(named)

    result = _FunctionsForNames(functions).visit(inline_calls(func, callee))
    assert isinstance(result, Function)
    return result


def Inline() -> Pass:
    """Replace the names of global functions that are marked ``Inline=1`` by the functions, and remove these.

    A call becomes the body, or a call of the function itself if it is external (``Compiler``); a name that is not
    called becomes the function. Recursive functions stay, and so do those that no other function names: they are entry
    points.

    Before::

        def @double(%x: Tensor[(2), float32], Inline=1) { add(%x, %x) }
        def @main(%y: Tensor[(2), float32]) { @double(%y) }

    after::

        def @main(%y: Tensor[(2), float32]) { add(%y, %y) }
    """

    def inline(mod: IRModule, ctx: PassContext) -> IRModule:
        result = mod.copy()
        graph = CallGraph(mod)
        inlined: dict[str, Function] = {}
        for name in filter(graph.callees.__contains__, graph.reached(graph.callees)):
            func = _with_functions(mod[name], inlined)
            result[mod.get_global_var(name)] = func
            if INLINE.on(func) and graph.ref_count(name) and not graph.leads_to_itself(name):
                inlined[name] = func
        for name in inlined:
            del result[name]
        return result

    return ModulePass(inline, PassInfo(1, "InlineGlobals"))


def InlineExternal() -> Pass:
    """Replace the names of external functions by the functions: the form that a build lowers.

    Before::

        def @my_0(%p: Tensor[(2), float32], Compiler="my", global_symbol="my_0", Primitive=1) { ... }
        def @main(%x: Tensor[(2), float32]) { @my_0(%x) }

    after::

        def @main(%x: Tensor[(2), float32]) {
          %0 = fn (%p: Tensor[(2), float32], Compiler="my", global_symbol="my_0", Primitive=1) { ... };
          %0(%x)
        }
    """

    def inline(mod: IRModule, ctx: PassContext) -> IRModule:
        functions = {v.name_hint: f for v, f in mod.items() if isinstance(f, Function) and COMPILER.on(f)}
        if not functions:
            return mod
        result = mod.copy()
        for name in functions:
            del result[name]
        for var, func in list(result.items()):
            if isinstance(func, Function):
                result[var] = _FunctionsForNames(functions).visit(func)
        return infer_module(result)

    return ModulePass(inline, PassInfo(0, "InlineExternal"))


def RemoveUnusedFunctions(entry_functions: Sequence[str] = ("main",)) -> Pass:
    """Remove functions that no entry function reaches."""

    def remove(mod: IRModule, ctx: PassContext) -> IRModule:
        reached: dict[str, None] = {}
        pending = [name for name in entry_functions if name in mod]
        while pending:
            name = pending.pop()
            if name in reached:
                continue
            reached[name] = None
            func = mod[name]
            if isinstance(func, Function):
                post_order_visit(
                    func,
                    lambda e: pending.append(e.name_hint) if isinstance(e, GlobalVar) and e in mod else None,
                )
        result = mod.copy()
        for var in mod.get_global_vars():
            if reached and var.name_hint not in reached:
                del result[var]
        return result

    return ModulePass(remove, PassInfo(1, "RemoveUnusedFunctions"))
