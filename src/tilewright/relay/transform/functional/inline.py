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

from tilewright.ir.budget import count_nodes
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.relay.call_graph import CallGraph
from tilewright.relay.expr import Call, Function, Let, Var
from tilewright.relay.function_attributes import COMPILER, INLINE
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import ExprMutator, direct_children, is_closed, post_order_visit


def _is_open(func: RelayExpr) -> bool:
    """Return whether a function may be inlined: not if it is fused or external."""
    return isinstance(func, Function) and not is_closed(func)


class _Inliner(ExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self.mod = mod
        self.closures: dict[Var, Function] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        if isinstance(expr, Function) and not _is_open(expr):
            return ()
        return direct_children(expr)

    def visit_let(self, expr: Let) -> RelayExpr:
        result = super().visit_let(expr)
        value = self.visit(expr.value)
        if isinstance(value, Function) and _is_open(value) and not _mentions(value, expr.var):
            self.closures[expr.var] = value
        return result

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        if not isinstance(post, Call):
            return post
        callee = self._callee(post.op)
        if callee is None:
            return post
        return _copied(callee, post.args, post.op)

    def _callee(self, op: RelayExpr) -> Function | None:
        if isinstance(op, Function) and _is_open(op):
            return op
        if isinstance(op, Var):
            return self.closures.get(op)
        if isinstance(op, GlobalVar) and op in self.mod:
            func = self.mod[op]
            if _is_open(func) and INLINE.on(func) and not _mentions(func, op):
                inlined: Function = func
                return inlined
        return None


class _Copy(ExprMutator):
    """Copy a function body over its arguments, with fresh variables for its bindings."""

    def __init__(self, binds: dict[Var, RelayExpr]) -> None:
        super().__init__()
        self.memo_map.update(binds.items())
        self.bound: set[Var] = set()

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        if isinstance(expr, Let):
            self.bound.add(expr.var)
        elif isinstance(expr, Function):
            if not _is_open(expr):
                return ()
            self.bound.update(expr.params)
        return direct_children(expr)

    def visit_var(self, expr: Var) -> RelayExpr:
        if expr in self.bound:
            return Var(expr.name_hint, expr.type_annotation, expr.span)
        return expr


def _copied(callee: Function, args: Sequence[RelayExpr], name: RelayExpr) -> RelayExpr:
    """Return the body of a function over its arguments; the budget bounds nested doubling."""
    copy = _Copy(dict(zip(callee.params, args, strict=True)))
    result = copy.visit(callee.body)
    hint = getattr(name, "name_hint", "")
    count_nodes(len(copy.memo_map), f"calls of the function {hint}" if hint else "calls of a local function")
    return result


def _mentions(root: RelayExpr, name: RelayExpr) -> bool:
    found = False

    def visit(expr: RelayExpr) -> None:
        nonlocal found
        found = found or expr is name

    post_order_visit(root, visit)
    return found


def InlineFunctions() -> Pass:
    """Inline calls of known functions."""

    def inline(mod: IRModule, ctx: PassContext) -> IRModule:
        result = mod.copy()
        for var, func in mod.items():
            if isinstance(func, Function) and _is_open(func):
                result[var] = _Inliner(result).visit(func)
        return result

    return ModulePass(inline, PassInfo(0, "InlineFunctions"))


class _GlobalInliner(ExprMutator):
    """Replace global variables by the functions that they name."""

    def __init__(self, inlined: Mapping[str, Function]) -> None:
        super().__init__()
        self.inlined = inlined

    def visit_global_var(self, expr: GlobalVar) -> RelayExpr:
        return self.inlined.get(expr.name_hint, expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        callee = self.inlined.get(expr.op.name_hint) if isinstance(expr.op, GlobalVar) else None
        if callee is None or not _is_open(callee) or not isinstance(post, Call):
            return post
        return _copied(callee, post.args, expr.op)


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
            func = _GlobalInliner(inlined).visit(mod[name])
            assert isinstance(func, Function)
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
                result[var] = _GlobalInliner(functions).visit(func)
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
