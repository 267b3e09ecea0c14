"""LowerTVMBuiltin: lower workspaces and packed calls to calls of the runtime.

An allocation that is large, of unknown size, or passed to kernels of a device other than the CPU becomes a workspace::

    allocate(buf, float32, [n]) body
        ->  let buf = tir.TVMBackendAllocWorkspace(device_type, device_id, n*4, 2, 32)
            if tir.isnullptr(buf) { tir.tvm_throw_last_error() }
            body
            tir.TVMBackendFreeWorkspace(device_type, device_id, buf)

and a call by name puts its arguments on the stack::

    tir.tvm_call_packed("f", x)
        ->  let values = tir.tvm_stack_alloca("arg_value", 1), codes = tir.tvm_stack_alloca("arg_tcode", 1)
            tir.tvm_struct_set(values, 0, 12, x); codes[0] = 0
            tir.tvm_call_packed_lowered("f", values, codes, 0, 1)
"""

from __future__ import annotations

import functools
from operator import is_

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext, function_pass
from tilewright.tir import op as tir_op
from tilewright.tir.expr import Call, IntImm, PrimExpr, StringImm, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    Store,
    seq,
)  # fmt: skip
from tilewright.tir.transform.make_packed_api import VALUE_CONTENT, type_code
from tilewright.tir.visitor import StmtExprMutator, post_order_visit

MAX_STACK_BYTES = 8192
"""Allocations up to this size live on the stack: register tiles and small caches."""

_CPU = 1
_SHAPE, _STRIDES, _NDIM, _CODE, _BITS, _LANES, _OFFSET, _DEVICE_ID, _DEVICE_TYPE = 2, 3, 4, 5, 6, 7, 8, 9, 10
_PACKED = {
    "tir.tvm_call_packed": "tir.tvm_call_packed_lowered",
    "tir.tvm_call_trace_packed": "tir.tvm_call_trace_packed_lowered",
    "tir.tvm_call_cpacked": "tir.tvm_call_cpacked_lowered",
}


