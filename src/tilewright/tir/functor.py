"""Visitors and mutators over statements, and over statements with their expressions (``ir.prim_functor``).

The methods are ``visit_for``, ``visit_store``, ``visit_let_stmt`` (apart from the expression's ``visit_let``), ... A
visitor over statements forgets what it has seen at every new expression of a statement (``StmtExprVisitor``).
Statements may nest as deep as expressions (2,000 lets).
"""

from __future__ import annotations

from typing import Any, TypeVar

from tilewright.ir.iter_var import Range
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.prim_functor import DEPTH_STEP, ExprFunctor, ExprMutator, ExprVisitor, ensure_stack, same_items
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Prefetch,
    SeqStmt,
    Stmt,
    Store,
    While,
    seq,
)  # fmt: skip

R = TypeVar("R")


class StmtFunctor(ExprFunctor[R]):
    """Dispatches each statement, like each expression, to the method of its class."""

    def visit_stmt(self, stmt: Stmt) -> Any:
        """The result for ``stmt``."""
        method = self._methods.get(type(stmt)) or self._resolve(type(stmt))
        depth = self._depth
        self._depth = depth + 1
        if not (depth + 1) % DEPTH_STEP:
            ensure_stack()
        result = method(self, stmt)
        self._depth = depth
        return result

    def visit(self, node: PrimExpr | Stmt) -> Any:
        """The result for an expression or a statement."""
        return self.visit_stmt(node) if isinstance(node, Stmt) else self.visit_expr(node)


class StmtVisitor(StmtFunctor[Any]):
    """Visits statements; expressions go to ``visit_expr``, which does nothing here."""

    def visit_expr(self, expr: PrimExpr) -> Any:
        """Nothing: this visitor looks at statements only."""

    def visit_for(self, s: For) -> Any:
        """Bounds, then body."""
        self.visit_expr(s.min)
        self.visit_expr(s.extent)
        self.visit_stmt(s.body)

    def visit_while(self, s: While) -> Any:
        """Condition, then body."""
        self.visit_expr(s.condition)
        self.visit_stmt(s.body)

    def visit_if_then_else(self, s: IfThenElse) -> Any:
        """Condition, then both branches."""
        self.visit_expr(s.condition)
        self.visit_stmt(s.then_case)
        if s.else_case is not None:
            self.visit_stmt(s.else_case)

    def visit_seq(self, s: SeqStmt) -> Any:
        """Each statement."""
        for item in s.seq:
            self.visit_stmt(item)

    def visit_let_stmt(self, s: LetStmt) -> Any:
        """Value, then body."""
        self.visit_expr(s.value)
        self.visit_stmt(s.body)

    def visit_store(self, s: Store) -> Any:
        """Value, index, predicate."""
        self.visit_expr(s.value)
        self.visit_expr(s.index)
        self.visit_expr(s.predicate)

    def visit_allocate(self, s: Allocate) -> Any:
        """Extents and condition, then body."""
        for extent in s.extents:
            self.visit_expr(extent)
        self.visit_expr(s.condition)
        self.visit_stmt(s.body)

    def visit_buffer_store(self, s: BufferStore) -> Any:
        """Value, then indices."""
        self.visit_expr(s.value)
        for index in s.indices:
            self.visit_expr(index)

    def visit_buffer_realize(self, s: BufferRealize) -> Any:
        """Bounds and condition, then body."""
        for dim in s.bounds:
            self.visit_expr(dim.min)
            self.visit_expr(dim.extent)
        self.visit_expr(s.condition)
        self.visit_stmt(s.body)

    def visit_prefetch(self, s: Prefetch) -> Any:
        """The bounds."""
        for dim in s.bounds:
            self.visit_expr(dim.min)
            self.visit_expr(dim.extent)

    def visit_attr(self, s: AttrStmt) -> Any:
        """Value, then body."""
        self.visit_expr(s.value)
        self.visit_stmt(s.body)

    def visit_assert(self, s: AssertStmt) -> Any:
        """Condition and message, then body."""
        self.visit_expr(s.condition)
        self.visit_expr(s.message)
        self.visit_stmt(s.body)

    def visit_evaluate(self, s: Evaluate) -> Any:
        """The value."""
        self.visit_expr(s.value)


class StmtExprVisitor(StmtVisitor, ExprVisitor):
    """Visits statements and the expressions in them; within one expression each shared part once."""

    visit_expr = ExprVisitor.visit_expr  # a call less for each expression than super()

    def visit_stmt(self, stmt: Stmt) -> Any:
        """Visit ``stmt``, forgetting which expressions were seen in other statements."""
        self.memo.clear()
        return StmtVisitor.visit_stmt(self, stmt)


