"""Visitors and mutators (``tir.functor``), and functions on them: substitution, variables, post-order walks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ir.iter_var import IterVar
from tilewright.ir.memory import Load
from tilewright.ir.prim_expr import PrimExpr, Var
from tilewright.ir.prim_functor import ExprFunctor, ExprMutator, ExprVisitor
from tilewright.ir.prim_vars import Substitute, VarCollector, as_pointer, bindings
from tilewright.tir.functor import StmtExprMutator, StmtExprVisitor, StmtFunctor, StmtMutator, StmtVisitor
from tilewright.tir.stmt import Allocate, AttrStmt, BufferRealize, BufferStore, For, LetStmt, Stmt, Store


class _PostOrder(StmtExprVisitor):
    def __init__(self, function: Callable[[Any], None]) -> None:
        super().__init__()
        self.function = function

    def visit_stmt(self, stmt: Stmt) -> None:
        StmtVisitor.visit_stmt(self, stmt)
        self.function(stmt)

    def visit_expr(self, expr: PrimExpr) -> None:
        if expr not in self.memo:
            ExprVisitor.visit_expr(self, expr)
            self.function(expr)


def post_order_visit(stmt: PrimExpr | Stmt, fvisit: Callable[[Any], None]) -> None:
    """Call ``fvisit`` on every sub-expression and statement once, children first."""
    _PostOrder(fvisit).visit(stmt)


class _Substitute(StmtExprMutator, Substitute):
    def visit_store(self, s: Store) -> Stmt:
        """A store through a replaced pointer writes to the new one."""
        new = super().visit_store(s)
        target = self.value_map.get(s.buffer_var)
        return new if target is None else new.replace(buffer_var=as_pointer(target))

    def visit_attr(self, s: AttrStmt) -> Stmt:
        """The attribute's node may be a variable too."""
        new = super().visit_attr(s)
        if isinstance(s.node, Var) and s.node in self.value_map:
            return new.replace(node=self.value_map[s.node])
        return new


def substitute(node: Any, vmap: Mapping[Any, Any] | Callable[[Var], PrimExpr | None]) -> Any:
    """Replace variables in ``node`` (expression or statement); ``vmap`` may be keyed by IterVar as well.

    Before and after ``substitute(s, {i: 3})``::

        A[((i*4) + j)] = 1f32        A[(12 + j)] = 1f32
    """
    if callable(vmap) and not isinstance(vmap, Mapping):
        found = {v: vmap(v) for v in free_vars(node)}
        vmap = {v: e for v, e in found.items() if e is not None}
    binds = bindings(vmap)
    return _Substitute(binds).visit(node) if binds else node


class _FreshVars(StmtExprMutator):
    """Gives a copy its own allocations and let-bound names."""

    def __init__(self) -> None:
        super().__init__()
        self.renamed: dict[Var, Var] = {}

    def _fresh(self, var: Var) -> Var:
        new = Var(var.name, var.type_annotation or var.dtype)
        self.renamed[var] = self.memo[var] = new
        return new

    def visit_allocate(self, s: Allocate) -> Stmt:
        var = self._fresh(s.buffer_var)
        return super().visit_allocate(s).replace(buffer_var=var)

    def visit_let_stmt(self, s: LetStmt) -> Stmt:
        value = self.visit_expr(s.value)
        var = self._fresh(s.var)
        return LetStmt(var, value, self.visit_stmt(s.body))

    def visit_load(self, e: Load) -> PrimExpr:
        new = super().visit_load(e)
        var = self.renamed.get(e.buffer_var)
        return new if var is None else new.replace(buffer_var=var)

    def visit_store(self, s: Store) -> Stmt:
        new = super().visit_store(s)
        var = self.renamed.get(s.buffer_var)
        return new if var is None else new.replace(buffer_var=var)

    def visit_attr(self, s: AttrStmt) -> Stmt:
        new = super().visit_attr(s)
        return new.replace(node=self.renamed[s.node]) if isinstance(s.node, Var) and s.node in self.renamed else new


class _Defines(StmtVisitor):
    found = False

    def visit_allocate(self, s: Allocate) -> None:
        self.found = True

    def visit_let_stmt(self, s: LetStmt) -> None:
        self.found = True


def with_fresh_vars(stmt: Stmt) -> Stmt:
    """A copy of ``stmt`` whose allocations and names are its own; the same object when it has none."""
    defines = _Defines()
    defines.visit_stmt(stmt)
    return _FreshVars().visit_stmt(stmt) if defines.found else stmt


class _VarCollector(StmtExprVisitor, VarCollector):
    def visit_stmt(self, stmt: Stmt) -> Any:
        return StmtVisitor.visit_stmt(self, stmt)

    def visit_for(self, s: For) -> None:
        self.defined[s.loop_var] = None
        super().visit_for(s)

    def visit_let_stmt(self, s: LetStmt) -> None:
        self.defined[s.var] = None
        super().visit_let_stmt(s)

    def visit_allocate(self, s: Allocate) -> None:
        self.defined[s.buffer_var] = None
        super().visit_allocate(s)

    def visit_buffer_realize(self, s: BufferRealize) -> None:
        self.defined[s.buffer.data] = None
        super().visit_buffer_realize(s)

    def visit_attr(self, s: AttrStmt) -> None:
        if isinstance(s.node, IterVar) and s.attr_key in ("thread_extent", "virtual_thread"):
            self.defined[s.node.var] = None
        elif isinstance(s.node, Var):
            self.used[s.node] = None
        super().visit_attr(s)

    def visit_store(self, s: Store) -> None:
        self.used[s.buffer_var] = None
        super().visit_store(s)

    def visit_buffer_store(self, s: BufferStore) -> None:
        self.used[s.buffer.data] = None
        super().visit_buffer_store(s)


def stmt_vars(node: PrimExpr | Stmt) -> list[Var]:
    """Every variable that ``node`` uses, bound ones included, in order of appearance."""
    collector = _VarCollector()
    collector.visit(node)
    return list(collector.used)


def free_vars(node: PrimExpr | Stmt) -> list[Var]:
    """The variables that ``node`` uses but does not define (each variable is defined once), in order of appearance."""
    collector = _VarCollector()
    collector.visit(node)
    return [v for v in collector.used if v not in collector.defined]


def uses_var(node: PrimExpr | Stmt, var: Var | Callable[[Var], bool]) -> bool:
    """Return whether ``node`` uses the variable, or one for which the function holds."""
    used = stmt_vars(node)
    return any(var(v) for v in used) if not isinstance(var, Var) else any(v is var for v in used)


__all__ = [
    "ExprFunctor", "ExprMutator", "ExprVisitor", "StmtExprMutator", "StmtExprVisitor", "StmtFunctor", "StmtMutator",
    "StmtVisitor", "free_vars", "post_order_visit", "stmt_vars", "substitute", "uses_var",
    "with_fresh_vars",
]  # fmt: skip
