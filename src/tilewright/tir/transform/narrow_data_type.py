"""NarrowDataType: compute indices in 32 bits if their ranges allow it.

Before and after::

    for (i: int64, 0i64, 8i64) {                      for (i: int32, 0, 8) {
      A[((i*4i64) + 1i64)] = 0f32                       A[((i*4) + 1)] = 0f32
    }                                                 }

An index becomes 32-bit when the constant bounds of every part of it fit. A loop, or an axis of threads, becomes 32-bit
when its range fits and so do all indices that it is part of; uses outside of indices see it converted back. An axis of
threads whose indices do not fit gets the dtype of its extent.
"""

from __future__ import annotations

from collections.abc import Container

from tilewright.arith.analyzer import Analyzer
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import BinaryExpr, Broadcast, Cast, IntImm, PrimExpr, Ramp, Select, Var
from tilewright.ir.transform import Pass
from tilewright.tir.expr import IterVar, Load, Range
from tilewright.tir.stmt import AttrStmt, For, Stmt, Store
from tilewright.tir.transform.common import ScopedMutator, body_pass
from tilewright.tir.visitor import stmt_vars

_THREADS = ("thread_extent", "virtual_thread")


class _Narrow(ScopedMutator):
    """Finds the variables that stay unchanged (``kept`` None), or rewrites all others."""

    def __init__(self, bits: int, kept: Container[Var] | None = None) -> None:
        super().__init__()
        self.target = dt.make("int", bits)
        self.low, self.high = dt.int_range(self.target)
        self.kept = kept
        self.narrow_vars: dict[Var, Var] = {}
        self.wide_threads: dict[Var, Var] = {}
        self.axes: dict[Var, IterVar] = {}
        self.narrow_memo: dict[PrimExpr, PrimExpr | None] = {}
        self.loops: set[Var] = set()
        self.indices: dict[PrimExpr, bool] = {}  # whether each is narrow
        self.met_wide = False

    def forget_results(self) -> None:
        super().forget_results()
        self.narrow_memo = {}

    def _fits(self, e: PrimExpr) -> bool:
        low, high = self.analyzer.bounds.bound(e)
        return self.low <= low and high <= self.high

    def _is_wide(self, dtype: str) -> bool:
        wide = dt.is_signed(dtype) and dt.bits(dtype) > dt.bits(self.target)
        self.met_wide = self.met_wide or wide
        return wide

    def narrow(self, e: PrimExpr) -> PrimExpr | None:
        """Return ``e`` in the narrow dtype, or None when a part of it may not fit."""
        if e not in self.narrow_memo:
            self.narrow_memo[e] = self._narrow(e)
        return self.narrow_memo[e]

    def _narrow(self, e: PrimExpr) -> PrimExpr | None:
        if not self._is_wide(e.dtype) or not self._fits(e):
            return None
        if isinstance(e, IntImm):
            return IntImm(self.target, e.value)
        if isinstance(e, Var):
            if e in self.loops and e not in self.narrow_vars:
                return None
            narrow = self.narrow_vars.get(e)
            return Cast(self.target, e) if narrow is None else narrow
        if isinstance(e, Cast) and dt.is_int(e.value.dtype) and not self._is_wide(e.value.dtype):
            return ops.cast(dt.with_lanes(self.target, dt.lanes(e.dtype)), self.visit_expr(e.value))
        if isinstance(e, BinaryExpr):
            a, b = self.narrow(e.a), self.narrow(e.b)
            return None if a is None or b is None else type(e)(a, b)
        if isinstance(e, Ramp):
            base, stride = self.narrow(e.base), self.narrow(e.stride)
            return None if base is None or stride is None else Ramp(base, stride, e.lanes)
        if isinstance(e, Broadcast):
            value = self.narrow(e.value)
            return None if value is None else Broadcast(value, e.lanes)
        if isinstance(e, Select):
            a, b = self.narrow(e.true_value), self.narrow(e.false_value)
            return None if a is None or b is None else Select(self.visit_expr(e.condition), a, b)
        return ops.cast(dt.with_lanes(self.target, dt.lanes(e.dtype)), self.visit_expr(e))

    def _takes(self, var: Var, low: PrimExpr, extent: PrimExpr) -> bool:
        """Return whether a variable with this range becomes narrow."""
        self.loops.add(var)
        if not self._is_wide(var.dtype) or (self.kept is not None and var in self.kept):
            return False
        return self.narrow(low) is not None and self.narrow(extent) is not None and self._fits(low + extent)

    def _rename(self, var: Var) -> Var:
        if var not in self.narrow_vars:
            self.narrow_vars[var] = Var(var.name, self.target)
        self.forget_results()
        return self.narrow_vars[var]

    def visit_for(self, s: For) -> Stmt:
        if not self._is_wide(s.loop_var.dtype):
            return super().visit_for(s)
        self.bind(s.loop_var, s.min, s.extent)
        if not self._takes(s.loop_var, s.min, s.extent):
            return super().visit_for(s)
        low, extent = self.narrow(s.min), self.narrow(s.extent)
        var = self._rename(s.loop_var)
        return For(var, low, extent, s.kind, self.visit_stmt(s.body), s.thread_binding, s.annotations)

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key not in _THREADS or not isinstance(s.node, IterVar):
            return super().visit_attr(s)
        var = s.node.var
        self.bind(var, ops.const(0, s.value.dtype), s.value)
        if self._takes(var, ops.const(0, s.value.dtype), ops.cast(var.dtype, s.value)):
            new = self._rename(var)
        elif self.kept is not None and var in self.kept and dt.bits(var.dtype) < dt.bits(s.value.dtype):
            new = self.wide_threads.setdefault(var, Var(var.name, s.value.dtype))
            self.forget_results()
        else:
            return super().visit_attr(s)
        axis = self.axes.get(var)
        if axis is None:
            dom = None if s.node.dom is None else Range.from_min_extent(*(
                ops.cast(new.dtype, e) for e in (s.node.dom.min, s.node.dom.extent)
            ))  # fmt: skip
            axis = self.axes[var] = IterVar(dom, new, s.node.iter_type, s.node.thread_tag)
        return AttrStmt(axis, s.attr_key, ops.cast(new.dtype, s.value), self.visit_stmt(s.body))

    def visit_var(self, e: Var) -> PrimExpr:
        new = self.narrow_vars.get(e, self.wide_threads.get(e))
        return e if new is None else Cast(e.dtype, new)

    def visit_cast(self, e: Cast) -> PrimExpr:
        if isinstance(e.value, Var) and e.value in self.wide_threads:
            return ops.cast(e.dtype, self.wide_threads[e.value])
        return super().visit_cast(e)

    def visit_binary(self, e: BinaryExpr) -> PrimExpr:
        if self._is_wide(e.a.dtype) and not self._is_wide(e.dtype):  # a comparison
            a, b = self.narrow(e.a), self.narrow(e.b)
            if a is not None and b is not None:
                return type(e)(a, b)
        return super().visit_binary(e)

    def _index(self, index: PrimExpr) -> PrimExpr:
        narrow = self.narrow(index)
        if self._is_wide(index.dtype):
            self.indices[index] = self.indices.get(index, True) and narrow is not None
        return self.visit_expr(index) if narrow is None else narrow

    def visit_load(self, e: Load) -> PrimExpr:
        index, predicate = self._index(e.index), self.visit_expr(e.predicate)
        if index is e.index and predicate is e.predicate:
            return e
        return Load(e.dtype, e.buffer_var, index, predicate)

    def visit_store(self, s: Store) -> Stmt:
        value, index, predicate = self.visit_expr(s.value), self._index(s.index), self.visit_expr(s.predicate)
        if value is s.value and index is s.index and predicate is s.predicate:
            return s
        return Store(s.buffer_var, value, index, predicate)


