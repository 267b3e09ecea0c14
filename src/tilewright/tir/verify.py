"""Well-formedness of TIR.

Checked: a variable is defined before it is used; the index, value and predicate of a load or store have as many lanes;
the value stored has the element type that is stored; conditions are bool; loop bounds have the dtype of the variable;
a buffer is declared before it is accessed, with as many indices as dimensions.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL, Carrier, Stage, attribute_problems
from tilewright.ir.memory import Buffer
from tilewright.ir.module import IRModule
from tilewright.tir.expr import BufferLoad, IterVar, Let, Load, PrimExpr, Reduce, Select, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferRealize,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    Store,
    While,
)  # fmt: skip
from tilewright.tir.visitor import StmtExprVisitor, free_vars


class IllFormedError(TilewrightError, ValueError):
    """TIR that breaks a rule; a bug of the pass that made it."""


class _Verifier(StmtExprVisitor):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.defined: dict[Var, int] = {}
        self.buffers: dict[Buffer, int] = {}
        self.problems: list[str] = []

    def fail(self, message: str) -> None:
        self.problems.append(message)

    def define(self, var: Var) -> None:
        self.defined[var] = self.defined.get(var, 0) + 1

    def undefine(self, var: Var) -> None:
        self.defined[var] -= 1

    def use(self, var: Var) -> None:
        if not self.defined.get(var):
            self.fail(f"variable {var.name} is used where it is not defined")

    def visit_var(self, e: Var) -> None:
        self.use(e)

    def visit_let(self, e: Let) -> None:
        self.visit_expr(e.value)
        self.define(e.var)
        self.visit_expr(e.body)
        self.undefine(e.var)

    def visit_reduce(self, e: Reduce) -> None:
        for axis in e.axis:
            self.define(axis.var)
        super().visit_reduce(e)
        for axis in e.axis:
            self.undefine(axis.var)

    def visit_select(self, e: Select) -> None:
        if not dt.is_bool(e.condition.dtype):
            self.fail(f"the condition of a select is {e.condition.dtype}, not bool")
        super().visit_select(e)

    def visit_load(self, e: Load) -> None:
        self.use(e.buffer_var)
        self._check_access("load", e.buffer_var, e.dtype, e.index, e.predicate)
        super().visit_load(e)

    def _check_access(self, what: str, var: Var, dtype: str, index: PrimExpr, predicate: PrimExpr) -> None:
        lanes = dt.lanes(index.dtype)
        if dt.lanes(dtype) % lanes:
            self.fail(f"a {what} of {dtype} at {var.name} has an index of {lanes} lanes")
        if dt.lanes(predicate.dtype) not in (1, lanes) or not dt.is_bool(predicate.dtype):
            self.fail(f"a {what} at {var.name} has {lanes} lanes and a predicate of {predicate.dtype}")
        if not dt.is_int(index.dtype):
            self.fail(f"a {what} at {var.name} has an index of {index.dtype}")

    def visit_buffer_load(self, e: BufferLoad) -> None:
        self._check_buffer("load", e.buffer, len(e.indices))
        super().visit_buffer_load(e)

    def _check_buffer(self, what: str, buffer: Buffer, count: int) -> None:
        if not self.buffers.get(buffer):
            self.fail(f"a {what} accesses the buffer {buffer.name}, which is not declared there")
        if count != len(buffer.shape):
            self.fail(f"a {what} of {buffer.name} has {count} indices for {len(buffer.shape)} dimensions")

    def visit_for(self, s: For) -> None:
        self.visit_expr(s.min)
        self.visit_expr(s.extent)
        if s.min.dtype != s.loop_var.dtype or s.extent.dtype != s.loop_var.dtype:
            self.fail(f"loop {s.loop_var.name} is {s.loop_var.dtype}, its bounds {s.min.dtype} and {s.extent.dtype}")
        self._scope(s.loop_var, s.body)

    def _scope(self, var: Var, body: Any) -> None:
        self.define(var)
        self.visit_stmt(body)
        self.undefine(var)

    def visit_let_stmt(self, s: LetStmt) -> None:
        self.visit_expr(s.value)
        if s.value.dtype != s.var.dtype:
            self.fail(f"{s.var.name} is {s.var.dtype} and is given a {s.value.dtype}")
        self._scope(s.var, s.body)

    def visit_allocate(self, s: Allocate) -> None:
        for extent in s.extents:
            self.visit_expr(extent)
        self.visit_expr(s.condition)
        self._scope(s.buffer_var, s.body)

    def visit_buffer_realize(self, s: BufferRealize) -> None:
        self.buffers[s.buffer] = self.buffers.get(s.buffer, 0) + 1
        self.define(s.buffer.data)
        super().visit_buffer_realize(s)
        self.undefine(s.buffer.data)
        self.buffers[s.buffer] -= 1

    def visit_attr(self, s: AttrStmt) -> None:
        if isinstance(s.node, IterVar) and s.attr_key in ("thread_extent", "virtual_thread"):
            self.visit_expr(s.value)
            self._scope(s.node.var, s.body)
        elif s.attr_key == "buffer_bind_scope":
            bound = s.node[0]
            self.declare(bound)
            super().visit_attr(s)
            self.buffers[bound] -= 1
        else:
            super().visit_attr(s)

    def declare(self, buffer: Buffer) -> None:
        """A buffer defines its pointer, and the variables in its shape, strides and offset."""
        self.buffers[buffer] = self.buffers.get(buffer, 0) + 1
        self.define(buffer.data)
        for part in (*buffer.shape, *buffer.strides, buffer.elem_offset):
            for var in free_vars(part):
                self.define(var)

    def visit_store(self, s: Store) -> None:
        self.use(s.buffer_var)
        self._check_access("store", s.buffer_var, s.value.dtype, s.index, s.predicate)
        super().visit_store(s)

    def visit_buffer_store(self, s: BufferStore) -> None:
        self._check_buffer("store", s.buffer, len(s.indices))
        if dt.element(s.value.dtype) != dt.element(s.buffer.dtype):
            self.fail(f"a {s.value.dtype} is stored to {s.buffer.name}, which is {s.buffer.dtype}")
        super().visit_buffer_store(s)

    def _condition(self, what: str, condition: PrimExpr) -> None:
        if condition.dtype != "bool":
            self.fail(f"the condition of {what} is {condition.dtype}, not bool")

    def visit_if_then_else(self, s: IfThenElse) -> None:
        self._condition("an if", s.condition)
        super().visit_if_then_else(s)

    def visit_while(self, s: While) -> None:
        self._condition("a while", s.condition)
        super().visit_while(s)

    def visit_assert(self, s: AssertStmt) -> None:
        self._condition("an assert", s.condition)
        super().visit_assert(s)


def verify_well_formed(target: PrimFunc | IRModule) -> None:
    """Check a function, or all of a module; raises IllFormedError naming the function and every problem."""
    if isinstance(target, IRModule):
        for func in target.functions.values():
            if isinstance(func, PrimFunc):
                verify_well_formed(func)
        return
    name = GLOBAL_SYMBOL.get(target, "main")
    verifier = _Verifier(name)
    for param in target.params:
        verifier.define(param)
    for buffer in target.buffer_map.values():
        verifier.declare(buffer)
    verifier.visit_stmt(target.body)
    problems = [*attribute_problems(target.attrs, Carrier.KERNEL, Stage.CODE), *verifier.problems]
    if problems:
        shown = "\n  ".join(dict.fromkeys(problems))
        raise IllFormedError(f"function {name} is not well formed:\n  {shown}")