class _LowerBuiltin(StmtExprMutator):
    def __init__(self, handed: frozenset[Var] = frozenset()) -> None:
        super().__init__()
        self.device_type: PrimExpr = ops.const(_CPU, "int32")
        self.device_id: PrimExpr = ops.const(0, "int32")
        self._handed = handed  # memory that packed functions are given
        self._stack: list[tuple[Var, PrimExpr]] = []  # stack memory of the statement at hand
        self._before: list[Stmt] = []  # what to do before it

    # ---- allocation ----
    def visit_attr(self, s: AttrStmt) -> Stmt:
        """Note the device; its attributes end here."""
        if s.attr_key == "device_id":
            self.device_id = s.value
            return self.visit_stmt(s.body)
        if s.attr_key == "device_type":
            self.device_type = s.value
            return self.visit_stmt(s.body)
        return super().visit_attr(s)

    def visit_allocate(self, s: Allocate) -> Stmt:
        """Keep small allocations; others become workspaces."""
        size = dt.nbytes(s.dtype) * dt.lanes(s.dtype)
        total: PrimExpr = ops.const(size, "uint64")
        for extent in s.extents:
            total = ops.mul(total, ops.cast("uint64", extent))
        if isinstance(total, IntImm) and total.value <= MAX_STACK_BYTES and not self._is_devices(s.buffer_var):
            return super().visit_allocate(s)
        info = dt.parse(s.dtype)
        code = {"int": 0, "uint": 1, "bool": 1, "float": 2, "handle": 3, "bfloat": 4}[info.kind]
        device = (self.device_type, self.device_id)
        kind = (ops.const(code, "int32"), ops.const(info.bits, "int32"))
        taken = Call("handle", "tir.TVMBackendAllocWorkspace", (*device, total, *kind))
        body = seq(
            IfThenElse(tir_op.isnullptr(s.buffer_var), Evaluate(Call("int32", "tir.tvm_throw_last_error", ()))),
            self.visit_stmt(s.body),
            Evaluate(Call("int32", "tir.TVMBackendFreeWorkspace", (*device, s.buffer_var))),
        )
        return LetStmt(s.buffer_var, taken, body)

    def _is_devices(self, memory: Var) -> bool:
        """Return whether code of a device other than the CPU accesses ``memory``; that code cannot reach the host's
        stack.
        """
        on_cpu = isinstance(self.device_type, IntImm) and self.device_type.value == _CPU
        return not on_cpu and memory in self._handed

    # ---- packed calls: the arguments go on the stack before the statement ----
    def visit_call(self, e: Call) -> PrimExpr:
        """Lower packed calls and the structs of their arguments."""
        name = e.op.name if hasattr(e.op, "name") else ""
        if name in _PACKED:
            return self._packed(e, _PACKED[name])
        if name == "tir.tvm_stack_make_shape":
            return self._make_shape(e)
        if name == "tir.tvm_stack_make_array":
            return self._make_array(e)
        return super().visit_call(e)

    def _on_stack(self, kind: str, count: int) -> Var:
        var = Var(f"stack_{kind}", "handle")
        args: list[PrimExpr] = [StringImm(kind), IntImm("int32", count)]
        same = sum(isinstance(value, Call) and all(map(is_, value.args, args)) for _, value in self._stack)
        if same:  # equal calls are one expression, and here each must be memory of its own
            args.append(IntImm("int32", same))
        self._stack.append((var, Call("handle", "tir.tvm_stack_alloca", args)))
        return var

    def _make_shape(self, e: Call) -> PrimExpr:
        memory = self._on_stack("shape", len(e.args))
        for i, size in enumerate(e.args):
            self._before.append(Store(memory, ops.cast("int64", self.visit_expr(size)), ops.const(i, "int32")))
        return memory

    def _make_array(self, e: Call) -> PrimExpr:
        data, shape, strides, rank, sample, offset = e.args
        info, array = dt.parse(sample.dtype), self._on_stack("array", 1)
        code = {"int": 0, "uint": 1, "bool": 1, "float": 2, "handle": 3, "bfloat": 4}[info.kind]
        start = ops.mul(ops.cast("uint64", offset), ops.const(dt.nbytes(sample.dtype) * info.lanes, "uint64"))
        no_strides = ops.is_const_int(strides)
        fields = [
            (1, self.visit_expr(data)),
            (_SHAPE, self.visit_expr(shape)),
            (_STRIDES, ops.const(0, "int32") if no_strides else self.visit_expr(strides)),
            (_NDIM, self.visit_expr(rank)),
            (_CODE, ops.const(code, "uint8")),
            (_BITS, ops.const(info.bits, "uint8")),
            (_LANES, ops.const(info.lanes, "uint16")),
            (_OFFSET, self.visit_expr(start)),
            (_DEVICE_ID, self.device_id),
            (_DEVICE_TYPE, self.device_type),
        ]
        self._before += [Evaluate(tir_op.tvm_struct_set(array, 0, field, value)) for field, value in fields]
        return array

    def _packed(self, e: Call, lowered: str) -> PrimExpr:
        name, *args = e.args
        codes = [type_code(a) for a in args]
        values = [self.visit_expr(a) for a in args]
        value_stack, code_stack = self._on_stack("arg_value", len(args)), self._on_stack("arg_tcode", len(args))
        for i, (code, value) in enumerate(zip(codes, values, strict=True)):
            self._before.append(Evaluate(tir_op.tvm_struct_set(value_stack, i, VALUE_CONTENT, value)))
            self._before.append(Store(code_stack, ops.const(code, "int32"), ops.const(i, "int32")))
        bounds = (IntImm("int32", 0), IntImm("int32", len(args)))
        traced = values[-1:] if lowered == "tir.tvm_call_trace_packed_lowered" else []
        return Call(e.dtype, lowered, (name, value_stack, code_stack, *bounds, *traced))

    def _prepared(self, stmt: Stmt) -> Stmt:
        """Return ``stmt`` after the statements and bindings that it needs."""
        if not self._stack:
            return stmt
        result = seq(*self._before, stmt)
        for var, value in reversed(self._stack):
            result = LetStmt(var, value, result)
        self._stack, self._before = [], []
        self.memo.clear()
        return result

    def visit_evaluate(self, s: Evaluate) -> Stmt:
        """Lower the calls in it."""
        return self._prepared(super().visit_evaluate(s))

    def visit_store(self, s: Store) -> Stmt:
        """Lower the calls in it."""
        return self._prepared(super().visit_store(s))

    def visit_let_stmt(self, s: LetStmt) -> Stmt:
        """Lower the calls in the value, then the body."""
        value = self.visit_expr(s.value)
        stack, before, self._stack, self._before = self._stack, self._before, [], []
        made: Stmt = LetStmt(s.var, value, self.visit_stmt(s.body))
        self._stack, self._before = stack, before
        return self._prepared(made)

    def visit_if_then_else(self, s: IfThenElse) -> Stmt:
        """Lower the calls in the condition, then the branches."""
        condition = self.visit_expr(s.condition)
        stack, before, self._stack, self._before = self._stack, self._before, [], []
        yes = self.visit_stmt(s.then_case)
        no = None if s.else_case is None else self.visit_stmt(s.else_case)
        self._stack, self._before = stack, before
        return self._prepared(IfThenElse(condition, yes, no))

    def visit_assert(self, s: AssertStmt) -> Stmt:
        """Lower the calls in the condition, then the body."""
        condition = self.visit_expr(s.condition)
        stack, before, self._stack, self._before = self._stack, self._before, [], []
        body = self.visit_stmt(s.body)
        self._stack, self._before = stack, before
        return self._prepared(AssertStmt(condition, s.message, body))

    def visit_for(self, s: For) -> Stmt:
        """Lower the calls in the bounds, then the body."""
        low, extent = self.visit_expr(s.min), self.visit_expr(s.extent)
        stack, before, self._stack, self._before = self._stack, self._before, [], []
        body = self.visit_stmt(s.body)
        self._stack, self._before = stack, before
        return self._prepared(For(s.loop_var, low, extent, s.kind, body, s.thread_binding, s.annotations))


def _handed_out(body: Stmt) -> frozenset[Var]:
    """Return memory that packed functions, kernels among them, get as an address or in an array."""
    found: set[Var] = set()

    def look(node: object) -> None:
        if isinstance(node, Call) and getattr(node.op, "name", "") in {*_PACKED, "tir.tvm_stack_make_array"}:
            found.update(arg for arg in node.args if isinstance(arg, Var) and arg.dtype == "handle")

    post_order_visit(body, look)
    return frozenset(found)


def lower_tvm_builtin(func: PrimFunc) -> PrimFunc:
    """Lower the workspaces and packed calls of ``func``."""
    body = _LowerBuiltin(_handed_out(func.body)).visit_stmt(func.body)
    return func if body is func.body else func.with_body(body)


def LowerTVMBuiltin() -> Pass:
    """The pass of :func:`lower_tvm_builtin`."""

    @functools.partial(function_pass, opt_level=0, name="tir.LowerTVMBuiltin", func_type=PrimFunc)
    def run(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return lower_tvm_builtin(func)

    made: Pass = run
    return made
