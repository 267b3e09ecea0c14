"""LowerDeviceStorageAccessInfo: access pointers become addresses of elements.

Before and after::

    @tir.tvm_access_ptr(float32, A, 8, 16, 1)        @tir.address_of((float32*)A[8])

Which part is accessed, and how, was for the passes before (``ThreadSync``).
"""

from __future__ import annotations

from tilewright.ir.prim_expr import Call, PrimExpr, Var
from tilewright.ir.transform import Pass
from tilewright.tir.expr import Load
from tilewright.tir.op import address_of
from tilewright.tir.stmt import Stmt
from tilewright.tir.transform.common import body_pass
from tilewright.tir.transform.threads import is_call
from tilewright.tir.visitor import StmtExprMutator


class _Lower(StmtExprMutator):
    def visit_call(self, e: Call) -> PrimExpr:
        if not is_call(e, "tvm_access_ptr") or not isinstance(e.args[1], Var):
            return super().visit_call(e)
        kind, data, offset = e.args[0], e.args[1], self.visit_expr(e.args[2])
        return address_of(Load(kind.dtype, data, offset))


def lower_device_storage_access_info(stmt: Stmt) -> Stmt:
    """Lower the access pointers of ``stmt``."""
    return _Lower().visit_stmt(stmt)


def LowerDeviceStorageAccessInfo() -> Pass:
    """Lower access pointers to addresses of elements."""
    return body_pass("LowerDeviceStorageAccessInfo", lower_device_storage_access_info)
