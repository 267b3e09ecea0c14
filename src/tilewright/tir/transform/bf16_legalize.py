"""BF16Legalize: compute bfloat16 and smaller types in float32, and round when storing.

Before and after::

    C[i] = ((bfloat16*)A[i] + (bfloat16*)B[i])
    C[i] = cast(bfloat16, (cast(float32, (bfloat16*)A[i]) + cast(float32, (bfloat16*)B[i])))

Values between operations of one expression stay in float32, so they are rounded once. BF16Promote and
BF16CastElimination are two steps to that: the first computes in float32 and rounds after every operation, the second
leaves out roundings of what is widened again.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import BinaryExpr, Call, Cast, FloatImm, Let, PrimExpr, Select, Var
from tilewright.ir.transform import Pass
from tilewright.tir.expr import Load
from tilewright.tir.stmt import AssertStmt, BufferStore, Evaluate, LetStmt, Stmt, Store
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtExprMutator, post_order_visit


def is_bf16(dtype: str) -> bool:
    """Return whether ``dtype`` is bfloat16, a smaller floating-point type, or a vector of one."""
    return dt.parse(dtype).kind in ("bfloat", "small")


def _float32(dtype: str) -> str:
    return dt.make("float", 32, dt.lanes(dtype))


class _Legalize(StmtExprMutator):
    """Rewrites expressions; ``visit_expr`` returns float32 for everything that is bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.wide_vars: dict[Var, Var] = {}

    def _wide(self, e: PrimExpr) -> PrimExpr:
        return ops.cast(_float32(e.dtype), e) if is_bf16(e.dtype) else e

    def as_stored(self, e: PrimExpr) -> PrimExpr:
        """Return the legal form of ``e`` in its own dtype."""
        if isinstance(e, Load) and is_bf16(e.dtype):  # a copy needs no arithmetic
            return super().visit_load(e)
        if isinstance(e, Call) and getattr(e.op, "name", "") == "tir.if_then_else" and is_bf16(e.dtype):
            condition, *values = e.args
            return Call(e.dtype, e.op, [self.visit_expr(condition), *map(self.as_stored, values)])
        value = self.visit_expr(e)
        if isinstance(value, Cast) and value.value.dtype == e.dtype:  # rounded already
            return value.value
        return ops.cast(e.dtype, value)

    def visit_float_imm(self, e: FloatImm) -> PrimExpr:
        return FloatImm("float32", e.value) if is_bf16(e.dtype) else e

    def visit_var(self, e: Var) -> PrimExpr:
        wide = self.wide_vars.get(e)
        return self._wide(e) if wide is None else wide

    def visit_load(self, e: Load) -> PrimExpr:
        return self._wide(super().visit_load(e))

    def visit_binary(self, e: BinaryExpr) -> PrimExpr:
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if a is e.a and b is e.b:
            return e
        return type(e)(a, b)

    def visit_select(self, e: Select) -> PrimExpr:
        parts = [self.visit_expr(x) for x in (e.condition, e.true_value, e.false_value)]
        return e if parts == [e.condition, e.true_value, e.false_value] else Select(*parts)

    def visit_cast(self, e: Cast) -> PrimExpr:
        value = self.visit_expr(e.value)
        if is_bf16(e.dtype):
            if is_bf16(e.value.dtype):
                return value
            return ops.cast(_float32(e.dtype), ops.cast(e.dtype, ops.cast(_float32(e.dtype), value)))
        return e if value is e.value else ops.cast(e.dtype, value)

    def visit_let(self, e: Let) -> PrimExpr:
        value = self.visit_expr(e.value)
        var = self._wide_var(e.var)
        return Let(var, value, self.visit_expr(e.body))

    def _wide_var(self, var: Var) -> Var:
        if not is_bf16(var.dtype):
            return var
        self.wide_vars[var] = Var(var.name, _float32(var.dtype))
        return self.wide_vars[var]

    def visit_call(self, e: Call) -> PrimExpr:
        if getattr(e.op, "name", "") in (
            "tir.reinterpret",
            "tir.call_extern",
            "tir.call_pure_extern",
            "tir.address_of",
        ):
            args = [
                self.as_stored(a) if not isinstance(a, Load) else super(_Legalize, self).visit_load(a) for a in e.args
            ]
            return self._wide(Call(e.dtype, e.op, args))
        if getattr(e.op, "name", "") == "tir.tvm_access_ptr":  # whose first argument says what lies there
            return Call(e.dtype, e.op, [e.args[0], *self.visit_exprs(e.args[1:])])
        args = list(self.visit_exprs(e.args))
        return Call(_float32(e.dtype) if is_bf16(e.dtype) else e.dtype, e.op, args)

    def visit_store(self, s: Store) -> Stmt:
        return Store(s.buffer_var, self.as_stored(s.value), self.visit_expr(s.index), self.visit_expr(s.predicate))

    def visit_buffer_store(self, s: BufferStore) -> Stmt:
        return BufferStore(s.buffer, self.as_stored(s.value), self.visit_exprs(s.indices))

    def visit_let_stmt(self, s: LetStmt) -> Stmt:
        value = self.visit_expr(s.value)
        return LetStmt(self._wide_var(s.var), value, self.visit_stmt(s.body))

    def visit_evaluate(self, s: Evaluate) -> Stmt:
        return Evaluate(self.visit_expr(s.value))

    def visit_assert(self, s: AssertStmt) -> Stmt:
        return AssertStmt(self.visit_expr(s.condition), s.message, self.visit_stmt(s.body))


def _uses_bf16(stmt: Stmt) -> bool:
    found = False

    def look(node: Any) -> None:
        nonlocal found
        if isinstance(node, PrimExpr):
            found = found or is_bf16(node.dtype)

    post_order_visit(stmt, look)
    return found


def bf16_legalize(stmt: Stmt) -> Stmt:
    """Legalise ``stmt``; the same object when it has no bfloat16."""
    return _Legalize().visit_stmt(stmt) if _uses_bf16(stmt) else stmt


def BF16Legalize() -> Pass:
    """Compute bfloat16 and smaller types in float32, and round when storing."""
    return body_pass("BF16Legalize", bf16_legalize)


class _Promote(StmtExprMutator):
    def visit_binary(self, e: BinaryExpr) -> PrimExpr:
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if not is_bf16(a.dtype):
            return e if a is e.a and b is e.b else type(e)(a, b)
        wide = type(e)(ops.cast(_float32(a.dtype), a), ops.cast(_float32(b.dtype), b))
        return ops.cast(e.dtype, wide) if is_bf16(e.dtype) else wide


class _Eliminate(StmtExprMutator):
    def visit_cast(self, e: Cast) -> PrimExpr:
        value = self.visit_expr(e.value)
        if isinstance(value, Cast) and is_bf16(value.dtype) and value.value.dtype == e.dtype == _float32(e.dtype):
            return value.value
        return e if value is e.value else ops.cast(e.dtype, value)


def BF16Promote() -> Pass:
    """Compute each operation on bfloat16 and smaller types in float32, and round its result."""
    return body_pass("BF16Promote", lambda stmt: _Promote().visit_stmt(stmt))


def BF16CastElimination() -> Pass:
    """Leave out roundings to bfloat16 and smaller types of float32 values that are widened again at once."""
    return body_pass("BF16CastElimination", lambda stmt: _Eliminate().visit_stmt(stmt))
