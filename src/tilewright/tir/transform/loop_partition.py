"""LoopPartition: split a loop so that in its main part no bound needs to be checked.

Before and after::

    for (i: int32, 0, floordiv((n + 7), 8)) {           for (i: int32, 0, floordiv(n, 8)) {
      for (j: int32, 0, 8) {                              for (j: int32, 0, 8) {
        if @tir.likely((((i*8) + j) < n), ...) {            A[((i*8) + j)] = 0f32
          A[((i*8) + j)] = 0f32                           }
        }                                               }
      }                                                 for (i_1: int32, 0, ...) { ... with the check ... }
    }

So are blocks of a grid whose extent is not constant: those whose threads all meet the conditions test nothing::

    attr [IterVar(blockIdx.x)] "thread_extent" = floordiv((n + 63), 64)
      if @tir.likely((blockIdx.x < floordiv(n, 64)), ...) { ... } else { ... with the check ... }

In the remainders, conditions that never hold there are false: what they guard is left out.

Only conditions marked ``likely`` count. By default only loops whose extent is not constant are split, and those that
the schedule marks with ``s[C].pragma(axis, "loop_partition_hint", 1)``; in these every condition counts. The options of
``tir.LoopPartition`` in the PassContext's config are ``partition_const_loop`` (split the others too) and
``no_unroll_loop_with_extent_one`` (accepted for TVM's sake: such loops are written out by Simplify).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

from tilewright.arith.affine import build
from tilewright.arith.bounds import INDEX_DTYPES
from tilewright.arith.int_set import IntSet, IntSetEvaluator
from tilewright.ir import prim_ops as ops
from tilewright.ir.iter_var import IterVar, Range
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import EQ, LE, LT, And, Call, IntImm, PrimExpr, Var
from tilewright.ir.transform import Pass, PassContext
from tilewright.tir.analysis import conjuncts, side_effect
from tilewright.tir.op import likely
from tilewright.tir.stmt import AttrStmt, Evaluate, For, ForKind, IfThenElse, Stmt, seq
from tilewright.tir.transform.common import ScopedMutator, bind_range, body_pass
from tilewright.tir.visitor import StmtExprMutator, StmtExprVisitor, StmtVisitor, stmt_vars, substitute, with_fresh_vars

_TRUE, _FALSE = IntImm("bool", 1), IntImm("bool", 0)
_HINT = "pragma_loop_partition_hint"


class _LikelyConditions(StmtExprVisitor):
    """The conditions marked likely below a loop, and the ranges of the loops inside."""

    def __init__(self, every: bool) -> None:
        super().__init__()
        self.every = every
        self.conditions: dict[PrimExpr, None] = {}
        self.domains: dict[Var, tuple[PrimExpr, PrimExpr] | None] = {}  # None where two loops share a variable

    def _add(self, condition: PrimExpr) -> None:
        self.conditions.update(dict.fromkeys(conjuncts(condition)))

    def visit_call(self, e: Call) -> None:
        name = e.op.name if isinstance(e.op, Op) else ""
        if name == "tir.likely" or (self.every and name == "tir.if_then_else"):
            self._add(e.args[0])
        super().visit_call(e)

    def visit_if_then_else(self, s: IfThenElse) -> None:
        if self.every:
            self._add(s.condition)
        super().visit_if_then_else(s)

    def visit_for(self, s: For) -> None:
        known = self.domains.setdefault(s.loop_var, (s.min, s.extent))
        if known is not None and (known[0] is not s.min or known[1] is not s.extent):
            self.domains[s.loop_var] = None
        super().visit_for(s)


class _Threads(StmtVisitor):
    """The indices of threads in their blocks, wherever they are, and their values."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Var, IntSet] = {}

    def visit_attr(self, s: AttrStmt) -> None:
        if isinstance(s.node, IterVar) and s.node.thread_tag.startswith("threadIdx"):
            self.found[s.node.var] = IntSet.from_range(Range(0, s.value))
        super().visit_attr(s)


class Assume(StmtExprMutator):
    """Replaces conditions that hold by true, and those that cannot hold (``refuted``) by false."""

    def __init__(self, proven: set[PrimExpr], refuted: Collection[PrimExpr] = ()) -> None:
        super().__init__()
        self.proven = proven
        self.refuted = refuted

    def visit_call(self, e: Call) -> PrimExpr:
        name = e.op.name if isinstance(e.op, Op) else ""
        if name == "tir.likely":
            parts = conjuncts(e.args[0])
            if any(c in self.refuted for c in parts):
                return _FALSE
            rest = [c for c in parts if c not in self.proven]
            if len(rest) == len(parts):
                return e
            result: PrimExpr = _TRUE
            for c in rest:
                result = ops.logical_and(result, c)
            return result if isinstance(result, IntImm) else Call("bool", e.op, (result,))
        new = super().visit_call(e)
        if name == "tir.if_then_else" and isinstance(new, Call) and isinstance(new.args[0], IntImm):
            return new.args[1] if new.args[0].value else new.args[2]
        return new

    def visit_binary(self, e: Any) -> PrimExpr:
        if e in self.proven:
            return _TRUE
        if e in self.refuted:
            return _FALSE
        if isinstance(e, And):
            return ops.logical_and(self.visit_expr(e.a), self.visit_expr(e.b))
        return super().visit_binary(e)

    def visit_if_then_else(self, s: IfThenElse) -> Stmt:
        condition = self.visit_expr(s.condition)
        if isinstance(condition, IntImm):
            if condition.value:
                return self.visit_stmt(s.then_case)
            return Evaluate(0) if s.else_case is None else self.visit_stmt(s.else_case)
        return super().visit_if_then_else(s)


