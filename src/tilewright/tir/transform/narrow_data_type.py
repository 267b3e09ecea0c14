"""NarrowDataType: compute indices in 32 bits where their ranges allow it.

Before and after::

    for (i: int64, 0i64, 8i64) {                      for (i: int32, 0, 8) {
      A[((i*4i64) + 1i64)] = 0f32                       A[((i*4) + 1)] = 0f32
    }                                                 }

Loops whose range fits become 32-bit. An index becomes 32-bit when the constant bounds of every part of it fit; other
uses of such a loop variable see it converted back.
"""

from __future__ import annotations

from tilewright.arith.analyzer import Analyzer
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import BinaryExpr, Broadcast, Cast, IntImm, PrimExpr, Ramp, Select, Var
from tilewright.ir.transform import Pass
from tilewright.tir.expr import Load
from tilewright.tir.stmt import For, Stmt, Store
from tilewright.tir.transform.common import ScopedMutator, body_pass


class _Narrow(ScopedMutator):
    def __init__(self, bits: int) -> None:
        super().__init__()
        self.target = dt.make("int", bits)
        self.low, self.high = dt.int_range(self.target)
        self.narrow_vars: dict[Var, Var] = {}
        self.narrow_memo: dict[PrimExpr, PrimExpr | None] = {}

    def forget_results(self) -> None:
        super().forget_results()
        self.narrow_memo = {}

    def _fits(self, e: PrimExpr) -> bool:
        low, high = self.analyzer.bounds.bound(e)
        return self.low <= low and high <= self.high

    def _is_wide(self, dtype: str) -> bool:
        return dt.is_signed(dtype) and dt.bits(dtype) > dt.bits(self.target)

    def narrow(self, e: PrimExpr) -> PrimExpr | None:
        """``e`` in the narrow dtype, or None when a part of it may not fit."""
        if e not in self.narrow_memo:
            self.narrow_memo[e] = self._narrow(e)
        return self.narrow_memo[e]

    def _narrow(self, e: PrimExpr) -> PrimExpr | None:
        if not self._is_wide(e.dtype) or not self._fits(e):
            return None
        if isinstance(e, IntImm):
            return IntImm(self.target, e.value)
        if isinstance(e, Var):
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

    def visit_for(self, s: For) -> Stmt:
        if not self._is_wide(s.loop_var.dtype):
            return super().visit_for(s)
        self.bind(s.loop_var, s.min, s.extent)
        low, extent = self.narrow(s.min), self.narrow(s.extent)
        if low is None or extent is None or not self._fits(s.min + s.extent):
            return super().visit_for(s)
        var = self.narrow_vars[s.loop_var] = Var(s.loop_var.name, self.target)
        self.forget_results()
        return For(var, low, extent, s.kind, self.visit_stmt(s.body), s.thread_binding, s.annotations)

    def visit_var(self, e: Var) -> PrimExpr:
        narrow = self.narrow_vars.get(e)
        return e if narrow is None else Cast(e.dtype, narrow)

    def visit_binary(self, e: BinaryExpr) -> PrimExpr:
        if self._is_wide(e.a.dtype) and not self._is_wide(e.dtype):  # a comparison
            a, b = self.narrow(e.a), self.narrow(e.b)
            if a is not None and b is not None:
                return type(e)(a, b)
        return super().visit_binary(e)

    def _index(self, index: PrimExpr) -> PrimExpr:
        narrow = self.narrow(index)
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


def narrow_data_type(stmt: Stmt, target_bits: int = 32, analyzer: Analyzer | None = None) -> Stmt:
    """Narrow the index arithmetic of ``stmt`` to ``target_bits``."""
    narrow = _Narrow(target_bits)
    if analyzer is not None:
        narrow.analyzer = analyzer
    return narrow.visit_stmt(stmt)


def NarrowDataType(target_bits: int = 32) -> Pass:
    """The pass."""
    return body_pass("NarrowDataType", lambda s: narrow_data_type(s, target_bits))