class StmtMutator(StmtFunctor[PrimExpr]):
    """Rebuilds statements; expressions go to ``visit_expr``, which keeps them here."""

    def visit_expr(self, expr: PrimExpr) -> PrimExpr:
        """Expressions stay: this mutator changes statements only."""
        return expr

    def visit_exprs(self, items: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        """The new items; the same tuple when none changed."""
        new = tuple([self.visit_expr(item) for item in items])
        return items if same_items(new, items) else new

    def visit_range(self, r: Range) -> Range:
        """The new range; the same object when nothing changed."""
        low, extent = self.visit_expr(r.min), self.visit_expr(r.extent)
        return r if low is r.min and extent is r.extent else Range.from_min_extent(low, extent)

    def visit_for(self, s: For) -> Stmt:
        """Rebuild with new bounds and body."""
        low, extent = self.visit_expr(s.min), self.visit_expr(s.extent)
        body = self.visit_stmt(s.body)
        if low is s.min and extent is s.extent and body is s.body:
            return s
        return For(s.loop_var, low, extent, s.kind, body, s.thread_binding, s.annotations)

    def visit_while(self, s: While) -> Stmt:
        """Rebuild with the new condition and body."""
        condition, body = self.visit_expr(s.condition), self.visit_stmt(s.body)
        return s if condition is s.condition and body is s.body else While(condition, body)

    def visit_if_then_else(self, s: IfThenElse) -> Stmt:
        """Rebuild with the new condition and branches."""
        condition, then_case = self.visit_expr(s.condition), self.visit_stmt(s.then_case)
        else_case = None if s.else_case is None else self.visit_stmt(s.else_case)
        if condition is s.condition and then_case is s.then_case and else_case is s.else_case:
            return s
        return IfThenElse(condition, then_case, else_case)

    def visit_seq(self, s: SeqStmt) -> Stmt:
        """Rebuild flat with the new statements."""
        items = [self.visit_stmt(item) for item in s.seq]
        return s if same_items(tuple(items), s.seq) else seq(*items)

    def visit_let_stmt(self, s: LetStmt) -> Stmt:
        """Rebuild with the new value and body."""
        value, body = self.visit_expr(s.value), self.visit_stmt(s.body)
        return s if value is s.value and body is s.body else LetStmt(s.var, value, body)

    def visit_store(self, s: Store) -> Stmt:
        """Rebuild with the new value, index and predicate."""
        value, index, predicate = self.visit_expr(s.value), self.visit_expr(s.index), self.visit_expr(s.predicate)
        if value is s.value and index is s.index and predicate is s.predicate:
            return s
        return Store(s.buffer_var, value, index, predicate)

    def visit_allocate(self, s: Allocate) -> Stmt:
        """Rebuild with new extents, condition and body."""
        extents, condition = self.visit_exprs(s.extents), self.visit_expr(s.condition)
        body = self.visit_stmt(s.body)
        if extents is s.extents and condition is s.condition and body is s.body:
            return s
        return Allocate(s.buffer_var, s.dtype, extents, condition, body, s.annotations)

    def visit_buffer_store(self, s: BufferStore) -> Stmt:
        """Rebuild with the new value and indices."""
        value, indices = self.visit_expr(s.value), self.visit_exprs(s.indices)
        return s if value is s.value and indices is s.indices else BufferStore(s.buffer, value, indices)

    def visit_buffer_realize(self, s: BufferRealize) -> Stmt:
        """Rebuild with new bounds, condition and body."""
        bounds = tuple([self.visit_range(r) for r in s.bounds])
        condition, body = self.visit_expr(s.condition), self.visit_stmt(s.body)
        if same_items(bounds, s.bounds) and condition is s.condition and body is s.body:
            return s
        return BufferRealize(s.buffer, bounds, condition, body)

    def visit_prefetch(self, s: Prefetch) -> Stmt:
        """Rebuild with new bounds."""
        bounds = tuple([self.visit_range(r) for r in s.bounds])
        return s if same_items(bounds, s.bounds) else Prefetch(s.buffer, bounds, s.locality)

    def visit_attr(self, s: AttrStmt) -> Stmt:
        """Rebuild with the new value and body."""
        value, body = self.visit_expr(s.value), self.visit_stmt(s.body)
        return s if value is s.value and body is s.body else AttrStmt(s.node, s.attr_key, value, body)

    def visit_assert(self, s: AssertStmt) -> Stmt:
        """Rebuild with the new condition, message and body."""
        condition, message = self.visit_expr(s.condition), self.visit_expr(s.message)
        body = self.visit_stmt(s.body)
        if condition is s.condition and message is s.message and body is s.body:
            return s
        return AssertStmt(condition, message, body)

    def visit_evaluate(self, s: Evaluate) -> Stmt:
        """Rebuild with the new value."""
        value = self.visit_expr(s.value)
        return s if value is s.value else Evaluate(value)


class StmtExprMutator(StmtMutator, ExprMutator):
    """Rebuilds statements and the expressions in them."""

    visit_expr = ExprMutator.visit_expr  # a call less for each expression than super()
