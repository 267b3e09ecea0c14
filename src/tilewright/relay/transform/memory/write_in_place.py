"""WriteInPlace: write new rows to buffers of a fixed length in place.

Before, where ``%past`` is a parameter::

    %0 = write_rows(%past, %rows, %starts, axis=2);    // (1, 12, 256, 64) and (1, 12, 1, 64)
    %1 = nn.attention(%q, %0, %v, %mask);
    (%1, %0)

after::

    %0 = vm.write_rows(%past, %rows, %starts, axis=2);
    ...

The virtual machine writes to the memory of ``%past`` where nothing reads it behind and nobody else holds it, as that of
an output that ``carry`` made an input; else it copies it (``native/src/vm/write_rows.c``).
"""

from __future__ import annotations

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Function, Var
from tilewright.relay.function_attributes import RESULT_DEVICE_TYPE
from tilewright.relay.op.transform.rows import WriteRows
from tilewright.relay.op.vm import VMWriteRows
from tilewright.relay.transform.common import TypedMutator, call_of, open_children
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import is_closed, post_order
from tilewright.runtime.device import cpu
from tilewright.target.target import Target


def WriteInPlace() -> Pass:
    """Turn ``write_rows`` to parameters of functions into ``vm.write_rows``, on the CPU."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        target = Target.current()
        if RESULT_DEVICE_TYPE.has(mod["main"]) or (target is not None and target.device_type != cpu().device_type):
            return mod
        mod = infer_module(mod)
        changed = mod.copy()
        for var, func in mod.functions.items():
            if isinstance(func, Function) and not is_closed(func) and any(map(_fits, post_order(func, open_children))):
                changed[var] = _Writer().visit(func)
        return infer_module(changed)

    return ModulePass(run, PassInfo(0, "WriteInPlace"))


def _fits(expr: RelayExpr) -> bool:
    call = call_of(expr, WriteRows.op)
    if call is None or not isinstance(call.args[0], Var):
        return False
    type_ = call.checked_type
    return isinstance(type_, TensorType) and dt.nbytes(type_.dtype) * 8 == dt.bits(type_.dtype)


class _Writer(TypedMutator):
    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        if not _fits(expr):
            return post
        assert isinstance(post, Call)
        return post.replace(op=VMWriteRows.op)
