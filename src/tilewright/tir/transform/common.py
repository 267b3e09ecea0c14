"""Helpers of the passes: making a ``Pass`` of a function on statements, and a mutator that tracks what is in scope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.ir import prim_ops as ops
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import PrimExpr, Var
from tilewright.ir.transform import FunctionPass, Pass, PassContext, PassInfo
from tilewright.tir.expr import IterVar, Range
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import AttrStmt, For, IfThenElse, LetStmt, Stmt
from tilewright.tir.visitor import StmtExprMutator


def function_pass(name: str, transform: Callable[[PrimFunc], PrimFunc]) -> Pass:
    """A pass that maps every PrimFunc."""

    def run(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return transform(func)

    return FunctionPass(run, PassInfo(0, f"tir.{name}"), PrimFunc)


def body_pass(name: str, transform: Callable[[Stmt], Stmt]) -> Pass:
    """A pass that maps the body of every PrimFunc."""

    def run(func: PrimFunc) -> PrimFunc:
        body = transform(func.body)
        return func if body is func.body else func.with_body(body)

    return function_pass(name, run)


def bind_range(analyzer: Analyzer, var: Any, low: PrimExpr, extent: PrimExpr) -> None:
    """Declare the range of a loop variable to the analyzer."""
    analyzer.bind(var, Range.from_min_extent(low, extent))


class ScopedMutator(StmtExprMutator):
    """A mutator with an analyzer that knows the loop ranges and conditions around the current statement."""

    def __init__(self, analyzer: Analyzer | None = None) -> None:
        super().__init__()
        self.analyzer = analyzer or Analyzer()

    def visit_for(self, s: For) -> Stmt:
        """Bind the loop variable, then rebuild."""
        self.bind(s.loop_var, s.min, s.extent)
        return super().visit_for(s)

    def bind(self, var: Var, low: PrimExpr, extent: PrimExpr) -> None:
        """Declare a range to the analyzer; if ``var`` had another range, drop the memo."""
        conclusions = self.analyzer.context.simplify_memo
        bind_range(self.analyzer, var, low, extent)
        if self.analyzer.context.simplify_memo is not conclusions:
            self.forget_results()

    def forget_results(self) -> None:
        """Start with an empty memo."""
        self.memo = {}

    def visit_attr(self, s: AttrStmt) -> Stmt:
        """Bind the variable of a thread axis, then rebuild."""
        if s.attr_key in ("thread_extent", "virtual_thread") and isinstance(s.node, IterVar):
            self.bind(s.node.var, ops.const(0, s.value.dtype), s.value)
        return super().visit_attr(s)

    def visit_let_stmt(self, s: LetStmt) -> Stmt:
        """Declare the value to the analyzer, then rebuild."""
        if s.value.dtype in ("int32", "int64"):
            bound = self.analyzer.const_int_bound(s.value)
            self.analyzer.context.var_bounds.setdefault(s.var, (bound.min_value, bound.max_value))
        return super().visit_let_stmt(s)

    def visit_if_then_else(self, s: IfThenElse) -> Stmt:
        """Visit the branches under the condition and its negation."""
        condition = self.visit_expr(s.condition)
        then_case = self.visit_under(condition, s.then_case)
        else_case = None
        if s.else_case is not None:
            else_case = self.visit_under(ops.logical_not(condition), s.else_case)
        if condition is s.condition and then_case is s.then_case and else_case is s.else_case:
            return s
        return IfThenElse(condition, then_case, else_case)

    def visit_under(self, condition: PrimExpr, stmt: Stmt) -> Stmt:
        """Rewrite ``stmt`` under ``condition``; results found under it are not reused elsewhere."""
        outside = self.memo
        self.forget_results()
        with self.analyzer.constraint_scope(condition):
            new: Stmt = self.visit_stmt(stmt)
        self.forget_results()
        self.memo = outside
        return new
