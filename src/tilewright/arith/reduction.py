"""Simplification of reductions: drop unread parts and empty loops, and use the ranges of the axes.

>>> canonical_simplify(sum_and_product((A[k], B[k]), k)[0])   # reduce(..., source=[A[k]], ...)
>>> canonical_simplify(te.sum(te.Select(k < 12, A[k], 0.0), k))  # k runs to 10: reduce(..., source=[A[k]], ...)
>>> canonical_simplify(te.sum(A[3], []))  # A[3]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.iter_var import CommReducer, Range, Reduce
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Call, PrimExpr, Select
from tilewright.ir.prim_functor import ExprVisitor
from tilewright.ir.prim_vars import expr_vars, substitute

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer


def simplify_reduction(e: Reduce, analyzer: Analyzer) -> PrimExpr:
    """Simplify combiner, sources and condition; return the value if there is no axis.

    The ranges of its axes are facts of the analyzer from then on.
    """
    for axis in e.axis:
        if isinstance(axis.dom, Range):
            analyzer.bind(axis.var, axis.dom)
    e = _without_unread(_simplified(e, analyzer))
    if e.axis:
        return e
    if not e.init:
        first: PrimExpr = e.combiner.identity_element[e.value_index]
        value = e.source[e.value_index]
    else:
        first = e.init[e.value_index]
        given = zip((*e.combiner.lhs, *e.combiner.rhs), (*e.init, *e.source), strict=True)
        value = substitute(e.combiner.result[e.value_index], dict(given))
    return analyzer.simplify(Select(e.condition, value, first))


def _simplified(e: Reduce, analyzer: Analyzer) -> Reduce:
    def each(items: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return tuple([analyzer.simplify(item) for item in items])

    old = e.combiner
    combiner = CommReducer(old.lhs, old.rhs, each(old.result), each(old.identity_element))
    return Reduce(combiner, each(e.source), e.axis, analyzer.simplify(e.condition), e.value_index, each(e.init))


def _without_unread(e: Reduce) -> Reduce:
    """Keep the parts that the value depends on, and those whose sources have side effects."""
    c = e.combiner
    part_of = {var: i for names in (c.lhs, c.rhs) for i, var in enumerate(names)}
    kept: set[int] = set()
    work = [e.value_index, *[i for i, source in enumerate(e.source) if not _only_reads(source)]]
    while work:
        part = work.pop()
        if part not in kept:
            kept.add(part)
            work += [part_of[v] for v in expr_vars(c.result[part]) if v in part_of]
    if len(kept) == len(e.source):
        return e
    order = sorted(kept)
    lhs, rhs = ([names[i] for i in order] for names in (c.lhs, c.rhs))
    combiner = CommReducer(lhs, rhs, [c.result[i] for i in order], [c.identity_element[i] for i in order])
    init = [e.init[i] for i in order] if e.init else []
    return Reduce(combiner, [e.source[i] for i in order], e.axis, e.condition, order.index(e.value_index), init)


class _Effects(ExprVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def visit_call(self, e: Call) -> None:
        kind = e.op.get_attr("TCallEffectKind") if isinstance(e.op, Op) else "opaque"
        self.found = self.found or kind not in ("pure", "read")
        super().visit_call(e)


def _only_reads(e: PrimExpr) -> bool:
    visitor = _Effects()
    visitor.visit_expr(e)
    return not visitor.found