def _kept_variables(stmt: Stmt, bits: int, analyzer: Analyzer | None) -> set[Var] | None:
    """Return the loop variables in an index that does not fit, and transitively those in an index with one of these.

    None: nothing is wide, and nothing changes.
    """
    look = _Narrow(bits)
    if analyzer is not None:
        look.analyzer = analyzer
    look.visit_stmt(stmt)
    if not look.met_wide:
        return None
    parts = {index: look.loops.intersection(stmt_vars(index)) for index in look.indices}
    kept: set[Var] = set()
    waiting = [index for index, narrow in look.indices.items() if not narrow]
    while waiting:
        for index in waiting:
            kept |= parts.pop(index)
        waiting = [index for index, used in parts.items() if not kept.isdisjoint(used)]
    return kept


def narrow_data_type(stmt: Stmt, target_bits: int = 32, analyzer: Analyzer | None = None) -> Stmt:
    """Narrow the index arithmetic of ``stmt`` to ``target_bits``."""
    kept = _kept_variables(stmt, target_bits, analyzer)
    if kept is None:
        return stmt
    narrow = _Narrow(target_bits, kept)
    if analyzer is not None:
        narrow.analyzer = analyzer
    return narrow.visit_stmt(stmt)


def NarrowDataType(target_bits: int = 32) -> Pass:
    """Compute indices in ``target_bits`` bits if their ranges allow it."""
    return body_pass("NarrowDataType", lambda s: narrow_data_type(s, target_bits))
