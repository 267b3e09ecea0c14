"""InjectPrefetch: prefetch the part of a buffer that a later iteration will read, where the schedule requests it.

Before and after, for ``s[B].prefetch(A, i, 2)``::

    for (i: int32, 0, 8) {                       for (i: int32, 0, 8) {
      attr [A] "prefetch_scope" = 2;               prefetch(A, [[(i + 2):((i + 2) + 1)], [0:16]])
      for (j: int32, 0, 16) {                      for (j: int32, 0, 16) {
        B[i, j] = A[i, j]                            B[i, j] = A[i, j]
      }                                            }
    }                                            }

With ``stream=True`` the attribute is "prefetch_stream", and the prefetch is non-temporal: caches need not keep the
data.

What a later iteration of an outer loop reads can be shared out over an inner one, a few cache lines at a time; for
``s[B].prefetch(A, j, 1, ahead=i)`` and rows of 64 floats, which are four lines, ``j`` having four iterations::

    for (i: int32, 0, 8) {                            for (i: int32, 0, 8) {
      for (j: int32, 0, 4) {                            for (j: int32, 0, 4) {
        attr [A] "prefetch_share" = tuple(i, 1);          prefetch(address of A[min((i + 1), 7), (j*16)])
        s(A[i])                                           s(A[i])
      }                                                 }
    }                                                 }

Where the part read depends on the loop around ``i`` too, the last iteration fetches what the first will read after it.
Where the number of iterations of ``j`` is not known, each share is as large as that turns out to need: a loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.int_set import IntSet, IntSetEvaluator, union
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.memory import Buffer
from tilewright.ir.prim_expr import Call, IntImm, PrimExpr
from tilewright.ir.transform import Pass
from tilewright.tir.expr import BufferLoad, Range, Select, Var
from tilewright.tir.stmt import AttrStmt, Evaluate, For, ForKind, Prefetch, SeqStmt, Stmt, seq
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtExprVisitor, StmtMutator, stmt_vars, substitute


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
    """Return the region of ``buffer`` that ``stmt`` reads; the whole dimension if it is not known."""
    analyzer = Analyzer()
    touched = _Touched(buffer, analyzer)
    touched.visit_stmt(stmt)
    whole = [Range.from_min_extent(ops.const(0, d.dtype), d) for d in buffer.shape]
    regions = [union(sets, analyzer).cover_range(r) if sets else r for sets, r in zip(touched.sets, whole, strict=True)]
    return [Range.from_min_extent(analyzer.simplify(r.min), analyzer.simplify(r.extent)) for r in regions]


_LINE_BYTES = 64
_LOCALITY = {"prefetch_scope": 3, "prefetch_stream": 0}
_SECOND_LEVEL = 2  # the locality hint for the second-level cache: a whole block would not fit the first


def shared_prefetch(buffer: Buffer, loops: Sequence[For], var: PrimExpr, offset: PrimExpr) -> Stmt | None:
    """Prefetch one iteration's share of the elements of ``buffer`` that iteration ``var + offset`` reads.

    ``loops`` are those around, the outermost first. None where ``var`` has no loop, or what it reads is not known
    to be contiguous.
    """
    at = next((i for i, loop in enumerate(loops) if loop.loop_var is var), None)
    if at is None or not isinstance(var, Var):
        return None
    around, inner = loops[at], loops[at + 1 :]
    region = domain_touched(around.body, buffer)
    extents, shape = _constants([r.extent for r in region]), _constants(buffer.shape)
    counts = [loop.extent for loop in inner]
    if extents is None or shape is None or 0 in extents or any(ops.is_const_int(n, 0) for n in counts):
        return None
    first = next((i for i, n in enumerate(extents) if n != 1), len(extents) - 1)
    if extents[first + 1 :] != shape[first + 1 :]:
        return None
    step = max(1, _LINE_BYTES // dt.nbytes(buffer.dtype))
    lines = -(-math.prod(extents) // step)
    turn, turns = ops.const(0, "int32"), ops.const(1, "int32")
    for loop, count in zip(inner, counts, strict=True):
        turn, turns = turn * count + (loop.loop_var - loop.min), turns * count
    share = ops.floordiv(turns + (lines - 1), turns)
    line = Var(f"prefetch.{buffer.name}.line", share.dtype)
    alone = ops.is_const_int(share, 1)
    number = turn if alone else turn * share + line
    if not ops.is_const_int(share * turns, lines):
        number = ops.minimum(number, ops.const(lines - 1, "int32"))
    reads = {v for r in region for v in stmt_vars(r.min)}
    outer = loops[at - 1] if at and loops[at - 1].loop_var in reads else None
    later = _later(around, outer, ops.cast(var.dtype, offset))
    start = [substitute(r.min, later) for r in region]
    # The last index runs over the whole region: it is contiguous, and only the address counts.
    address = Call("handle", "tir.address_of", (BufferLoad(buffer, [*start[:-1], start[-1] + number * step]),))
    fetch: Stmt = Evaluate(Call("handle", "tir.prefetch", (address, 0, _SECOND_LEVEL, 1)))
    if alone:
        return fetch
    return For(line, 0, share, ForKind.UNROLLED if isinstance(share, IntImm) else ForKind.SERIAL, fetch)


def _later(loop: For, outer: For | None, offset: PrimExpr) -> dict[Var, PrimExpr]:
    """Map the variables to ``offset`` iterations of ``loop`` later, wrapping at most once into the next of ``outer``.

    At the very end it is the last iteration once more.
    """
    then, end = ops.add(loop.loop_var, offset), loop.min + loop.extent
    if outer is None:
        return {loop.loop_var: ops.minimum(then, end - 1)}
    inside = then < end
    follows = outer.loop_var + Select(inside, ops.const(0, outer.loop_var.dtype), ops.const(1, outer.loop_var.dtype))
    return {
        loop.loop_var: Select(inside, then, then - loop.extent),
        outer.loop_var: ops.minimum(follows, outer.min + outer.extent - 1),
    }


def _constants(extents: Sequence[PrimExpr]) -> list[int] | None:
    found = [int(e) for e in extents if isinstance(e, IntImm)]
    return found if len(found) == len(extents) else None


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
        if s.attr_key == "prefetch_share" and isinstance(s.node, Buffer):
            assert isinstance(s.value, Call)
            return seq(shared_prefetch(s.node, self.loops, *s.value.args), new.body)
        if s.attr_key not in _LOCALITY or not isinstance(s.node, Buffer):
            return new
        region = domain_touched(new.body, s.node)
        if self.loops:
            var = self.loops[-1].loop_var
            ahead = {var: ops.add(var, ops.cast(var.dtype, s.value))}
            region = [Range.from_min_extent(substitute(r.min, ahead), substitute(r.extent, ahead)) for r in region]
        body = new.body.seq if isinstance(new.body, SeqStmt) else (new.body,)
        return SeqStmt([Prefetch(s.node, region, _LOCALITY[s.attr_key]), *body])


def inject_prefetch(stmt: Stmt) -> Stmt:
    """Insert the prefetches that ``stmt`` requests."""
    return _Inject().visit_stmt(stmt)


def InjectPrefetch() -> Pass:
    """Insert the prefetches that schedules request."""
    return body_pass("InjectPrefetch", inject_prefetch)
