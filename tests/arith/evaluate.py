"""Evaluates scalar and vector expressions with numpy: the oracle of the simplifier's tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.tir import expr as e

_BINARY = {
    e.Add: np.add, e.Sub: np.subtract, e.Mul: np.multiply, e.FloorDiv: np.floor_divide, e.FloorMod: np.mod,
    e.Min: np.minimum, e.Max: np.maximum, e.EQ: np.equal, e.NE: np.not_equal, e.LT: np.less, e.LE: np.less_equal,
    e.GT: np.greater, e.GE: np.greater_equal, e.And: np.logical_and, e.Or: np.logical_or, e.Mod: np.fmod,
}  # fmt: skip


def numpy_type(dtype: str) -> np.dtype:
    """The numpy type of one lane."""
    return np.dtype(dt.element(dtype))


def evaluate(x: e.PrimExpr, values: Mapping[e.Var, int]):
    """The value of ``x``: a numpy scalar, or an array of its lanes."""
    (value,) = evaluate_all(x, [values])
    return value if dt.lanes(x.dtype) > 1 else value[0]


def evaluate_all(x: e.PrimExpr, points: Sequence[Mapping[e.Var, int]]) -> np.ndarray[Any, Any]:
    """The values of ``x`` at all points, which give the same variables: (points, lanes)."""
    columns = {var: np.array([[point[var]] for point in points]) for var in points[0]}
    with np.errstate(all="ignore"):
        return np.broadcast_to(_evaluate(x, columns), (len(points), dt.lanes(x.dtype)))


def mapped(by: Mapping[e.Var, e.PrimExpr], points: Sequence[Mapping[e.Var, int]]) -> list[dict[e.Var, int]]:
    """The values of scalar expressions at all points, as points of the variables that stand for them."""
    if not points:
        return []
    columns = [evaluate_all(x, points)[:, 0].tolist() for x in by.values()]
    return [dict(zip(by, row, strict=True)) for row in zip(*columns, strict=True)] if by else [{} for _ in points]


def holding(conditions: Sequence[e.PrimExpr], points: Sequence[Mapping[e.Var, int]]) -> np.ndarray[Any, Any]:
    """Whether all conditions hold, for each point."""
    held = np.ones(len(points), bool)
    for condition in conditions if points else ():
        held &= evaluate_all(condition, points)[:, 0]
    return held


def _evaluate(x, values):
    """The values of ``x`` where a variable has a column of values: (points or 1, lanes)."""
    kind = numpy_type(x.dtype)
    match x:
        case e.Var():
            return values[x].astype(kind)
        case e.IntImm() | e.FloatImm():
            return np.full((1, 1), x.value, kind)
        case e.Div():
            a, b = _evaluate(x.a, values), _evaluate(x.b, values)
            if dt.is_float(x.dtype):
                return (a / b).astype(kind)
            quotient = np.abs(a) // np.abs(b)
            return np.where((a < 0) == (b < 0), quotient, -quotient).astype(kind)
        case e.BinaryExpr():
            return _BINARY[type(x)](_evaluate(x.a, values), _evaluate(x.b, values)).astype(kind)
        case e.Not():
            return np.logical_not(_evaluate(x.a, values))
        case e.Select():
            parts = [_evaluate(p, values) for p in (x.condition, x.true_value, x.false_value)]
            return np.where(*parts).astype(kind)
        case e.Cast():
            return _evaluate(x.value, values).astype(kind)
        case e.Ramp():
            steps = np.arange(x.lanes, dtype=kind)
            return (_evaluate(x.base, values) + _evaluate(x.stride, values) * steps).astype(kind)
        case e.Broadcast():
            return np.tile(_evaluate(x.value, values), (1, x.lanes))
        case e.Let():
            return _evaluate(x.body, {**values, x.var: _evaluate(x.value, values)})
        case e.Call() if x.op.name == "tir.likely":
            return _evaluate(x.args[0], values)
        case e.Call() if x.op.name == "tir.if_then_else":
            return np.where(*(_evaluate(part, values) for part in x.args)).astype(kind)
        case e.Call() if x.op.name == "tir.shift_right":
            return _evaluate(x.args[0], values) >> _evaluate(x.args[1], values)
        case e.Call() if x.op.name == "tir.bitwise_and":
            return _evaluate(x.args[0], values) & _evaluate(x.args[1], values)
    raise AssertionError(f"{type(x).__name__} has no evaluation")
