"""Statements of one LLVM function. The bodies of parallel loops, and the part of a packed function behind its argument
checks, become functions of their own whose pointer parameters are ``noalias``: that tells LLVM which buffers differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import BinaryExpr, Cast, Div, FloorDiv, FloorMod, Mod, PrimExpr
from tilewright.ir.prim_functor import DEPTH_STEP, ensure_room
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.builder import LIKELY, Unit
from tilewright.target.codegen.llvm.calls import CallEmitter, is_likely
from tilewright.target.codegen.llvm.support import emit_argument_check
from tilewright.target.codegen.llvm.vectors import split_store
from tilewright.tir.expr import Call, IntImm, StringImm, Var
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    Store,
    While,
)  # fmt: skip
from tilewright.tir.visitor import StmtExprVisitor, free_vars

_PARALLEL_ENV = "{ ptr, i32 }"


class _Divided(StmtExprVisitor):
    """Collects variables that integer divisions, remainders, shifts, masks and narrow casts take.

    LLVM's loop vectorizer can mistake ``i % 4`` for ``i``: it assumes that the 2-bit count does not wrap, and the test
    of that which it makes passes (LLVM 22; ``tests/target/test_codegen_memory.py`` has the case). Loops over such
    variables are not for it.
    """

    _OPERATORS = frozenset(f"tir.{name}" for name in ("shift_right", "shift_left", "bitwise_and"))

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Var, None] = {}

    def _take(self, e: PrimExpr) -> None:
        self.found.update(dict.fromkeys(free_vars(e)))

    def visit_binary(self, e: BinaryExpr) -> None:
        if isinstance(e, FloorMod | FloorDiv | Mod | Div):
            self._take(e.a)
        super().visit_binary(e)

    def visit_cast(self, e: Cast) -> None:
        if dt.is_int(e.dtype) and dt.bits(e.dtype) < dt.bits(e.value.dtype):
            self._take(e.value)
        super().visit_cast(e)

    def visit_call(self, e: Call) -> None:
        if e.op.name in self._OPERATORS:
            for argument in e.args:
                self._take(argument)
        super().visit_call(e)


def divided_variables(stmt: Stmt) -> frozenset[Var]:
    """The variables of ``stmt`` that LLVM's loop vectorizer must not see change."""
    visitor = _Divided()
    visitor.visit_stmt(stmt)
    return frozenset(visitor.found)


