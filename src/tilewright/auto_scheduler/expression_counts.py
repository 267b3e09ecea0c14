"""Operation counts, by kind, of one evaluation of a computation's element."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.prim_expr import (
    Add,
    And,
    Call,
    CompareExpr,
    Div,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Select,
    Sub,
)
from tilewright.te.operation import ComputeOp, Operation, sub_expressions
from tilewright.tir.expr import ProducerLoad, Reduce

COUNTED = (
    "float_mad", "float_addsub", "float_mul", "float_divmod", "float_cmp", "float_mathfunc", "float_otherfunc",
    "int_mad", "int_addsub", "int_mul", "int_divmod", "int_cmp", "int_mathfunc", "int_otherfunc", "bool_op",
    "select_op",
)  # fmt: skip

_INTEGER = 7  # where the integer counts begin
_KINDS: tuple[tuple[tuple[type, ...], int], ...] = (
    ((Add, Sub), 1),
    ((Mul,), 2),
    ((Div, Mod, FloorDiv, FloorMod), 3),
    ((Max, Min, CompareExpr), 4),
)

Counts = np.ndarray[Any, np.dtype[np.float64]]


class ExpressionCounts:
    """Counts of the operations of a computation, by their numbers."""

    def __init__(self, ops: Sequence[Operation], outputs: Iterable[Operation]) -> None:
        self._ops = ops
        self._number = {op: i for i, op in enumerate(ops)}
        self.outputs = frozenset(outputs)
        self._known: dict[tuple[int, frozenset[int]], list[float]] = {}

    def of(self, op: int, inlined: frozenset[int]) -> list[float]:
        """Counts of one element, with those of inlined operations."""
        key = op, inlined
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = [float(c) for c in self._count(op, inlined)]
        return found

    def of_start(self, op: int) -> list[float]:
        """Counts of setting an element of a reduction to its start: none."""
        return [0.0] * len(COUNTED)

    def _count(self, number: int, inlined: frozenset[int]) -> Counts:
        op = self._ops[number]
        if not isinstance(op, ComputeOp):
            return np.zeros(len(COUNTED))
        body = op.body[0]
        if not isinstance(body, Reduce):
            return self._tree(op.body, inlined)
        return self._tree(body.source, inlined) + self._tree(body.combiner.result, inlined)

    def _tree(self, roots: Sequence[PrimExpr], inlined: frozenset[int]) -> Counts:
        """Counts below ``roots``, as if nothing were shared."""
        counts: dict[PrimExpr, Counts] = {}
        for expr in sub_expressions(roots):
            own = _own(expr)
            for child in _children(expr):
                own = own + counts[child]
            if isinstance(expr, ProducerLoad) and self._number.get(expr.producer.op, -1) in inlined:
                own = own + np.asarray(self.of(self._number[expr.producer.op], inlined))
            counts[expr] = own
        return sum((counts[r] for r in roots), np.zeros(len(COUNTED)))


def _children(expr: PrimExpr) -> list[PrimExpr]:
    found: list[PrimExpr] = []
    for _, value in expr.field_values():
        values = value if isinstance(value, tuple) else (value,)
        found += [v for v in values if isinstance(v, PrimExpr)]
    return found


def _own(expr: PrimExpr) -> Counts:
    counts = np.zeros(len(COUNTED))
    if isinstance(expr, (And, Or, Not)):
        counts[14] = 1
    elif isinstance(expr, Select):
        counts[15] = 1
    elif isinstance(expr, Call):
        counts[5 + (0 if "float" in expr.dtype else _INTEGER)] = 1
    else:
        for kinds, place in _KINDS:
            if isinstance(expr, kinds):
                operand = getattr(expr, "a", expr)
                counts[place + (0 if "float" in operand.dtype else _INTEGER)] = 1
    return counts
