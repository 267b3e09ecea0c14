"""Simplify: simplest form of every expression, under the loop ranges and conditions around it.

Before and after::

    for (i: int32, 0, 8) {                        for (i: int32, 0, 8) {
      if (i < 10) {                                 A[((i*4) + 1)] = 2f32
        A[(((i*8) + 2) / 2)] = (1f32 + 1f32)      }
      }
    }

Loops that run once, branches that are never taken and stores of what is there already go away.
"""

from __future__ import annotations

from tilewright.arith.analyzer import Analyzer
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import ConstExpr, IntImm, PrimExpr, Var
from tilewright.ir.transform import Pass
from tilewright.tir.expr import Load
from tilewright.tir.stmt import AssertStmt, Evaluate, For, ForKind, IfThenElse, LetStmt, SeqStmt, Stmt, Store, While
from tilewright.tir.transform.common import ScopedMutator, body_pass
from tilewright.tir.visitor import StmtMutator


class _Simplify(ScopedMutator):
    def visit_expr(self, expr: PrimExpr) -> PrimExpr:
        return self.analyzer.simplify(expr)

    def visit_for(self, s: For) -> Stmt:
        extent = self.visit_expr(s.extent)
        if isinstance(extent, IntImm) and extent.value <= 0:
            return Evaluate(0)
        new = super().visit_for(s)
        runs_once = isinstance(extent, IntImm) and extent.value == 1 and s.kind != ForKind.THREAD_BINDING
        # bind() has put the loop's minimum in place of the variable
        return new.body if runs_once and isinstance(new, For) and not s.annotations else new

    def visit_if_then_else(self, s: IfThenElse) -> Stmt:
        condition = self.visit_expr(s.condition)
        if isinstance(condition, IntImm):
            if condition.value:
                return self.visit_stmt(s.then_case)
            return Evaluate(0) if s.else_case is None else self.visit_stmt(s.else_case)
        return super().visit_if_then_else(s)

    def visit_let_stmt(self, s: LetStmt) -> Stmt:
        value = self.visit_expr(s.value)
        if isinstance(value, (ConstExpr, Var)) and value.dtype == s.var.dtype and value.dtype != "handle":
            self.analyzer.bind(s.var, value)
            return self.visit_stmt(s.body)
        return super().visit_let_stmt(s)

    def visit_store(self, s: Store) -> Stmt:
        new = super().visit_store(s)
        assert isinstance(new, Store)
        value = new.value
        if isinstance(value, Load) and value.buffer_var is new.buffer_var and value.index is new.index:
            return Evaluate(0)
        return new

    def visit_assert(self, s: AssertStmt) -> Stmt:
        condition = self.visit_expr(s.condition)
        if isinstance(condition, IntImm) and condition.value:
            return self.visit_stmt(s.body)
        body = self.visit_under(condition, s.body)  # the check itself is not made where it is known to hold
        return s if condition is s.condition and body is s.body else AssertStmt(condition, s.message, body)

    def visit_while(self, s: While) -> Stmt:
        condition = self.visit_expr(s.condition)
        if ops.is_const_int(condition, 0):
            return Evaluate(0)
        return super().visit_while(s)

    def visit_seq(self, s: SeqStmt) -> Stmt:
        return StmtMutator.visit_seq(self, s)


def simplify(stmt: Stmt, analyzer: Analyzer | None = None) -> Stmt:
    """Simplify all expressions of ``stmt``."""
    return _Simplify(analyzer).visit_stmt(stmt)


def Simplify() -> Pass:
    """Simplify expressions by the ranges and conditions around them."""
    return body_pass("Simplify", simplify)
