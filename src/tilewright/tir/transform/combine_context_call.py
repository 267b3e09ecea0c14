"""CombineContextCall: request each thread-local context once in a function, and once in each parallel region.

Before and after::

    @f(@tir.tvm_thread_context(@ctx(...)))      let ctx_cache_: handle = @ctx(...);
    @g(@tir.tvm_thread_context(@ctx(...)))      @f(ctx_cache_)
                                                @g(ctx_cache_)
"""

from __future__ import annotations

from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Call, PrimExpr, Var
from tilewright.ir.transform import Pass
from tilewright.tir.stmt import AttrStmt, For, ForKind, LetStmt, Stmt
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtExprMutator


class _Combine(StmtExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self.contexts: dict[PrimExpr, Var] = {}

    def visit_call(self, e: Call) -> PrimExpr:
        if isinstance(e.op, Op) and e.op.name == "tir.tvm_thread_context":
            context = e.args[0]
            if context not in self.contexts:
                self.contexts[context] = Var("ctx_cache_", context.dtype)
            return self.contexts[context]
        return super().visit_call(e)

    def region(self, body: Stmt) -> Stmt:
        """Rewrite code that one thread runs, with its contexts requested at its start."""
        outer, self.contexts = self.contexts, {}
        memo, self.memo = self.memo, {}
        new: Stmt = self.visit_stmt(body)
        for context, var in reversed(self.contexts.items()):
            new = LetStmt(var, context, new)
        self.contexts, self.memo = outer, memo
        return new

    def visit_for(self, s: For) -> Stmt:
        if s.kind != ForKind.PARALLEL:
            return super().visit_for(s)
        body = self.region(s.body)
        return s if body is s.body else s.replace(body=body)

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key not in ("thread_extent", "coproc_uop_scope"):
            return super().visit_attr(s)
        body = self.region(s.body)
        return s if body is s.body else s.replace(body=body)


def combine_context_call(stmt: Stmt) -> Stmt:
    """Combine the context calls of ``stmt``."""
    return _Combine().region(stmt)


def CombineContextCall() -> Pass:
    """Request each thread-local context once in a function, and once in each parallel region."""
    return body_pass("CombineContextCall", combine_context_call)
