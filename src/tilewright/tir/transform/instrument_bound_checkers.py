"""InstrumentBoundCheckers: check at run time that accesses stay inside their buffers.

Before and after, for a buffer ``A`` of 10 elements::

    for (i: int32, 0, n) {                 for (i: int32, 0, n) {
      B[i] = A[(i + 1)]                      assert((i < 9), "A is read outside of its 10 elements")
    }                                        B[i] = A[(i + 1)]
                                           }

Accesses that certainly stay inside get no check; a read under ``tir.if_then_else`` is checked where its condition
holds. It works on buffers, so before StorageFlatten. A check inside a vectorized loop makes that loop a serial one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.memory import Buffer, BufferLoad
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Call, IntImm, PrimExpr, Ramp
from tilewright.ir.transform import Pass
from tilewright.tir.expr import Range
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    AssertStmt,
    BufferRealize,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    Stmt,
)
from tilewright.tir.transform.common import ScopedMutator, function_pass
from tilewright.tir.visitor import ExprVisitor


class _Accesses(ExprVisitor):
    """The reads of an expression, each with the conditions under which it happens."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Buffer, tuple[PrimExpr, ...], tuple[PrimExpr, ...]]] = []
        self.conditions: tuple[PrimExpr, ...] = ()

    def visit_expr(self, expr: PrimExpr) -> Any:
        self.memo = {}  # an expression may stand in several places, under different conditions
        super().visit_expr(expr)

    def visit_buffer_load(self, e: BufferLoad) -> None:
        self.found.append((e.buffer, e.indices, self.conditions))
        super().visit_buffer_load(e)

    def visit_call(self, e: Call) -> None:
        if not isinstance(e.op, Op) or e.op.name != "tir.if_then_else":
            super().visit_call(e)
            return
        condition, then_value, else_value = e.args
        self.visit_expr(condition)
        outside = self.conditions
        self.conditions = (*outside, condition)
        self.visit_expr(then_value)
        self.conditions = (*outside, ops.logical_not(condition))
        self.visit_expr(else_value)
        self.conditions = outside


class _Instrument(ScopedMutator):
    def __init__(self) -> None:
        super().__init__()
        self.regions: dict[Buffer, Sequence[Range]] = {}
        self.checked = False

    def visit_expr(self, expr: PrimExpr) -> PrimExpr:
        return expr

    def visit_buffer_realize(self, s: BufferRealize) -> Stmt:
        self.regions[s.buffer] = s.bounds
        return super().visit_buffer_realize(s)

    def visit_for(self, s: For) -> Stmt:
        outside, self.checked = self.checked, False
        new = super().visit_for(s)
        if self.checked and s.kind == ForKind.VECTORIZED:
            new = new.replace(kind=ForKind.SERIAL)
        self.checked |= outside
        return new

    def visit_buffer_store(self, s: BufferStore) -> Stmt:
        accesses = _Accesses()
        for expr in (s.value, *s.indices):
            accesses.visit_expr(expr)
        checks = [(b, self._inside(b, i, c), "read") for b, i, c in accesses.found]
        return self._with_checks([*checks, (s.buffer, self._inside(s.buffer, s.indices, ()), "written")], s)

    def visit_evaluate(self, s: Evaluate) -> Stmt:
        accesses = _Accesses()
        accesses.visit_expr(s.value)
        return self._with_checks([(b, self._inside(b, i, c), "read") for b, i, c in accesses.found], s)

    def _with_checks(self, checks: Sequence[tuple[Buffer, PrimExpr, str]], stmt: Stmt) -> Stmt:
        for buffer, inside, what in reversed(checks):
            if isinstance(inside, IntImm) and inside.value:
                continue
            self.checked = True
            size = " x ".join(repr(r.extent) for r in self._region(buffer)) or "1"
            stmt = AssertStmt(inside, f"{buffer.name} is {what} outside of its {size} elements", stmt)
        return stmt

    def _region(self, buffer: Buffer) -> Sequence[Range]:
        return self.regions.get(buffer) or [Range(0, extent) for extent in buffer.shape]

    def _inside(self, buffer: Buffer, indices: Sequence[PrimExpr], conditions: Sequence[PrimExpr]) -> PrimExpr:
        """Return whether an access stays inside; true where it does not happen."""
        result: PrimExpr = ops.const(True)
        with ExitStack() as scopes:
            for condition in conditions:
                scopes.enter_context(self.analyzer.constraint_scope(condition))
            for index, r in zip(indices, self._region(buffer), strict=True):
                low = high = index
                if isinstance(index, Ramp):
                    low, high = index.base, index.base + (index.lanes - 1) * index.stride
                if dt.lanes(low.dtype) != 1:
                    continue  # lanes from anywhere
                for test in (low >= r.min, high < r.min + r.extent):
                    result = ops.logical_and(result, self.analyzer.simplify(test))
        for condition in conditions:
            result = ops.logical_or(ops.logical_not(condition), result)
        return self.analyzer.simplify(result)


def instrument_bound_checkers(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with bound checks."""
    body = _Instrument().visit_stmt(func.body)
    return func if body is func.body else func.with_body(body)


def InstrumentBoundCheckers() -> Pass:
    """The pass; ``tir.instrument_bound_checkers`` in the PassContext's config lets ``lower`` run it."""
    return function_pass("InstrumentBoundCheckers", instrument_bound_checkers)
