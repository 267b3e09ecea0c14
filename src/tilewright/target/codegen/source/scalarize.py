"""Vector statements as loops over lanes, which C compilers vectorise again.

C[ramp(i*16, 1, 16)] = A[ramp(i*16, 1, 16)] + broadcast(b, 16)
    ->  for (lane, 0, 16) "vectorized"  C[i*16 + lane] = A[i*16 + lane] + b
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import UnsupportedError
from tilewright.tir.expr import (
    ArithExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    IntImm,
    Let,
    Load,
    LogicalExpr,
    Not,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    Var,
)  # fmt: skip
from tilewright.tir.stmt import For, ForKind, LetStmt, Stmt, Store, seq
from tilewright.tir.visitor import StmtMutator


class _Lane:
    """One lane of vector expressions."""

    def __init__(self, lane: PrimExpr, bindings: dict[Var, PrimExpr]) -> None:
        self.lane, self.bindings = lane, bindings
        self.memo: dict[PrimExpr, PrimExpr] = {}

    def of(self, e: PrimExpr) -> PrimExpr:
        """Lane ``lane`` of ``e``; a scalar is the same in every lane."""
        if dt.lanes(e.dtype) == 1:
            return e
        found = self.memo.get(e)
        if found is None:
            found = self.memo[e] = self._of(e)
        return found

    def _of(self, e: PrimExpr) -> PrimExpr:
        if isinstance(e, Ramp):
            return ops.add(e.base, ops.mul(ops.cast(e.base.dtype, self.lane), e.stride))
        if isinstance(e, Broadcast):
            return e.value
        if isinstance(e, Var):
            return self.of(self.bindings[e])
        if isinstance(e, Load):
            return Load(dt.element(e.dtype), e.buffer_var, self.of(e.index), self.of(e.predicate))
        if isinstance(e, (ArithExpr, CompareExpr, LogicalExpr)):
            return type(e)(self.of(e.a), self.of(e.b))
        if isinstance(e, Not):
            return Not(self.of(e.a))
        if isinstance(e, Cast):
            return ops.cast(dt.element(e.dtype), self.of(e.value))
        if isinstance(e, Select):
            return Select(self.of(e.condition), self.of(e.true_value), self.of(e.false_value))
        if isinstance(e, Let):
            return Let(e.var, e.value, self.of(e.body)) if dt.lanes(e.var.dtype) == 1 else self._vector_let(e)
        if isinstance(e, Call):
            return Call(dt.element(e.dtype), e.op, [self.of(a) for a in e.args])
        if isinstance(e, Shuffle):
            return self._picked(e)
        raise UnsupportedError(f"C code generation cannot take the vector expression {type(e).__name__} apart: {e}")

    def _picked(self, e: Shuffle) -> PrimExpr:
        """Return the lane of the vector that the shuffle picks, known because its store is unrolled."""
        pick = int(e.indices[int(self.lane)])  # type: ignore[call-overload]
        for vector in e.vectors:
            if pick < dt.lanes(vector.dtype):
                return _Lane(IntImm("int32", pick), self.bindings).of(vector)
            pick -= dt.lanes(vector.dtype)
        raise UnsupportedError(f"{e} picks a lane that its vectors do not have")

    def _vector_let(self, e: Let) -> PrimExpr:
        self.bindings[e.var] = e.value
        return self.of(e.body)


def _has_shuffle(e: PrimExpr) -> bool:
    stack: list[object] = [e]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen or not isinstance(node, PrimExpr):
            continue
        seen.add(id(node))
        if isinstance(node, Shuffle):
            return True
        for _, child in node.field_values():
            stack.extend(child if isinstance(child, tuple) else [child])
    return False


class _Scalarize(StmtMutator):
    def __init__(self, keeps: Callable[[Store], bool]) -> None:
        super().__init__()
        self.bindings: dict[Var, PrimExpr] = {}
        self.count, self.keeps = 0, keeps

    def visit_store(self, s: Store) -> Stmt:
        """Make a vector store a loop, or one store per lane when lanes are shuffled."""
        lanes = dt.lanes(s.index.dtype)
        if lanes == 1 or self.keeps(s):
            return s
        if _has_shuffle(s.value):
            return seq(*[self._store(s, IntImm("int32", i)) for i in range(lanes)])
        self.count += 1
        lane = Var(f"lane{self.count}", "int32")
        return For(lane, 0, lanes, ForKind.VECTORIZED, self._store(s, lane))

    def _store(self, s: Store, lane: PrimExpr) -> Stmt:
        of = _Lane(lane, self.bindings).of
        return Store(s.buffer_var, of(s.value), of(s.index), of(s.predicate))

    def visit_let_stmt(self, s: LetStmt) -> Stmt:
        """A vector variable is replaced by its value."""
        if dt.lanes(s.var.dtype) == 1:
            return super().visit_let_stmt(s)
        self.bindings[s.var] = s.value
        return self.visit_stmt(s.body)


def scalarize(stmt: Stmt, keeps: Callable[[Store], bool] = lambda s: False) -> Stmt:
    """Remove vectors from ``stmt``, except in stores that ``keeps`` accepts."""
    return _Scalarize(keeps).visit_stmt(stmt)
