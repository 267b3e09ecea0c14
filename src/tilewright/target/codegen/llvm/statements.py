"""Statements as blocks of LLVM IR, for a processor or a device."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import Add, BinaryExpr, Cast, Div, FloorDiv, FloorMod, Mod, PrimExpr
from tilewright.target.codegen.common.emitter import is_likely
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.builder import LIKELY, Unit
from tilewright.target.codegen.llvm.calls import CallEmitter
from tilewright.target.codegen.llvm.vectors import split_store
from tilewright.tir.expr import Call, IntImm, StringImm, Var
from tilewright.tir.stmt import Allocate, AttrStmt, For, ForKind, IfThenElse, Stmt, Store, While
from tilewright.tir.visitor import StmtExprVisitor, free_vars

_LEAST_ROW = 16


class _Divided(StmtExprVisitor):
    """Collects variables that integer divisions, remainders, shifts, masks and narrow casts take.

    LLVM's loop vectorizer can mistake ``i % 4`` for ``i``: it assumes that the 2-bit count does not wrap, and the test
    of that which it makes passes (LLVM 22; ``tests/target/test_codegen_memory.py`` has the case). Loops over such
    variables must not be vectorized by it.
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
    """Return the variables of ``stmt`` over which LLVM must not vectorize loops."""
    visitor = _Divided()
    visitor.visit_stmt(stmt)
    return frozenset(visitor.found)


def _writes_a_row(s: For) -> bool:
    """Return whether a serial loop stores elements that lie side by side, enough of them for vectors.

    LLVM would write such a loop out before it looks for vectors, and then finds them along a loop around it.
    """
    if s.kind != ForKind.SERIAL or not isinstance(s.extent, IntImm) or s.extent.value < _LEAST_ROW:
        return False
    return isinstance(s.body, Store) and _steps_by_one(s.body.index, s.loop_var)


def _steps_by_one(index: PrimExpr, var: Var) -> bool:
    if not isinstance(index, Add):
        return index is var
    moving = [side for side in (index.a, index.b) if var in free_vars(side)]
    return len(moving) == 1 and _steps_by_one(moving[0], var)


class StatementEmitter(CallEmitter):
    """Adds statements to expressions.

    The pragma ``reassociate`` of a schedule lets LLVM reorder the additions of the loops under it, which vectorises
    reductions; ``no_unroll`` keeps LLVM from writing out the iterations of a loop.
    """

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit)
        self._allocations: dict[Var, tuple[str, str]] = {}  # type and memory, shared by the copies of an unrolled loop
        self.stays_loop = False  # the next loop is not written out
        self.divided: frozenset[Var] = frozenset()  # variables in what divisions, remainders and narrow casts take

    def effect(self, call: Call) -> None:
        """Emit ``call`` for its effect, once for each occurrence."""
        self.visit_call(call)

    def let(self, var: Var, value: PrimExpr) -> None:
        """The variable is the value's register."""
        self.bind(var, value)

    def visit_store(self, s: Store) -> None:
        """A store; one that is wider than a register, in parts."""
        self.begin_statement()
        if dt.lanes(s.index.dtype) == 1:
            self.store(s)
            return
        for part in split_store(s, self.unit.features.vector_bits):
            self.store(part)
            self.begin_statement()

    def allocate(self, s: Allocate, elements: int, space: str) -> None:
        """Memory of the function's frame."""
        shape = f"[{max(elements, 1)} x {ty.memory(s.dtype)}]"
        known = self._allocations.get(s.buffer_var)
        if known is None or known[0] != shape:
            known = (shape, self.stack(shape, max(64, dt.nbytes(s.dtype))))
            self._allocations[s.buffer_var] = known
        self.define(s.buffer_var, known[1])
        self.alignments[s.buffer_var] = 64

    def visit_if_then_else(self, s: IfThenElse) -> None:
        """A branch to one of two blocks."""
        self.begin_statement()
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

    def visit_while(self, s: While) -> None:
        """A loop that is tested at the top."""
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
        self.begin_statement()
        self.start(done)

    # ---- attributes ----
    def _attr_pragma_import_llvm(self, s: AttrStmt) -> Stmt:
        if isinstance(s.value, StringImm) and s.value.value not in self.unit.imports:
            self.unit.imports.append(s.value.value)
        return s.body

    def _attr_pragma_reassociate(self, s: AttrStmt) -> None:
        before, self.float_flags = self.float_flags, "reassoc nsz contract"
        self.nested(s.body)
        self.float_flags = before

    def _attr_pragma_flush_subnormals(self, s: AttrStmt) -> None:
        before, self.flushes_subnormals = self.flushes_subnormals, True
        self.nested(s.body)
        self.flushes_subnormals = before

    def _attr_pragma_no_unroll(self, s: AttrStmt) -> Stmt:
        self.stays_loop = True
        return s.body

    # ---- loops ----
    def visit_for(self, s: For) -> Stmt | None:
        """A loop; one of a single iteration is its body, one of none is nothing."""
        if not isinstance(s.extent, IntImm) or s.extent.value > 1:
            return super().visit_for(s)
        self.stays_loop = False
        if s.extent.value <= 0:
            return None
        self.begin_statement()
        self.bind(s.loop_var, s.min)
        return s.body

    def loop(self, s: For) -> None:
        """All iterations, one after the other."""
        stays, self.stays_loop = self.stays_loop, False
        low = self.value(s.min)
        count = self.value(s.extent)
        high = count if low == "0" else self.value(ops.add(s.min, s.extent))
        hints = ['!"llvm.loop.unroll.full"'] if s.kind == ForKind.UNROLLED else []
        if stays or _writes_a_row(s):
            hints.append('!"llvm.loop.unroll.disable"')
        self.range(s.loop_var, low, high, "1", s.body, not isinstance(s.extent, IntImm), hints)

    def _loop_metadata(self, var: Var, hints: Sequence[str]) -> str:
        hints = [*hints]
        if var in self.divided:
            hints.append('!"llvm.loop.vectorize.enable", i1 false')
        return self.unit.loop_metadata(hints) if hints else ""

    def range(
        self, var: Var, low: str, high: str, step: str, body: Stmt, may_be_empty: bool, hints: Sequence[str] = ()
    ) -> None:
        """Emit ``for (var = low; var < high; var += step) body``, tested at the bottom."""
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
        self.visit_stmt(body)
        following = self.emit(f"add nsw {reg} {index}, {step}")
        self.lines[at] = f"  {index} = phi {reg} [ {low}, %{origin} ], [ {following}, %{self.block} ]"
        again = self.emit(f"icmp slt {reg} {following}, {high}")
        self.branch(again, head, done, self._loop_metadata(var, hints))
        self.leave_scope(mark)
        self.begin_statement()
        self.start(done)
