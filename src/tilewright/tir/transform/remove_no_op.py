"""RemoveNoOp: drop statements without effect.

Before and after::

    allocate(B: Pointer(float32), float32, [4]), storage_scope = global;      A[0] = 1f32
    for (i: int32, 0, 8) {
      0
    }
    A[0] = 1f32
"""

from __future__ import annotations

from tilewright.ir import prim_ops as ops
from tilewright.ir.transform import Pass
from tilewright.tir.analysis import is_pure
from tilewright.tir.stmt import (
    Allocate,
    AttrStmt,
    BufferRealize,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    is_no_op,
)  # fmt: skip
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtMutator, stmt_vars

_NO_OP = Evaluate(0)


class _RemoveNoOp(StmtMutator):
    def visit_for(self, s: For) -> Stmt:
        new = super().visit_for(s)
        assert isinstance(new, For)
        return _NO_OP if is_no_op(new.body) or ops.is_const_int(new.extent, 0) else new

    def visit_if_then_else(self, s: IfThenElse) -> Stmt:
        new = super().visit_if_then_else(s)
        assert isinstance(new, IfThenElse)
        if new.else_case is not None and is_no_op(new.else_case):
            new = IfThenElse(new.condition, new.then_case, None)
        if not is_no_op(new.then_case):
            return new
        if new.else_case is not None:
            return IfThenElse(ops.logical_not(new.condition), new.else_case, None)
        return Evaluate(new.condition) if not is_pure(new.condition) else _NO_OP

    def visit_let_stmt(self, s: LetStmt) -> Stmt:
        new = super().visit_let_stmt(s)
        assert isinstance(new, LetStmt)
        if is_no_op(new.body):
            return _NO_OP if is_pure(new.value) else Evaluate(new.value)
        return new

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key == "pragma_debug_skip_region":
            return _NO_OP
        new = super().visit_attr(s)
        assert isinstance(new, AttrStmt)
        return _NO_OP if is_no_op(new.body) else new

    def visit_allocate(self, s: Allocate) -> Stmt:
        new = super().visit_allocate(s)
        assert isinstance(new, Allocate)
        return _NO_OP if is_no_op(new.body) else new

    def visit_buffer_realize(self, s: BufferRealize) -> Stmt:
        new = super().visit_buffer_realize(s)
        assert isinstance(new, BufferRealize)
        return _NO_OP if is_no_op(new.body) else new

    def visit_evaluate(self, s: Evaluate) -> Stmt:
        return _NO_OP if is_pure(s.value) else s


class _RemoveUnused(StmtMutator):
    """Drops allocations and names that nothing uses."""

    def __init__(self, used: set[object]) -> None:
        super().__init__()
        self.used = used

    def visit_allocate(self, s: Allocate) -> Stmt:
        new = super().visit_allocate(s)
        return new if s.buffer_var in self.used else new.body  # type: ignore[attr-defined]

    def visit_let_stmt(self, s: LetStmt) -> Stmt:
        new = super().visit_let_stmt(s)
        return new if s.var in self.used or not is_pure(s.value) else new.body  # type: ignore[attr-defined]


def remove_no_op(stmt: Stmt) -> Stmt:
    """Drop statements without effect."""
    smaller: Stmt = _RemoveNoOp().visit_stmt(stmt)
    return _RemoveUnused(set(stmt_vars(smaller))).visit_stmt(smaller)


def RemoveNoOp() -> Pass:
    """Drop statements without effect."""
    return body_pass("RemoveNoOp", remove_no_op)