class FunctionEmitter(CallEmitter):
    """Emits the statements of one function.

    ``parent`` is the function around this one: variables that are not defined here become parameters that the parent
    passes. ``restrict`` says that distinct pointers name distinct memory. The pragma ``reassociate`` of a schedule
    lets LLVM reorder the additions of the loops under it, which vectorises reductions; ``no_unroll`` keeps LLVM from
    writing out the iterations of a loop.
    """

    _statements: ClassVar[dict[type, Callable[..., Stmt | None]]] = {}

    def __init__(self, unit: Unit, name: str, parent: FunctionEmitter | None = None, restrict: bool = True) -> None:
        super().__init__(unit)
        self.name, self.parent, self.restrict = name, parent, restrict
        self.captured: dict[Var, str] = {}
        self.workspaces: list[Call] = []  # calls that free the live ones
        self.task: tuple[str, str, str] | None = None  # task number, number of tasks, environment
        self._allocations: dict[Var, tuple[str, str]] = {}  # type and memory, shared by the copies of an unrolled loop
        self.spread_loop: str | None = None  # how the next parallel loop is shared out inside a launch
        self.stays_loop = False  # the next loop is not written out
        self.divided: frozenset[Var] = frozenset()  # variables in what divisions, remainders and narrow casts take
        if parent is not None:
            self.factors = parent.factors
            self.pointer_alignment = parent.pointer_alignment
            self.data_variables = parent.data_variables
            self.float_flags = parent.float_flags
            self.divided = parent.divided

    # ---- variables of the function around ----
    def undefined_variable(self, var: Var) -> str:
        """A parameter that the function around passes."""
        if self.parent is None:
            return super().undefined_variable(var)
        self.parent.value(var)
        text = f"%arg{len(self.captured)}"
        self.captured[var] = self.variables[var] = text
        return text

    def parameters(self) -> list[str]:
        """Declarations of the captured variables as parameters."""
        return [f"{ty.register(v.dtype)}{self._pointer_attributes(v)} {text}" for v, text in self.captured.items()]

    def _pointer_attributes(self, var: Var) -> str:
        if var.dtype != "handle":
            return ""
        align = self.pointer_alignment.get(var)
        if align is None:  # not the memory of a buffer, for instance the arguments themselves
            return ""
        return f"{' noalias' if self.restrict else ''} align {align}"

    # ---- leaving ----
    def fail(self) -> None:
        """Free workspaces and return -1."""
        for call in reversed(self.workspaces):
            self._free_workspace(call)
        self.do("ret i32 -1")

    def finish(self, header: str) -> None:
        """Close the function and add it to the unit."""
        self.do("ret i32 0")
        self.unit.functions.append(f"{header} {{\n{self.body_text()}\n}}")

    # ---- statements ----
    def statement(self, stmt: Stmt | None) -> None:
        """Emit ``stmt``. A method gives back the statement to go on with, so that long nests need no recursion."""
        while stmt is not None:
            method = self._statements.get(type(stmt))
            if method is None:
                raise TilewrightError(
                    f"{self.unit.name}: LLVM code generation does not handle the statement {type(stmt).__name__}; "
                    "lower the function first (tvm.lower, tvm.build)"
                )
            self.new_statement()
            self._nesting += 1
            if not self._nesting % DEPTH_STEP:
                ensure_room()
            stmt = method(self, stmt)
            self._nesting -= 1

    def nested(self, stmt: Stmt) -> None:
        """Emit a statement that does not dominate what follows."""
        mark = self.enter_scope()
        self.statement(stmt)
        self.leave_scope(mark)

    def _seq(self, s: SeqStmt) -> Stmt | None:
        for item in s.seq[:-1]:
            self.statement(item)
        return s.seq[-1] if s.seq else None

    def _let_stmt(self, s: LetStmt) -> Stmt | None:
        self.bind(s.var, s.value)
        if self.parent is None:  # unpacked arguments, such as dimensions, do not change
            self.data_variables.discard(s.var)
        if isinstance(s.value, Call) and s.value.op.name == "tir.TVMBackendAllocWorkspace":
            self._pure.pop(s.value, None)  # another workspace of the same size is another call
            return self._with_workspace(s, s.value)
        return s.body

    def _with_workspace(self, s: LetStmt, call: Call) -> Stmt | None:
        """The body, during which a failure frees the workspace."""
        self.pointer_alignment[s.var] = 64
        device_type, device_id = call.args[:2]
        steps = s.body.seq if isinstance(s.body, SeqStmt) else (s.body,)
        self.statement(steps[0])  # the test whether there is one
        self.workspaces.append(Call("int32", "tir.TVMBackendFreeWorkspace", (device_type, device_id, s.var)))
        for step in steps[1:]:
            self.statement(step)
        self.workspaces.pop()
        return None

    def _store(self, s: Store) -> None:
        if dt.lanes(s.index.dtype) == 1:
            self.store(s)
            return
        for part in split_store(s, self.unit.features.vector_bits):
            self.store(part)
            self.new_statement()

    def _allocate(self, s: Allocate) -> Stmt | None:
        count = 1
        for extent in s.extents:
            if not isinstance(extent, IntImm):
                raise TilewrightError(
                    f"{self.unit.name}: the size of {s.buffer_var.name} is not a constant; run LowerTVMBuiltin first"
                )
            count *= extent.value
        shape = f"[{max(count, 1)} x {ty.memory(s.dtype)}]"
        known = self._allocations.get(s.buffer_var)
        if known is None or known[0] != shape:
            known = (shape, self.stack(shape, max(64, dt.nbytes(s.dtype))))
            self._allocations[s.buffer_var] = known
        self.define(s.buffer_var, known[1])
        self.pointer_alignment[s.buffer_var] = 64
        return s.body

    def _if(self, s: IfThenElse) -> Stmt | None:
        done, yes = self.new_label("endif"), self.new_label("then")
        no = done if s.else_case is None else self.new_label("else")
        self.branch(self.value(s.condition), yes, no, LIKELY if is_likely(s.condition) else "")
        self.start(yes)
        self.nested(s.then_case)
        self.jump(done)
        if s.else_case is not None:
            self.start(no)
            self.nested(s.else_case)
            self.jump(done)
        self.start(done)
        return None

    def _while(self, s: While) -> Stmt | None:
        head, body, done = self.new_label("while"), self.new_label("do"), self.new_label("done")
        self.jump(head)
        self.start(head)
        mark = self.enter_scope()
        self._impure = {}
        self.branch(self.value(s.condition), body, done)
        self.start(body)
        self.nested(s.body)
        self.jump(head)
        self.leave_scope(mark)
        self.new_statement()
        self.start(done)
        return None

    def _assert(self, s: AssertStmt) -> Stmt | None:
        failed, passed = self.new_label("fail"), self.new_label("ok")
        self.branch(self.value(s.condition), passed, failed, LIKELY)
        self.start(failed)
        message = s.message.value if isinstance(s.message, StringImm) else str(s.message)
        self.runtime_call("TVMAPISetLastError", "void", f"ptr {self.unit.string(message)}")
        self.fail()
        self.start(passed)
        return s.body

    def _evaluate(self, s: Evaluate) -> Stmt | None:
        call = s.value
        if not isinstance(call, Call):
            return None
        if call.op.name == "tir.ret":
            self.do(f"ret i32 {self.value(call.args[0])}")
            self.start(self.new_label("dead"))
        elif call.op.name == "tir.tvm_check_arguments":
            emit_argument_check(self, call)
        else:
            self.value(call)
        return None

    def _attr(self, s: AttrStmt) -> Stmt | None:
        key = s.attr_key
        if key == "storage_alignment":
            self.pointer_alignment[s.node] = int(s.value)  # type: ignore[call-overload]
        elif key == "compute_scope":
            self._compute_scope(s)
            return None
        elif key == "pragma_import_llvm":
            if isinstance(s.value, StringImm) and s.value.value not in self.unit.imports:
                self.unit.imports.append(s.value.value)
        elif key == "pragma_reassociate":
            before, self.float_flags = self.float_flags, "reassoc nsz contract"
            self.nested(s.body)
            self.float_flags = before
            return None
        elif key == "pragma_no_unroll":
            self.stays_loop = True
        elif key == "pragma_parallel_launch_point":
            self._launch(lambda child: child.statement(s.body))
            return None
        elif key == "pragma_parallel_stride_pattern":
            self.spread_loop = "stride"
        elif key == "pragma_parallel_barrier_when_finish":
            self.statement(s.body)
            if self.task is not None:
                self.check_zero(
                    self.runtime_call("TVMBackendParallelBarrier", "i32", f"i32 {self.task[0]}, ptr {self.task[2]}")
                )
            return None
        return s.body

    # ---- loops ----
    def _for(self, s: For) -> Stmt | None:
        extent = s.extent
        stays, self.stays_loop = self.stays_loop, False
        if isinstance(extent, IntImm) and extent.value <= 0:
            return None
        if isinstance(extent, IntImm) and extent.value == 1:
            self.bind(s.loop_var, s.min)
            return s.body
        if s.kind == ForKind.PARALLEL:
            if self.task is None and not self._in_task():
                self._launch(lambda child: child.shared_out(s))
                return None
            if self.spread_loop is not None and self.task is not None:
                self.shared_out(s)
                return None
        low = self.value(s.min)
        count = self.value(extent)
        high = count if low == "0" else self.value(ops.add(s.min, extent))
        hints = ['!"llvm.loop.unroll.full"'] if s.kind == ForKind.UNROLLED else []
        if stays:
            hints.append('!"llvm.loop.unroll.disable"')
        self._loop(s.loop_var, low, high, "1", s.body, not isinstance(extent, IntImm), hints)
        return None

    def _in_task(self) -> bool:
        function: FunctionEmitter | None = self
        while function is not None:
            if function.task is not None:
                return True
            function = function.parent
        return False

    def _loop_metadata(self, var: Var, hints: Sequence[str]) -> str:
        hints = [*hints]
        if var in self.divided:
            hints.append('!"llvm.loop.vectorize.enable", i1 false')
        return self.unit.loop_metadata(hints) if hints else ""

    def _loop(
        self, var: Var, low: str, high: str, step: str, body: Stmt, may_be_empty: bool, hints: Sequence[str] = ()
    ) -> None:
        """``for (var = low; var < high; var += step) body``, tested at the bottom."""
        reg = ty.register(var.dtype)
        head, done, origin = self.new_label("for"), self.new_label("end"), self.block
        if may_be_empty:
            self.branch(self.emit(f"icmp slt {reg} {low}, {high}"), head, done)
        else:
            self.jump(head)
        self.start(head)
        index = f"%{head}.i"
        self.lines.append("")
        at = len(self.lines) - 1
        self.define(var, index)
        mark = self.enter_scope()
        self._impure = {}
        self.statement(body)
        following = self.emit(f"add nsw {reg} {index}, {step}")
        self.lines[at] = f"  {index} = phi {reg} [ {low}, %{origin} ], [ {following}, %{self.block} ]"
        again = self.emit(f"icmp slt {reg} {following}, {high}")
        self.branch(again, head, done, self._loop_metadata(var, hints))
        self.leave_scope(mark)
        self.new_statement()
        self.start(done)

    # ---- functions inside ----
    def _compute_scope(self, s: AttrStmt) -> None:
        """The body as a function of the variables it uses."""
        name = self.unit.unique(f"{self.name}.compute")
        child = FunctionEmitter(self.unit, self.name, self, self.restrict)
        child.statement(s.body)
        child.finish(f'define internal i32 @"{name}"({", ".join(child.parameters())}) noinline nounwind')
        args = ", ".join(f"{ty.register(v.dtype)} {self.value(v)}" for v in child.captured)
        self.check_zero(self.emit(f'call i32 @"{name}"({args})'))

    def _launch(self, body: Callable[[FunctionEmitter], None]) -> None:
        """Run ``body`` as the tasks of one parallel launch.

        The variables it uses go through a struct: the lambda that the runtime calls unpacks it and calls the function
        with the body.
        """
        name = self.unit.unique(f"{self.name}.parallel")
        child = FunctionEmitter(self.unit, self.name, self, self.restrict)
        count = child.emit(f"getelementptr inbounds {_PARALLEL_ENV}, ptr %env, i32 0, i32 1")
        child.task = ("%task", child.emit(f"load i32, ptr {count}, align 4"), "%env")
        body(child)
        params = ", ".join(["i32 %task", "ptr %env", *child.parameters()])
        child.finish(f'define internal i32 @"{name}"({params}) noinline nounwind')
        captured = list(child.captured)
        struct = "{ " + ", ".join(ty.register(v.dtype) for v in captured) + " }" if captured else "{ i8 }"
        self._add_lambda(name, struct, captured)
        closure = self.stack(struct, 8)
        for i, var in enumerate(captured):
            where = self.emit(f"getelementptr inbounds {struct}, ptr {closure}, i32 0, i32 {i}")
            self.do(f"store {ty.register(var.dtype)} {self.value(var)}, ptr {where}")
        self.check_zero(
            self.runtime_call("TVMBackendParallelLaunch", "i32", f'ptr @"{name}.lambda", ptr {closure}, i32 0')
        )

    def _add_lambda(self, name: str, struct: str, captured: list[Var]) -> None:
        lines, args = [], ["i32 %task", "ptr %env"]
        for i, var in enumerate(captured):
            reg = ty.register(var.dtype)
            lines.append(f"  %p{i} = getelementptr inbounds {struct}, ptr %data, i32 0, i32 {i}")
            lines.append(f"  %c{i} = load {reg}, ptr %p{i}")
            args.append(f"{reg} %c{i}")
        lines += [f'  %r = call i32 @"{name}"({", ".join(args)})', "  ret i32 %r"]
        body = "\n".join(lines)
        self.unit.functions.append(
            f'define internal i32 @"{name}.lambda"(i32 %task, ptr %env, ptr %data) nounwind {{\n{body}\n}}'
        )

    def shared_out(self, s: For) -> None:
        """The iterations of a parallel loop that this task runs: one contiguous part, or every n-th."""
        assert self.task is not None
        stride, self.spread_loop = self.spread_loop == "stride", None
        task, tasks, _ = self.task
        reg = ty.register(s.loop_var.dtype)
        task, tasks = (self.cast(v, "int32", s.loop_var.dtype) for v in (task, tasks))
        low, extent = self.value(s.min), self.value(s.extent)
        if stride:
            begin = self.emit(f"add nsw {reg} {low}, {task}")
            end = self.emit(f"add nsw {reg} {low}, {extent}")
            self._loop(s.loop_var, begin, end, tasks, s.body, True)
            return
        above = self.emit(f"add nsw {reg} {extent}, {self.emit(f'add nsw {reg} {tasks}, -1')}")
        part = self.emit(f"sdiv {reg} {above}, {tasks}")
        bounds = []
        for number in (task, self.emit(f"add nsw {reg} {task}, 1")):
            limit = self.min_max(s.loop_var.dtype, False, self.emit(f"mul nsw {reg} {number}, {part}"), extent)
            bounds.append(limit if low == "0" else self.emit(f"add nsw {reg} {low}, {limit}"))
        self._loop(s.loop_var, bounds[0], bounds[1], "1", s.body, True)


FunctionEmitter._methods = dict(CallEmitter._methods)
FunctionEmitter._statements = {
    SeqStmt: FunctionEmitter._seq,
    LetStmt: FunctionEmitter._let_stmt,
    Store: FunctionEmitter._store,
    Allocate: FunctionEmitter._allocate,
    IfThenElse: FunctionEmitter._if,
    While: FunctionEmitter._while,
    AssertStmt: FunctionEmitter._assert,
    Evaluate: FunctionEmitter._evaluate,
    AttrStmt: FunctionEmitter._attr,
    For: FunctionEmitter._for,
}
