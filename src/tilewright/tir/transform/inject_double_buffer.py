"""InjectDoubleBuffer: fill one half of a buffer for the next iteration while the other half is used.

Before and after, for a loop that fills ``B`` and then uses it::

    for (x: int32, 0, 8) {
      allocate(B: Pointer(float32), float32, [4]), storage_scope = global {
        attr [B] "double_buffer_scope" = 1;
        for (c: int32, 0, 4) {
          B[c] = (float32*)A[((x*4) + c)]
        }
        for (d: int32, 0, 4) {
          C[((x*4) + d)] = (float32*)B[d]
        }
      }
    }

    allocate(B: Pointer(float32), float32, [2, 4]), storage_scope = global {
      for (c: int32, 0, 4) {
        B[c] = (float32*)A[c]
      }
      for (x: int32, 0, 8) {
        if @tir.likely(((x + 1) < 8), dtype=bool) {
          for (c, 0, 4) {
            B[(c + (floormod((x + 1), 2)*4))] = (float32*)A[(((x + 1)*4) + c)]
          }
        }
        for (d: int32, 0, 4) {
          C[((x*4) + d)] = (float32*)B[(d + (floormod(x, 2)*4))]
        }
      }
    }

Pointers into the buffer that intrinsics get (``tvm_access_ptr``) move with it.

With ``split_loop`` of 2 (or 4, ...) that many iterations are written out, in each of which the half is known.

A marked buffer that is not filled inside a serial loop around its allocation, or with what the same iteration computes,
keeps its single copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from tilewright.arith.analyzer import Analyzer
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm, PrimExpr, Ramp, Var
from tilewright.ir.transform import Pass, PassContext
from tilewright.tir.expr import Call, Load
from tilewright.tir.op import likely
from tilewright.tir.stmt import Allocate, AttrStmt, For, ForKind, IfThenElse, Stmt, Store, seq
from tilewright.tir.transform.common import body_pass
from tilewright.tir.transform.threads import is_call
from tilewright.tir.visitor import (
    StmtExprMutator,
    StmtExprVisitor,
    StmtMutator,
    StmtVisitor,
    substitute,
    with_fresh_vars,
)

_READS, _WRITES = 1, 2  # bits of what a pointer may be used for


def _points_to(e: PrimExpr, var: Var) -> TypeGuard[Call]:
    """Return whether ``e`` is a pointer into the buffer ``var`` for an intrinsic."""
    return isinstance(e, Call) and is_call(e, "tvm_access_ptr") and e.args[1] is var


@dataclass
class _Marked:
    """A buffer to double: its allocation, the loop around that, and the threads that are defined inside the loop."""

    alloc: Allocate
    loop: For
    threads: list[AttrStmt]
    fill: Stmt | None = None

    def ahead_of_loop(self, first: Stmt) -> Stmt:
        """Return the part before the loop, with the threads that run it."""
        for attr in reversed(self.threads):
            first = attr.replace(body=first)
        return first


class _Find(StmtVisitor):
    """Finds marked buffers whose allocation comes first in the body of a serial loop."""

    def __init__(self) -> None:
        super().__init__()
        self.loops: list[For] = []
        self.threads: list[list[AttrStmt]] = []
        self.inside: dict[Var, tuple[Allocate, For]] = {}
        self.marked: dict[Var, _Marked] = {}

    def visit_for(self, s: For) -> None:
        self.loops.append(s)
        self.threads.append([])
        super().visit_for(s)
        self.threads.pop()
        self.loops.pop()

    def visit_allocate(self, s: Allocate) -> None:
        constant = all(isinstance(e, IntImm) for e in s.extents)
        if self.loops and self.loops[-1].kind == ForKind.SERIAL and constant:
            self.inside[s.buffer_var] = (s, self.loops[-1])
        super().visit_allocate(s)

    def visit_attr(self, s: AttrStmt) -> None:
        if s.attr_key == "double_buffer_scope" and isinstance(s.node, Var) and s.node in self.inside:
            alloc, loop = self.inside[s.node]
            if self.loops[-1] is loop and not _depends(s, loop):
                self.marked[s.node] = _Marked(alloc, loop, list(self.threads[-1]))
        thread = self.threads and s.attr_key in ("thread_extent", "virtual_thread")
        if thread:
            self.threads[-1].append(s)
        super().visit_attr(s)
        if thread:
            self.threads[-1].pop()


class _Accesses(StmtExprVisitor):
    """The buffers that are read and written, outside of one statement."""

    def __init__(self, without: Stmt | None = None) -> None:
        super().__init__()
        self.without = without
        self.read: set[Var] = set()
        self.written: set[Var] = set()

    def visit_stmt(self, stmt: Stmt) -> None:
        if stmt is not self.without:
            super().visit_stmt(stmt)

    def visit_load(self, e: Load) -> None:
        self.read.add(e.buffer_var)
        super().visit_load(e)

    def visit_store(self, s: Store) -> None:
        self.written.add(s.buffer_var)
        super().visit_store(s)

    def visit_call(self, e: Call) -> None:
        if is_call(e, "tvm_access_ptr") and isinstance(e.args[1], Var):
            use = int(e.args[4])  # type: ignore[call-overload]
            self.read |= {e.args[1]} if use & _READS else set()
            self.written |= {e.args[1]} if use & _WRITES else set()
        super().visit_call(e)


def _depends(fill: Stmt, loop: For) -> bool:
    """Return whether a fill depends on values of the same iteration, so that it cannot run ahead."""
    inside, outside = _Accesses(), _Accesses(fill)
    inside.visit_stmt(fill)
    outside.visit_stmt(loop.body)
    return not inside.read.isdisjoint(outside.written)


class _Shift(StmtExprMutator):
    """Moves all accesses of one buffer."""

    def __init__(self, var: Var, offset: PrimExpr) -> None:
        super().__init__()
        self.var = var
        self.offset = offset

    def _moved(self, index: PrimExpr) -> PrimExpr:
        if isinstance(index, Ramp):
            return Ramp(ops.add(index.base, self.offset), index.stride, index.lanes)
        return ops.add(index, ops.cast(dt.with_lanes(self.offset.dtype, dt.lanes(index.dtype)), self.offset))

    def visit_load(self, e: Load) -> PrimExpr:
        new = super().visit_load(e)
        assert isinstance(new, Load)
        return new.replace(index=self._moved(new.index)) if e.buffer_var is self.var else new

    def visit_call(self, e: Call) -> PrimExpr:
        new = super().visit_call(e)
        if not _points_to(new, self.var):
            return new
        dtype, data, offset, *rest = new.args
        return new.replace(args=[dtype, data, ops.add(offset, self.offset), *rest])

    def visit_store(self, s: Store) -> Stmt:
        new = super().visit_store(s)
        assert isinstance(new, Store)
        return new.replace(index=self._moved(new.index)) if s.buffer_var is self.var else new


class _Inject(StmtMutator):
    def __init__(self, marked: dict[Var, _Marked], split: int) -> None:
        super().__init__()
        self.marked = marked
        self.split = split

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key != "double_buffer_scope":
            return super().visit_attr(s)
        if s.node not in self.marked:
            return self.visit_stmt(s.body)
        entry = self.marked[s.node]
        loop = entry.loop
        # the statement filled now is the one of the next iteration
        entry.fill = self.visit_stmt(s.body)
        step = ops.add(loop.loop_var, 1)
        ahead = substitute(entry.fill, {loop.loop_var: step})
        ahead = _Shift(s.node, self._half(entry, step)).visit_stmt(with_fresh_vars(ahead))
        return IfThenElse(likely(step < loop.min + loop.extent), ahead, None)

    def _half(self, entry: _Marked, step: PrimExpr) -> PrimExpr:
        size = 1
        for e in entry.alloc.extents:
            size *= int(e)  # type: ignore[call-overload]
        return ops.mul(ops.floormod(ops.sub(step, entry.loop.min), 2), size)

    def visit_allocate(self, s: Allocate) -> Stmt:
        if s.buffer_var not in self.marked:
            return super().visit_allocate(s)
        entry = self.marked[s.buffer_var]
        body = self.visit_stmt(s.body)
        use = _UseHalf(s.buffer_var, self._half(entry, entry.loop.loop_var))
        return use.visit_stmt(body)

    def visit_for(self, s: For) -> Stmt:
        new: Stmt = super().visit_for(s)
        entries = {var: entry for var, entry in self.marked.items() if entry.loop is s and entry.fill is not None}
        if entries and self.split > 1:
            assert isinstance(new, For)
            new = _split(new, self.split)
        for var, entry in entries.items():
            assert entry.fill is not None
            first = with_fresh_vars(substitute(entry.fill, {s.loop_var: s.min}))
            if not isinstance(s.extent, IntImm):  # what a loop of no iterations would read may not be there
                first = IfThenElse(s.extent > 0, first)
            extents = [ops.const(2, "int32"), *entry.alloc.extents]
            new = Allocate(var, entry.alloc.dtype, extents, entry.alloc.condition, seq(entry.ahead_of_loop(first), new))
        return new


class _UseHalf(_Shift):
    """Moves the accesses outside of the part that fills ahead, which has been moved already."""

    def visit_if_then_else(self, s: IfThenElse) -> Stmt:
        accesses = _Accesses()
        accesses.visit_stmt(s)
        return s if self.var in accesses.written else super().visit_if_then_else(s)


def _split(loop: For, factor: int) -> Stmt:
    """Write out ``factor`` iterations of a loop, and a loop over those that are left."""
    analyzer = Analyzer()
    count = analyzer.simplify(ops.floordiv(loop.extent, factor))
    rest = analyzer.simplify(ops.floormod(loop.extent, factor))
    outer, tail = (Var(f"{loop.loop_var.name}.{part}", loop.loop_var.dtype) for part in ("outer", "tail"))

    def iteration(number: PrimExpr) -> Stmt:
        return with_fresh_vars(substitute(loop.body, {loop.loop_var: ops.add(loop.min, number)}))

    body = seq(*(iteration(ops.add(ops.mul(outer, factor), k)) for k in range(factor)))
    whole = For(outer, 0, count, ForKind.SERIAL, body)
    if ops.is_const_int(rest, 0):
        return whole
    return seq(whole, For(tail, 0, rest, ForKind.SERIAL, iteration(ops.add(ops.mul(count, factor), tail))))


def inject_double_buffer(stmt: Stmt) -> Stmt:
    """Double the marked buffers of ``stmt``."""
    find = _Find()
    find.visit_stmt(stmt)
    split = int(PassContext.current().option("tir.InjectDoubleBuffer")["split_loop"])
    return _Inject(find.marked, split).visit_stmt(stmt)


def InjectDoubleBuffer() -> Pass:
    """Fill one half of a buffer for the next iteration while the other half is used."""
    return body_pass("InjectDoubleBuffer", inject_double_buffer)
