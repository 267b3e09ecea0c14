"""LegalizePackedCalls: pointers to data become tensors, in calls of packed functions by symbol.

Before::

    tir.tvm_call_cpacked("f", A)

After::

    let value_0 = tir.tvm_stack_alloca("array", 1)
      tir.tvm_struct_set(value_0, 0, 1, A)
      tir.tvm_call_cpacked("f", value_0)

For main functions that hold pointers, of which they know the shapes: a packed function of another compiler reads its
arguments' data from tensors. It gets neither shapes nor types, as in TVM 0.8.
"""

from __future__ import annotations

import functools

from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext, function_pass
from tilewright.tir.expr import Call, IntImm, StringImm, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Evaluate, LetStmt, Stmt, seq
from tilewright.tir.visitor import StmtMutator

_DATA = 1  # the field of a tensor


class _Legalizer(StmtMutator):
    """Wraps the pointers among the arguments of calls that are statements."""

    def visit_evaluate(self, s: Evaluate) -> Stmt:
        """Wrap the pointers of a call."""
        call = s.value
        if not isinstance(call, Call) or call.op.name != "tir.tvm_call_cpacked":
            return s
        values: dict[Var, Var] = {}  # each tensor, with its data
        args = list(call.args)
        for i, arg in enumerate(args[1:], 1):
            if isinstance(arg, Var) and arg.dtype == "handle":
                tensor = Var(f"tvm_value_{len(values)}", "handle")
                values[tensor], args[i] = arg, tensor
        zero, field = IntImm("int32", 0), IntImm("int32", _DATA)
        sets = [Evaluate(Call("handle", "tir.tvm_struct_set", (t, zero, field, data))) for t, data in values.items()]
        body: Stmt = seq(*sets, Evaluate(call.replace(args=tuple(args))))
        for tensor in values:
            memory = Call("handle", "tir.tvm_stack_alloca", (StringImm("array"), IntImm("int32", 1)))
            body = LetStmt(tensor, memory, body)
        return body


def legalize_packed_calls(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with tensors in place of pointers in its calls of packed functions by symbol."""
    body = _Legalizer().visit_stmt(func.body)
    return func if body is func.body else func.replace(body=body)


def LegalizePackedCalls() -> Pass:
    """The pass of :func:`legalize_packed_calls`."""

    @functools.partial(function_pass, opt_level=0, name="tir.LegalizePackedCalls", func_type=PrimFunc)
    def run(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return legalize_packed_calls(func)

    made: Pass = run
    return made
