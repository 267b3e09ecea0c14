"""HoistIfThenElse: test a condition once, outside of the loops that do not change it.

Before and after::

    for (i: int32, 0, 8) {            if (n < 4) {
      if (n < 4) {                      for (i: int32, 0, 8) {
        A[i] = 0f32                       A[i] = 0f32
      }                                 }
    }                                 }
"""

from __future__ import annotations

from tilewright.ir.prim_expr import And, Call, PrimExpr
from tilewright.ir.transform import Pass
from tilewright.tir.analysis import conjuncts, side_effect
from tilewright.tir.op import likely
from tilewright.tir.stmt import For, ForKind, IfThenElse, Stmt
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtMutator, uses_var


def _parts(condition: PrimExpr) -> tuple[list[PrimExpr], bool]:
    """The conditions that must all hold, and whether they were marked likely."""
    marked = isinstance(condition, Call) and getattr(condition.op, "name", "") == "tir.likely"
    return conjuncts(condition.args[0] if marked and isinstance(condition, Call) else condition), marked


def _join(parts: list[PrimExpr], marked: bool) -> PrimExpr:
    result = parts[0]
    for part in parts[1:]:
        result = And(result, part)
    return likely(result) if marked else result


class _Hoist(StmtMutator):
    def visit_for(self, s: For) -> Stmt:
        new = super().visit_for(s)
        assert isinstance(new, For)
        body = new.body
        if not isinstance(body, IfThenElse) or s.kind == ForKind.THREAD_BINDING:
            return new
        parts, marked = _parts(body.condition)
        fixed = [p for p in parts if not uses_var(p, s.loop_var) and side_effect(p) == "pure"]
        rest = [p for p in parts if not any(p is f for f in fixed)]
        if not fixed or (rest and body.else_case is not None):
            return new
        if rest:
            inner: Stmt = IfThenElse(_join(rest, marked), body.then_case, None)
            return IfThenElse(_join(fixed, marked), new.replace(body=inner), None)
        else_case = None if body.else_case is None else new.replace(body=body.else_case)
        return IfThenElse(_join(fixed, marked), new.replace(body=body.then_case), else_case)


def hoist_if_then_else(stmt: Stmt) -> Stmt:
    """Hoist the conditions of ``stmt``."""
    return _Hoist().visit_stmt(stmt)


def HoistIfThenElse(variant: str | None = None) -> Pass:
    """The pass; ``variant`` "basic" is accepted for TVM's sake."""
    return body_pass("HoistIfThenElse", hoist_if_then_else)