def _does_nothing(stmt: Stmt) -> bool:
    """Return whether a statement consists of loops around nothing."""
    while isinstance(stmt, For):
        stmt = stmt.body
    return isinstance(stmt, Evaluate) and isinstance(stmt.value, IntImm)


class _Partition(ScopedMutator):
    def __init__(self, partition_const_loop: bool, threads: Mapping[Var, IntSet]) -> None:
        super().__init__()
        self.partition_const_loop = partition_const_loop
        self.hinted: set[Var] = set()
        self.threads = threads

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key == "thread_extent" and isinstance(s.node, IterVar) and s.node.thread_tag.startswith("blockIdx"):
            split = self._split_blocks(s, s.node.var)
            return super().visit_attr(s) if split is None else split
        if s.attr_key != _HINT:
            return super().visit_attr(s)
        if not ops.is_const_int(s.value, 0):
            self.hinted.add(s.node.var)
        return self.visit_stmt(s.body)

    def visit_expr(self, expr: PrimExpr) -> PrimExpr:
        return expr

    def visit_for(self, s: For) -> Stmt:
        constant = isinstance(s.min, IntImm) and isinstance(s.extent, IntImm)
        wanted = self.partition_const_loop or not constant or s.loop_var in self.hinted
        if s.kind in (ForKind.SERIAL, ForKind.PARALLEL) and wanted:
            split = self._split(s)
            if split is not None:
                return split
        return super().visit_for(s)

    def _split_blocks(self, s: AttrStmt, block: Var) -> Stmt | None:
        """Split off the blocks for which the conditions hold, whose code tests nothing, from the others."""
        if isinstance(s.value, IntImm) and not self.partition_const_loop:
            return None
        found = _LikelyConditions(False)
        found.visit_stmt(s.body)
        if not found.conditions:
            return None
        self.bind(block, ops.const(0, s.value.dtype), s.value)
        loop = For(block, ops.const(0, block.dtype), ops.cast(block.dtype, s.value), ForKind.SERIAL, s.body)
        proven, first, last = self._main_part(loop, found)
        limits = [] if first is None else [first <= block]
        limits += [] if last is None else [block < last]
        inside = functools.reduce(ops.logical_and, limits) if limits else None
        if inside is None or isinstance(self.analyzer.simplify(inside), IntImm):
            return None
        axes: list[AttrStmt] = [s]
        while isinstance(axes[-1].body, AttrStmt) and axes[-1].body.attr_key == "thread_extent":
            axes.append(axes[-1].body)
        body = axes[-1].body
        main = self.visit_stmt(Assume(proven).visit_stmt(body))
        new: Stmt = IfThenElse(likely(inside), main, with_fresh_vars(self.visit_stmt(body)))
        for axis in reversed(axes):
            new = axis.replace(body=new)
        return new

    def _split(self, s: For) -> Stmt | None:
        found = _LikelyConditions(s.loop_var in self.hinted)
        found.visit_stmt(s.body)
        if not found.conditions:
            return None
        for var, domain in [(s.loop_var, (s.min, s.extent)), *found.domains.items()]:
            if domain is not None and var in self.analyzer.context.var_bounds:  # another loop over it came before
                self.bind(var, *domain)
        proven, first, last = self._main_part(s, found)
        if not proven:
            return None
        low = self.analyzer.simplify(s.min)
        end = self.analyzer.simplify(s.min + s.extent)
        bind_range(self.analyzer, s.loop_var, s.min, s.extent)
        last = self.analyzer.simplify(ops.maximum(ops.minimum(last, end) if last is not None else end, low))
        first = self.analyzer.simplify(ops.minimum(ops.maximum(first, low), last) if first is not None else low)
        if self.analyzer.can_prove(last <= first):
            return None
        main_body = Assume(proven).visit_stmt(s.body)
        parts = [
            self._part(s, low, first, self._without_refuted(s, found, low, first), fresh=True),
            self._part(s, first, last, main_body, fresh=False),
            self._part(s, last, end, self._without_refuted(s, found, last, end), fresh=True),
        ]
        return seq(*[self.visit_stmt(p) if i == 1 else self._inner(p) for i, p in enumerate(parts) if p is not None])

    def _inner(self, part: Stmt) -> Stmt:
        """A remainder is not split again at this loop, but at those inside."""
        return ScopedMutator.visit_for(self, part) if isinstance(part, For) else self.visit_stmt(part)

    def _part(self, s: For, begin: PrimExpr, end: PrimExpr, body: Stmt, fresh: bool) -> Stmt | None:
        extent = self.analyzer.simplify(ops.sub(end, begin))
        if (isinstance(extent, IntImm) and extent.value <= 0) or _does_nothing(body):
            return None
        var = Var(s.loop_var.name, s.loop_var.dtype) if fresh else s.loop_var
        if fresh:
            body = with_fresh_vars(substitute(body, {s.loop_var: ops.add(begin, var)}))
        elif not ops.is_const_int(begin, 0):
            body = substitute(body, {s.loop_var: ops.add(begin, var)})
        return For(var, ops.const(0, var.dtype), extent, s.kind, body, s.thread_binding, s.annotations)

    def _without_refuted(self, s: For, found: _LikelyConditions, begin: PrimExpr, end: PrimExpr) -> Stmt:
        """Return the body for ``begin <= loop_var < end``, where conditions that never hold there are false."""
        if begin is end:
            return s.body
        evaluator = IntSetEvaluator(self._relaxed(s, found), self.analyzer)
        refuted = set()
        for condition in found.conditions:
            bounds = self._bound(ops.logical_not(condition), s.loop_var, evaluator)
            if bounds is None:
                continue
            first, last = bounds
            if (first is None or self.analyzer.can_prove(first <= begin)) and (
                last is None or self.analyzer.can_prove(end <= last)
            ):
                refuted.add(condition)
        return Assume(set(), refuted).visit_stmt(s.body) if refuted else s.body

    def _main_part(self, s: For, found: _LikelyConditions) -> tuple[set[PrimExpr], PrimExpr | None, PrimExpr | None]:
        """Return conditions that hold for ``first <= loop_var < last`` whatever the inner loops do, and these
        bounds.
        """
        proven: set[PrimExpr] = set()
        first: PrimExpr | None = None
        last: PrimExpr | None = None
        evaluator = IntSetEvaluator(self._relaxed(s, found), self.analyzer)
        for condition in found.conditions:
            bounds = self._bound(condition, s.loop_var, evaluator)
            if bounds is None:
                continue
            lower, upper = bounds
            if lower is not None:
                first = lower if first is None else ops.maximum(first, lower)
            if upper is not None:
                last = upper if last is None else ops.minimum(last, upper)
            proven.add(condition)
        return proven, first, last

    def _relaxed(self, s: For, found: _LikelyConditions) -> dict[Var, IntSet]:
        """Return value sets of the variables of inner loops, whose bounds may depend on outer ones."""
        sets: dict[Var, IntSet] = dict(self.threads)  # or threads of a block would run loops of different lengths
        for var, domain in found.domains.items():
            if domain is None:
                sets[var] = IntSet.everything()
                continue
            low, extent = domain
            if any(v is s.loop_var for v in (*stmt_vars(low), *stmt_vars(extent))):
                sets[var] = IntSet.everything()
                continue
            evaluator = IntSetEvaluator(sets, self.analyzer)
            low_set, last_set = evaluator.evaluate(low), evaluator.evaluate(low + extent - 1)
            sets[var] = IntSet(low_set.low, last_set.high)
        return sets

    def _bound(
        self, condition: PrimExpr, var: Var, evaluator: IntSetEvaluator
    ) -> tuple[PrimExpr | None, PrimExpr | None] | None:
        """Return (first value, end) of ``var`` between which the condition certainly holds; None if unknown."""
        simple = self.analyzer.simplify(condition)
        if not isinstance(simple, (LT, LE, EQ)) or simple.a.dtype not in INDEX_DTYPES or side_effect(simple) != "pure":
            return None
        terms, const = self.analyzer.simplifier.difference(simple.a, simple.b)
        coef = terms.get(var, 0)
        rest = {a: c for a, c in terms.items() if a is not var}
        if coef == 0 or any(v is var for a in rest for v in stmt_vars(a)):
            return None
        if isinstance(simple, EQ):
            others = evaluator.evaluate(build(rest, const, simple.a.dtype))
            if coef not in (1, -1) or others.low is None or others.low is not others.high:
                return None
            only = self.analyzer.simplify(ops.mul(others.low, -coef))
            return only, self.analyzer.simplify(only + 1)
        highest = evaluator.evaluate(build(rest, const - (1 if isinstance(simple, LE) else 0), simple.a.dtype)).high
        if highest is None:
            return None
        if coef > 0:  # coef*var + highest < 0
            limit = ops.floordiv(ops.sub(ops.const(-1, highest.dtype), highest), coef)
            return None, self.analyzer.simplify(ops.add(limit, 1))
        return self.analyzer.simplify(ops.add(ops.floordiv(highest, -coef), 1)), None


def loop_partition(stmt: Stmt, options: Mapping[str, Any] | None = None) -> Stmt:
    """Split the loops of ``stmt``."""
    threads = _Threads()
    threads.visit_stmt(stmt)
    return _Partition(bool((options or {}).get("partition_const_loop", False)), threads.found).visit_stmt(stmt)


def LoopPartition() -> Pass:
    """The pass; the configuration is that of the PassContext when it runs."""
    return body_pass("LoopPartition", lambda s: loop_partition(s, PassContext.current().option("tir.LoopPartition")))
