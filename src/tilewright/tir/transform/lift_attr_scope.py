"""LiftAttrScope: move an attribute that several statements share as far out as possible.

Before and after::

    for (i: int32, 0, 8) {                        attr [c] "k" = 1;
      attr [c] "k" = 1; A[i] = 0f32               for (i: int32, 0, 8) {
      attr [c] "k" = 1; B[i] = 0f32                 A[i] = 0f32
    }                                               B[i] = 0f32
                                                  }

Statements in a row that share the attribute get it once, where others beside them lack it. It never leaves a loop whose
variable its value speaks of, nor the memory that is allocated around it.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir.node import Node
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.transform import Pass
from tilewright.tir.stmt import Allocate, AttrStmt, For, IfThenElse, LetStmt, SeqStmt, Stmt, While, is_no_op, seq
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import uses_var


class _Found(NamedTuple):
    """A statement, and the attribute that was taken off it."""

    stmt: Stmt
    node: Node | None = None
    value: PrimExpr | None = None

    def same(self, other: _Found) -> bool:
        return self.node is other.node and self.value is other.value

    def wrapped(self, key: str) -> Stmt:
        return self.stmt if self.value is None else AttrStmt(self.node, key, self.value, self.stmt)

    def with_stmt(self, stmt: Stmt) -> _Found:
        return self._replace(stmt=stmt)


class _Lift:
    def __init__(self, key: str) -> None:
        self.key = key

    def take(self, s: Stmt) -> _Found:
        """Take the attribute that all of ``s`` has off it."""
        if isinstance(s, AttrStmt) and s.attr_key == self.key:
            return _Found(self.take(s.body).wrapped(self.key), s.node, s.value)
        if isinstance(s, SeqStmt):
            return self._sequence(s)
        if isinstance(s, IfThenElse):
            return self._branches(s)
        if not isinstance(s, (For, While, AttrStmt, LetStmt, Allocate)):
            return _Found(s)
        found = self.take(s.body)
        var = s.loop_var if isinstance(s, For) else s.var if isinstance(s, LetStmt) else None
        stays = isinstance(s, Allocate) or (var is not None and found.value is not None and uses_var(found.value, var))
        if found.value is None or stays:
            body = found.wrapped(self.key)
            return _Found(s if body is s.body else s.replace(body=body))
        return found.with_stmt(s.replace(body=found.stmt))

    def _branches(self, s: IfThenElse) -> _Found:
        then = self.take(s.then_case)
        if s.else_case is None or is_no_op(s.else_case):
            return then.with_stmt(s.replace(then_case=then.stmt))
        other = self.take(s.else_case)
        if then.same(other):
            return then.with_stmt(s.replace(then_case=then.stmt, else_case=other.stmt))
        return _Found(s.replace(then_case=then.wrapped(self.key), else_case=other.wrapped(self.key)))

    def _sequence(self, s: SeqStmt) -> _Found:
        runs: list[_Found] = []
        for part in map(self.take, s.seq):
            if runs and runs[-1].value is not None and runs[-1].same(part):
                runs[-1] = part.with_stmt(seq(runs[-1].stmt, part.stmt))
            else:
                runs.append(part)
        return runs[0] if len(runs) == 1 else _Found(seq(*(run.wrapped(self.key) for run in runs)))


def lift_attr_scope(stmt: Stmt, attr_key: str) -> Stmt:
    """Move the attributes ``attr_key`` of ``stmt`` as far out as possible."""
    return _Lift(attr_key).take(stmt).wrapped(attr_key)


def LiftAttrScope(attr_key: str) -> Pass:
    """Move attributes ``attr_key`` that several statements share as far out as possible."""
    return body_pass("LiftAttrScope", lambda s: lift_attr_scope(s, attr_key))
