"""InjectPrefetch: where a schedule asks for it, prefetch the part of a buffer that a later iteration will read.

Before and after, for ``s[B].prefetch(A, i, 2)``::

    for (i: int32, 0, 8) {                       for (i: int32, 0, 8) {
      attr [A] "prefetch_scope" = 2;               prefetch(A, [[(i + 2):((i + 2) + 1)], [0:16]])
      for (j: int32, 0, 16) {                      for (j: int32, 0, 16) {
        B[i, j] = A[i, j]                            B[i, j] = A[i, j]
      }                                            }
    }                                            }
"""

from __future__ import annotations

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.int_set import IntSet, IntSetEvaluator, union
from tilewright.ir import prim_ops as ops
from tilewright.ir.transform import Pass
from tilewright.tir.buffer import Buffer
from tilewright.tir.expr import BufferLoad, Range, Var
from tilewright.tir.stmt import AttrStmt, For, Prefetch, SeqStmt, Stmt
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtExprVisitor, StmtMutator, substitute


class _Touched(StmtExprVisitor):
    def __init__(self, buffer: Buffer, analyzer: Analyzer) -> None:
        super().__init__()
        self.buffer = buffer
        self.analyzer = analyzer
        self.domains: dict[Var, IntSet] = {}
        self.sets: list[list[IntSet]] = [[] for _ in buffer.shape]

    def visit_for(self, s: For) -> None:
        evaluator = IntSetEvaluator(self.domains, self.analyzer)
        low, last = evaluator.evaluate(s.min), evaluator.evaluate(s.min + s.extent - 1)
        self.domains[s.loop_var] = IntSet(low.low, last.high)
        super().visit_for(s)

    def visit_buffer_load(self, e: BufferLoad) -> None:
        if e.buffer is self.buffer:
            evaluator = IntSetEvaluator(self.domains, self.analyzer)
            for sets, index in zip(self.sets, e.indices, strict=True):
                sets.append(evaluator.evaluate(index))
        super().visit_buffer_load(e)


def domain_touched(stmt: Stmt, buffer: Buffer) -> list[Range]:
    """The region of ``buffer`` that ``stmt`` reads; the whole dimension where that is not known."""
    analyzer = Analyzer()
    touched = _Touched(buffer, analyzer)
    touched.visit_stmt(stmt)
    whole = [Range.from_min_extent(ops.const(0, d.dtype), d) for d in buffer.shape]
    regions = [union(sets, analyzer).cover_range(r) if sets else r for sets, r in zip(touched.sets, whole, strict=True)]
    return [Range.from_min_extent(analyzer.simplify(r.min), analyzer.simplify(r.extent)) for r in regions]


class _Inject(StmtMutator):
    def __init__(self) -> None:
        super().__init__()
        self.loops: list[For] = []

    def visit_for(self, s: For) -> Stmt:
        self.loops.append(s)
        new = super().visit_for(s)
        self.loops.pop()
        return new

    def visit_attr(self, s: AttrStmt) -> Stmt:
        new = super().visit_attr(s)
        assert isinstance(new, AttrStmt)
        if s.attr_key != "prefetch_scope" or not isinstance(s.node, Buffer):
            return new
        region = domain_touched(new.body, s.node)
        if self.loops:
            var = self.loops[-1].loop_var
            ahead = {var: ops.add(var, ops.cast(var.dtype, s.value))}
            region = [Range.from_min_extent(substitute(r.min, ahead), substitute(r.extent, ahead)) for r in region]
        body = new.body.seq if isinstance(new.body, SeqStmt) else (new.body,)
        return SeqStmt([Prefetch(s.node, tuple(region)), *body])


def inject_prefetch(stmt: Stmt) -> Stmt:
    """Put the prefetches that ``stmt`` asks for."""
    return _Inject().visit_stmt(stmt)


def InjectPrefetch() -> Pass:
    """The pass."""
    return body_pass("InjectPrefetch", inject_prefetch)
