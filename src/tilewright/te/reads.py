"""Finds computations that read outside of a tensor, of which ``tvm.lower`` warns."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from tilewright import tir
from tilewright.ir.iter_var import Reduce
from tilewright.ir.memory import ProducerLoad
from tilewright.ir.prim_expr import And, IntImm, Or, PrimExpr, Select, Var
from tilewright.ir.prim_functor import ExprVisitor
from tilewright.te.operation import ComputeOp
from tilewright.te.schedule import Schedule
from tilewright.tir.visitor import post_order_visit, substitute

_MOST_VARIABLES = 6
"""Of an index: it is looked at where each is at either end of its range."""


def warn_of_reads_outside(schedule: Schedule) -> None:
    """Warn of each read that surely lies outside of its tensor, with an index that does.

    Code under a condition is not inspected.
    """
    for stage in schedule.stages:
        if isinstance(stage.origin_op, ComputeOp):
            for text in reads_outside(stage.origin_op):
                warnings.warn(text, RuntimeWarning, stacklevel=3)


def reads_outside(op: ComputeOp) -> Iterator[str]:
    """Yield a message for each tensor that ``op`` reads outside of."""
    ends: dict[PrimExpr, tuple[int, int]] = {}
    for axis in (*op.axis, *op.reduce_axis):
        if axis.dom is not None and isinstance(axis.dom.min, IntImm) and isinstance(axis.dom.extent, IntImm):
            ends[axis.var] = int(axis.dom.min), int(axis.dom.min) + int(axis.dom.extent) - 1
    if any(last < first for first, last in ends.values()):
        return  # nothing is read
    reads = _Reads()
    for body in op.body:
        reads.visit_expr(body)
    for load in dict.fromkeys(reads.found):
        for dimension, (index, extent) in enumerate(zip(load.indices, load.producer.shape, strict=True)):
            place = _place_outside(index, int(extent), ends) if isinstance(extent, IntImm) else None
            if place is not None:
                yield (
                    f"{op.name} reads outside of {load.producer.name}: {load} where {place}, and dimension {dimension} "
                    f"has {extent}. Nothing checks it when the kernel runs: guard it with te.if_then_else, or "
                    "compute fewer elements"
                )
                break


def _place_outside(index: PrimExpr, extent: int, ends: Mapping[PrimExpr, tuple[int, int]]) -> str | None:
    """Where an index is not below ``extent``, or negative, in words; None where no such place is found."""
    if isinstance(index, IntImm):
        return None if 0 <= int(index) < extent else f"the index is {index}"
    if index in ends:  # most are this
        return None if ends[index][1] < extent else f"{index} is {ends[index][1]}"
    found: dict[PrimExpr, None] = {}
    post_order_visit(index, lambda e: found.setdefault(e) if isinstance(e, (Var, ProducerLoad, tir.Call)) else None)
    if len(found) > _MOST_VARIABLES or not all(e in ends for e in found):
        return None
    for place in itertools.product(*(ends[var] for var in found)):
        value = substitute(index, {v: IntImm(v.dtype, n) for v, n in zip(found, place, strict=True)})
        if isinstance(value, IntImm) and not 0 <= int(value) < extent:
            names = " and ".join(f"{v} is {n}" for v, n in zip(found, place, strict=True))
            return f"{names} ({value})"
    return None


class _Reads(ExprVisitor):
    """Collects the reads that no condition guards."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[ProducerLoad] = []

    def visit_expr(self, expr: PrimExpr) -> Any:
        if isinstance(expr, ProducerLoad):
            self.found.append(expr)
        guarded = isinstance(expr, (Select, And, Or)) or (
            isinstance(expr, tir.Call) and getattr(expr.op, "name", expr.op) == "tir.if_then_else"
        )
        if isinstance(expr, Reduce):
            guarded = not (isinstance(expr.condition, IntImm) and int(expr.condition))
        if not guarded:
            super().visit_expr(expr)
