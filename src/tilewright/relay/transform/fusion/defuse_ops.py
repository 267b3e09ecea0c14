"""DefuseOps: the inverse of FuseOps.

Before::

    %1 = fn (%p0, Primitive=1) {
      %0 = exp(%p0);
      negative(%0)
    };
    %1(%x)

after::

    %0 = exp(%x);
    negative(%0)
"""

from __future__ import annotations

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, Pass, PassContext, PassInfo
from tilewright.relay.expr import Function
from tilewright.relay.function_attributes import PRIMITIVE
from tilewright.relay.transform.functional.inline_calls import inline_calls


def DefuseOps() -> Pass:
    """Inline fused functions."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> Function:
        result = inline_calls(func, lambda op: op if isinstance(op, Function) and PRIMITIVE.on(op) else None)
        assert isinstance(result, Function)
        return result

    return FunctionPass(run, PassInfo(0, "DefuseOps", ("InferType",)), Function)
