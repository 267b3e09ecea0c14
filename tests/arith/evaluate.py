"""Evaluates scalar and vector expressions with numpy: the oracle of the simplifier's tests."""

from __future__ import annotations

from collections.abc import Mapping

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
    with np.errstate(all="ignore"):
        return _evaluate(x, values)


def _evaluate(x, values):
    kind = numpy_type(x.dtype)
    match x:
        case e.Var():
            return kind.type(values[x])
        case e.IntImm() | e.FloatImm():
            return kind.type(x.value)
        case e.Div():
            a, b = _evaluate(x.a, values), _evaluate(x.b, values)
            if dt.is_float(x.dtype):
                return (a / b).astype(kind)
            quotient = np.abs(a) // np.abs(b)
            return np.where((a < 0) == (b < 0), quotient, -quotient).astype(kind)[()]
        case e.BinaryExpr():
            result = _BINARY[type(x)](_evaluate(x.a, values), _evaluate(x.b, values))
            return result.astype(kind)[()]
        case e.Not():
            return np.logical_not(_evaluate(x.a, values))
        case e.Select():
            parts = [_evaluate(p, values) for p in (x.condition, x.true_value, x.false_value)]
            return np.where(*parts)[()].astype(kind)
        case e.Cast():
            return _evaluate(x.value, values).astype(kind)
        case e.Ramp():
            steps = np.arange(x.lanes, dtype=kind)
            return (_evaluate(x.base, values) + _evaluate(x.stride, values) * steps).astype(kind)
        case e.Broadcast():
            value = np.atleast_1d(_evaluate(x.value, values))
            return np.tile(value, x.lanes)
        case e.Let():
            return _evaluate(x.body, {**values, x.var: _evaluate(x.value, values)})
        case e.Call() if x.op.name == "tir.likely":
            return _evaluate(x.args[0], values)
        case e.Call() if x.op.name == "tir.if_then_else":
            cond = _evaluate(x.args[0], values)
            return _evaluate(x.args[1] if cond else x.args[2], values)
        case e.Call() if x.op.name == "tir.shift_right":
            return _evaluate(x.args[0], values) >> _evaluate(x.args[1], values)
        case e.Call() if x.op.name == "tir.bitwise_and":
            return _evaluate(x.args[0], values) & _evaluate(x.args[1], values)
    raise AssertionError(f"{type(x).__name__} has no evaluation")
