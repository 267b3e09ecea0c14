"""HoistIfThenElse: test a condition once, outside of the loops that do not change it.

Before and after::

    for (i: int32, 0, 8) {            if (n < 4) {
      if (n < 4) {                      for (i: int32, 0, 8) {
        A[i] = 0f32                       A[i] = 0f32
      }                                 }
    }                                 }

Conditions that speak of a thread axis stay where they are, so that all threads of a block run the same loops, unless
the option ``support_block_scope_hosting`` of ``tir.HoistIfThenElse`` in the PassContext's config says otherwise.
"""

from __future__ import annotations

from tilewright.ir.prim_expr import And, Call, PrimExpr, Var
from tilewright.ir.transform import Pass, PassContext
from tilewright.tir.analysis import conjuncts, side_effect
from tilewright.tir.expr import IterVar
from tilewright.tir.op import likely
from tilewright.tir.stmt import AttrStmt, For, ForKind, IfThenElse, Stmt
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtMutator, stmt_vars


def _parts(condition: PrimExpr) -> tuple[list[PrimExpr], bool]:
    """The conditions that must all hold, and whether they were marked likely."""
    marked = isinstance(condition, Call) and getattr(condition.op, "name", "") == "tir.likely"
    return conjuncts(condition.args[0] if marked and isinstance(condition, Call) else condition), marked


def _join(parts: list[PrimExpr], marked: bool) -> PrimExpr:
    result = parts[0]
    for part in parts[1:]:
        result = And(result, part)
    return likely(result) if marked else result


def _joined(test: IfThenElse) -> IfThenElse:
    """Return ``if (a) if (b) body`` as ``if (a && b) body``: pure conditions may be asked in any order."""
    inner = test.then_case
    while test.else_case is None and isinstance(inner, IfThenElse) and inner.else_case is None:
        (parts, marked), (more, also) = _parts(test.condition), _parts(inner.condition)
        if any(side_effect(part) != "pure" for part in (*parts, *more)):
            break
        test = IfThenElse(_join([*parts, *more], marked and also), inner.then_case, None)
        inner = test.then_case
    return test


class _Hoist(StmtMutator):
    def __init__(self, over_threads: bool) -> None:
        super().__init__()
        self.over_threads = over_threads
        self.threads: set[Var] = set()

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key != "thread_extent" or not isinstance(s.node, IterVar):
            return super().visit_attr(s)
        self.threads.add(s.node.var)
        return super().visit_attr(s)

    def visit_for(self, s: For) -> Stmt:
        new = super().visit_for(s)
        assert isinstance(new, For)
        return new if s.kind == ForKind.THREAD_BINDING else self._split(new)

    def _split(self, loop: For) -> Stmt:
        """The loop inside the conditions of its body that it does not change."""
        scopes: list[AttrStmt] = []  # of threads, between the loop and the condition
        body = loop.body
        while self.over_threads and isinstance(body, AttrStmt) and isinstance(body.node, IterVar):
            scopes.append(body)
            body = body.body
        if not isinstance(body, IfThenElse):
            return loop
        changed = {loop.loop_var, *(scope.node.var for scope in scopes)}
        if not self._is_fixed(body.condition, changed):  # a condition inside of it may be
            body = _joined(body)
        parts, marked = _parts(body.condition)
        fixed = [p for p in parts if self._is_fixed(p, changed)]
        rest = [p for p in parts if not any(p is f for f in fixed)]
        if not fixed or (rest and body.else_case is not None):
            return loop

        def around(case: Stmt) -> For:
            for scope in reversed(scopes):
                case = scope.replace(body=case)
            return loop.replace(body=case)

        if rest:
            inner = IfThenElse(_join(rest, marked), body.then_case, None)
            return IfThenElse(_join(fixed, marked), around(inner), None)
        else_case = None if body.else_case is None else self._split(around(body.else_case))
        return IfThenElse(_join(fixed, marked), self._split(around(body.then_case)), else_case)

    def _is_fixed(self, condition: PrimExpr, changed: set[Var]) -> bool:
        if side_effect(condition) != "pure" or not changed.isdisjoint(stmt_vars(condition)):
            return False
        return self.over_threads or self.threads.isdisjoint(stmt_vars(condition))


def hoist_if_then_else(stmt: Stmt, over_threads: bool = False) -> Stmt:
    """Hoist the conditions of ``stmt``; ``over_threads``: also those that speak of thread axes."""
    return _Hoist(over_threads).visit_stmt(stmt)


def HoistIfThenElse(variant: str | None = None) -> Pass:
    """Hoist conditions out of loops; ``variant`` "basic" leaves conditions on thread axes, whatever the PassContext
    says.
    """

    def run(stmt: Stmt) -> Stmt:
        options = PassContext.current().option("tir.HoistIfThenElse")
        return hoist_if_then_else(stmt, variant != "basic" and bool(options.get("support_block_scope_hosting")))

    return body_pass("HoistIfThenElse", run)
