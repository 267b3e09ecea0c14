"""InjectVirtualThread: run the body of a virtual thread once for each of its indices.

Before and after::

    attr [IterVar(vthread: int32, [0:2], "ThreadIndex", "vthread")] "virtual_thread" = 2;      B[0] = (float32*)A[0]
    allocate(B: Pointer(float32), float32, [1]), ...                                          C[0] = (float32*)B[0]
    B[0] = (float32*)A[vthread]                                                               B_1[0] = (float32*)A[1]
    C[vthread] = (float32*)B[0]                                                               C[1] = (float32*)B_1[0]

Each index has memory of its own. More than 16 indices make a serial loop instead of copies.
"""

from __future__ import annotations

from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.transform import Pass
from tilewright.tir.expr import IterVar
from tilewright.tir.stmt import AttrStmt, For, ForKind, Stmt, seq
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtMutator, substitute, with_fresh_vars

_MOST_COPIES = 16


class _Inject(StmtMutator):
    def visit_attr(self, s: AttrStmt) -> Stmt:
        new = super().visit_attr(s)
        assert isinstance(new, AttrStmt)
        if s.attr_key != "virtual_thread" or not isinstance(s.node, IterVar):
            return new
        if not isinstance(s.value, IntImm):
            raise TilewrightError(
                f"virtual thread {s.node.var.name} has {s.value} indices; the number must be a constant"
            )
        var, count = s.node.var, s.value.value
        if count > _MOST_COPIES:
            return For(var, ops.const(0, var.dtype), ops.const(count, var.dtype), ForKind.SERIAL, new.body)
        copies = [substitute(new.body, {var: ops.const(i, var.dtype)}) for i in range(count)]
        return seq(*[c if i == 0 else with_fresh_vars(c) for i, c in enumerate(copies)])


def inject_virtual_thread(stmt: Stmt) -> Stmt:
    """Write out the virtual threads of ``stmt``."""
    return _Inject().visit_stmt(stmt)


def InjectVirtualThread() -> Pass:
    """The pass."""
    return body_pass("InjectVirtualThread", inject_virtual_thread)
