"""RewriteUnsafeSelect: replace a Select whose unchosen value may fault by ``if_then_else``, since it evaluates both.

Before and after::

    select((i < 3), (float32*)A[i], 0f32)        @tir.if_then_else((i < 3), (float32*)A[i], 0f32, dtype=float32)
"""

from __future__ import annotations

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import Broadcast, Call, Div, FloorDiv, FloorMod, Mod, PrimExpr, Select
from tilewright.ir.transform import Pass
from tilewright.tir.expr import BufferLoad, Load
from tilewright.tir.op import effect_of
from tilewright.tir.stmt import Stmt
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import ExprVisitor, StmtExprMutator


class _Unsafe(ExprVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def visit_load(self, e: Load) -> None:
        self.found = True

    def visit_buffer_load(self, e: BufferLoad) -> None:
        self.found = True

    def visit_binary(self, e: PrimExpr) -> None:
        super().visit_binary(e)  # type: ignore[arg-type]
        if isinstance(e, (Div, Mod, FloorDiv, FloorMod)) and not dt.is_float(e.dtype):
            divisor = e.b.value if isinstance(e.b, Broadcast) else e.b
            if not ops.is_const_int(divisor) or ops.is_const_int(divisor, 0):
                self.found = True

    def visit_call(self, e: Call) -> None:
        if e.op.name == "tir.if_then_else":
            self.visit_expr(e.args[0])  # guards the rest
        elif e.op.name != "tir.address_of":
            self.found |= effect_of(e) != "pure"
            super().visit_call(e)


def is_unsafe(expr: PrimExpr) -> bool:
    """Return whether evaluating ``expr`` may fault: it reads memory, divides by a possible zero, or has effects."""
    visitor = _Unsafe()
    visitor.visit_expr(expr)
    return visitor.found


class _Rewrite(StmtExprMutator):
    def visit_select(self, e: Select) -> PrimExpr:
        new = super().visit_select(e)
        if not isinstance(new, Select) or dt.lanes(new.condition.dtype) != 1:
            return new
        if is_unsafe(new.true_value) or is_unsafe(new.false_value):
            return Call(new.dtype, "tir.if_then_else", (new.condition, new.true_value, new.false_value))
        return new


def rewrite_unsafe_select(stmt: Stmt) -> Stmt:
    """Rewrite the selects of ``stmt``; those with a vector condition stay."""
    return _Rewrite().visit_stmt(stmt)


def RewriteUnsafeSelect() -> Pass:
    """Replace Selects with a value that may fault by ``if_then_else``."""
    return body_pass("RewriteUnsafeSelect", rewrite_unsafe_select)
