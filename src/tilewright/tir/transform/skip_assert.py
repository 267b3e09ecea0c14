"""SkipAssert: leave out the checks of a program that is trusted.

Before and after::

    assert((n < 10), "too many")                   A[0] = n
    A[0] = n
"""

from __future__ import annotations

from tilewright.ir.transform import Pass
from tilewright.tir.stmt import AssertStmt, Stmt
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtMutator


class _Skip(StmtMutator):
    def visit_assert(self, s: AssertStmt) -> Stmt:
        result: Stmt = self.visit_stmt(s.body)
        return result


def skip_assert(stmt: Stmt) -> Stmt:
    """Drop the assertions of ``stmt``."""
    return _Skip().visit_stmt(stmt)


def SkipAssert() -> Pass:
    """The pass; ``tir.disable_assert`` in the PassContext's config lets ``lower`` run it."""
    return body_pass("SkipAssert", skip_assert)
