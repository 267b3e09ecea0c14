"""The part of a buffer that a statement reads, writes, or both."""

from __future__ import annotations

from tilewright.arith.analyzer import simplify
from tilewright.arith.int_set import IntSet, eval_set, union
from tilewright.ir.iter_var import Range
from tilewright.ir.memory import Buffer
from tilewright.ir.prim_expr import PrimExpr, Var
from tilewright.runtime.registry import register_func
from tilewright.tir.expr import BufferLoad
from tilewright.tir.stmt import BufferStore, For, LetStmt, Stmt
from tilewright.tir.visitor import StmtExprVisitor


class _Accesses(StmtExprVisitor):
    """The sets of indices of one buffer, by dimension."""

    def __init__(self, buffer: Buffer, loads: bool, stores: bool) -> None:
        super().__init__()
        self.buffer, self.loads, self.stores = buffer, loads, stores
        self.domains: dict[Var, IntSet] = {}
        self.sets: list[list[IntSet]] = [[] for _ in buffer.shape]

    def add(self, indices: tuple[PrimExpr, ...]) -> None:
        for found, index in zip(self.sets, indices, strict=True):
            found.append(eval_set(index, self.domains))

    def visit_for(self, s: For) -> None:
        first, last = eval_set(s.min, self.domains), eval_set(s.min + s.extent - 1, self.domains)
        self.domains[s.loop_var] = IntSet.interval(first.min_value, last.max_value)
        super().visit_for(s)

    def visit_let_stmt(self, s: LetStmt) -> None:
        self.domains[s.var] = eval_set(s.value, self.domains)
        super().visit_let_stmt(s)

    def visit_buffer_load(self, e: BufferLoad) -> None:
        if self.loads and e.buffer is self.buffer:
            self.add(e.indices)
        super().visit_buffer_load(e)

    def visit_buffer_store(self, s: BufferStore) -> None:
        if self.stores and s.buffer is self.buffer:
            self.add(s.indices)
        super().visit_buffer_store(s)


@register_func("arith.DomainTouched", override=True)
def domain_touched(
    stmt: Stmt, buffer: Buffer, consider_loads: bool = True, consider_stores: bool = True
) -> tuple[Range, ...]:
    """A range of indices for each dimension of ``buffer`` that holds all that ``stmt`` touches; () for nothing."""
    found = _Accesses(buffer, consider_loads, consider_stores)
    found.visit_stmt(stmt)
    if not all(found.sets):
        return ()
    whole = [union(sets).cover_range() for sets in found.sets]
    return tuple(Range.from_min_extent(simplify(r.min), simplify(r.extent)) for r in whole)
