"""ConvertForLoopsToSerial: make every loop that several threads share serial.

Before and after::

    for (i: int32, 0, 16) "parallel" { a[i] = 0f32 }
    for (i: int32, 0, 16) { a[i] = 0f32 }

Loops that are vectorized or unrolled become plain ones too; loops bound to threads of a graphics processor have no
meaning without these, and stay.
"""

from __future__ import annotations

from tilewright.ir.transform import Pass
from tilewright.tir.stmt import For, ForKind, Stmt
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtExprMutator


class _Serial(StmtExprMutator):
    def visit_for(self, s: For) -> Stmt:
        changed = super().visit_for(s)
        if isinstance(changed, For) and changed.kind in (ForKind.PARALLEL, ForKind.VECTORIZED, ForKind.UNROLLED):
            return changed.replace(kind=ForKind.SERIAL)
        return changed


def convert_for_loops_to_serial(stmt: Stmt) -> Stmt:
    """Make all loops of ``stmt`` serial; the same object if they are."""
    return _Serial().visit_stmt(stmt)


def ConvertForLoopsToSerial() -> Pass:
    """Make parallel, vectorized and unrolled loops serial."""
    return body_pass("ConvertForLoopsToSerial", convert_for_loops_to_serial)
