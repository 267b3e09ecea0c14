"""Arithmetic operation count of a computation, from its expressions."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.auto_scheduler.access_analysis import extent_of
from tilewright.ir.prim_expr import BinaryExpr, Call, Cast, ConstExpr, Not, PrimExpr, Select, Var
from tilewright.te.operation import ComputeOp, Operation, sub_expressions
from tilewright.tir.expr import ProducerLoad, Reduce


def count_flops(ops: Iterable[Operation]) -> float:
    """Count operations of the results' kind (float or integer); return -1 if an expression has no known cost.

    Those of indices are not counted. An operation's attribute ``FLOP`` says its count.
    """
    total = 0.0
    for op in ops:
        if not isinstance(op, ComputeOp):
            continue
        if "FLOP" in op.attrs:
            total += int(op.attrs["FLOP"])
            continue
        elements = 1
        for iv in op.axis:
            elements *= extent_of(iv)
        costs = _costs(op.body, _kind(op.output_dtype(0)))
        found = [costs[b] for b in op.body]
        if any(c is None for c in found):
            return -1
        total += elements * sum(c for c in found if c is not None)
    return total


def _kind(dtype: str) -> str:
    return dtype.rstrip("0123456789x")


def _costs(roots: Iterable[PrimExpr], kind: str) -> dict[PrimExpr, float | None]:
    """Operations of each expression below ``roots``, as if nothing were shared."""
    costs: dict[PrimExpr, float | None] = {}
    for expr in sub_expressions(roots):
        costs[expr] = _cost(expr, kind, costs)
    return costs


def _sum(*costs: float | None) -> float | None:
    return None if any(c is None for c in costs) else sum(c for c in costs if c is not None)


def _cost(expr: PrimExpr, kind: str, costs: dict[PrimExpr, float | None]) -> float | None:
    if isinstance(expr, (ConstExpr, Var, ProducerLoad)):
        return 0.0
    if isinstance(expr, Cast):
        return costs[expr.value]
    if isinstance(expr, Select):
        one, other = costs[expr.true_value], costs[expr.false_value]
        larger = None if one is None or other is None else max(one, other)
        return _sum(costs[expr.condition], larger)
    if isinstance(expr, BinaryExpr):
        own = float(kind in (_kind(expr.a.dtype), _kind(expr.b.dtype)))
        return _sum(own, costs[expr.a], costs[expr.b])
    if isinstance(expr, Not):
        return _sum(float(_kind(expr.dtype) == kind), costs[expr.a])
    if isinstance(expr, Call):
        return _sum(*(costs[a] for a in expr.args))
    if isinstance(expr, Reduce):
        steps = 1
        for iv in expr.axis:
            steps *= extent_of(iv)
        combined = _costs(expr.combiner.result, kind)
        body = _sum(*(combined[r] for r in expr.combiner.result), *(costs[s] for s in expr.source))
        return None if body is None else steps * body
    return None
