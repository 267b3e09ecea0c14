"""Arithmetic operation count of a schedule's computation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir import prim_expr as expr
from tilewright.ir.iter_var import IterVar, Reduce
from tilewright.te.schedule import Schedule
from tilewright.tir.expr import ProducerLoad


class FlopCalculationError(RuntimeError):
    """The operations of a computation cannot be counted."""


def compute_flop(sch: Schedule) -> int:
    """The operations of all computations of a schedule: each arithmetic operation and comparison of each element.

    Indices, constants and conversions count nothing, of a choice the more costly side. Raises RuntimeError where there
    are none, or they cannot be counted: the template then says how many there are by ``cfg.add_flop``.
    """
    seen: set[Any] = set()
    total, pending = 0, [*sch.outputs]
    try:
        while pending:
            op = pending.pop()
            if op in seen:
                continue
            seen.add(op)
            total += _of_operation(op)
            pending += [t.op for t in op.input_tensors]
    except FlopCalculationError as error:
        raise RuntimeError(f"FLOPs cannot be counted: {error}; let the template call cfg.add_flop") from None
    if total == 0:
        raise RuntimeError("the computation does no arithmetic; let the template call cfg.add_flop")
    return total


def _of_operation(op: Any) -> int:
    if isinstance(op, te.PlaceholderOp):
        return 0
    if not isinstance(op, te.ComputeOp):
        raise FlopCalculationError(f"{op.name} is a {type(op).__name__}, only te.compute says what it does")
    return _product(op.axis) * sum(_of_expression(part) for part in op.body[:1])


def _product(axes: Sequence[IterVar]) -> int:
    extents = [axis.dom.extent if axis.dom is not None else None for axis in axes]
    if not all(isinstance(e, expr.IntImm) for e in extents):
        raise FlopCalculationError("the length of an axis is not constant")
    return math.prod(int(e) for e in extents)  # type: ignore[call-overload]


def _of_expression(e: Any) -> int:
    """Operations to calculate ``e`` once; a shared part counts each time, as in its text."""
    if isinstance(e, Reduce):
        steps = sum(map(_of_expression, (*e.combiner.result, *e.source)))
        return _product(e.axis) * steps
    if isinstance(e, ProducerLoad):
        return 0
    if isinstance(e, expr.Cast):
        return _of_expression(e.value)
    if isinstance(e, expr.BinaryExpr):
        return 1 + _of_expression(e.a) + _of_expression(e.b)
    if isinstance(e, expr.Not):
        return 1 + _of_expression(e.a)
    if isinstance(e, expr.Select):
        return _of_expression(e.condition) + max(_of_expression(e.true_value), _of_expression(e.false_value))
    if isinstance(e, expr.Let):
        return _of_expression(e.value) + _of_expression(e.body)
    if isinstance(e, expr.Call):
        return sum(_of_expression(a) for a in e.args if isinstance(a, expr.PrimExpr))
    return 0
