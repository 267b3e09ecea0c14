"""Runs TIR on numpy arrays, one scalar operation at a time: the oracle of the pass tests.

Reads and writes outside of an array, and reads of memory that was never written, are errors.
"""

from __future__ import annotations

import math

import numpy as np
from tests.arith.evaluate import _BINARY, numpy_type

from tilewright.ir import dtype as dt
from tilewright.tir import expr as e
from tilewright.tir import stmt as s
from tilewright.tir.function import PrimFunc

_MATH = {"tir.exp": np.exp, "tir.sqrt": np.sqrt, "tir.floor": np.floor, "tir.tanh": np.tanh, "tir.fabs": np.abs}


class Interpreter:
    """Executes a function; ``memory`` maps buffer variables to (flat array, written mask)."""

    def __init__(self) -> None:
        self.memory: dict[e.Var, np.ndarray] = {}
        self.written: dict[e.Var, np.ndarray] = {}
        self.values: dict[e.Var, object] = {}
        self.buffers: dict[object, tuple] = {}
        self.stores = 0

    def declare(self, var: e.Var, size: int, dtype: str, data: np.ndarray | None = None) -> None:
        kind = np.int8 if dt.is_bool(dtype) else numpy_type(dtype)
        size *= dt.lanes(dtype)
        self.memory[var] = np.zeros(size, kind) if data is None else data
        self.written[var] = np.full(size, data is not None)

    def expr(self, x):
        with np.errstate(all="ignore"):
            return self._expr(x)

    def _expr(self, x):
        kind = numpy_type(x.dtype) if x.dtype != "handle" else None
        match x:
            case e.Var():
                return self.values[x]
            case e.IntImm() | e.FloatImm():
                return kind.type(x.value)
            case e.Div():
                a, b = self._expr(x.a), self._expr(x.b)
                if dt.is_float(x.dtype):
                    return (a / b).astype(kind)
                quotient = np.abs(a) // np.abs(b)
                return np.where((a < 0) == (b < 0), quotient, -quotient).astype(kind)[()]
            case e.And():
                return np.logical_and(self._expr(x.a), self._expr(x.b))
            case e.BinaryExpr():
                return _BINARY[type(x)](self._expr(x.a), self._expr(x.b)).astype(kind)[()]
            case e.Not():
                return np.logical_not(self._expr(x.a))
            case e.Select():
                return np.where(*[self._expr(p) for p in (x.condition, x.true_value, x.false_value)])[()].astype(kind)
            case e.Cast():
                return np.asarray(self._expr(x.value)).astype(kind)[()]
            case e.Ramp():
                steps = np.arange(x.lanes, dtype=kind)
                return (self._expr(x.base) + self._expr(x.stride) * steps).astype(kind)
            case e.Broadcast():
                return np.tile(np.atleast_1d(self._expr(x.value)), x.lanes)
            case e.Let():
                self.values[x.var] = self._expr(x.value)
                return self._expr(x.body)
            case e.Load():
                return self._load(x.buffer_var, self._expr(x.index), self._expr(x.predicate), kind)
            case e.BufferLoad():
                var, index = self._flat(x.buffer, [self._expr(i) for i in x.indices])
                value = self._load(var, index, True, None)
                return value.astype(kind)
            case e.Call():
                return self._call(x, kind)
        raise AssertionError(type(x).__name__)

    def _call(self, x, kind):
        name = x.op.name
        if name == "tir.likely":
            return self._expr(x.args[0])
        if name == "tir.if_then_else":
            return self._expr(x.args[1] if self._expr(x.args[0]) else x.args[2])
        return _MATH[name](self._expr(x.args[0])).astype(kind)

    def _flat(self, buffer, indices):
        var, lows, strides = self.buffers[buffer]
        return var, sum((i - low) * stride for i, low, stride in zip(indices, lows, strides, strict=True))

    def _check(self, var, index):
        array = self.memory[var]
        if np.any(np.asarray(index) < 0) or np.any(np.asarray(index) >= array.size):
            raise IndexError(f"{var.name}[{index}] of {array.size}")
        return array

    def _load(self, var, index, predicate, kind):
        if not np.all(predicate):
            raise AssertionError("a predicated load")
        array = self._check(var, index)
        if not np.all(self.written[var][index]):
            raise AssertionError(f"{var.name}[{index}] is read before it is written")
        return array[index]

    def _store(self, var, index, value):
        self.stores += 1
        array = self._check(var, index)
        array[index] = value
        self.written[var][index] = True

    def run(self, x):
        match x:
            case s.SeqStmt():
                for item in x.seq:
                    self.run(item)
            case s.For():
                low, extent = int(self.expr(x.min)), int(self.expr(x.extent))
                for i in range(low, low + extent):
                    self.values[x.loop_var] = numpy_type(x.loop_var.dtype).type(i)
                    self.run(x.body)
            case s.While():
                while self.expr(x.condition):
                    self.run(x.body)
            case s.IfThenElse():
                if self.expr(x.condition):
                    self.run(x.then_case)
                elif x.else_case is not None:
                    self.run(x.else_case)
            case s.LetStmt():
                self.values[x.var] = self.expr(x.value)
                self.run(x.body)
            case s.AttrStmt() if x.attr_key == "virtual_thread":
                for i in range(int(self.expr(x.value))):
                    self.values[x.node.var] = np.int32(i)
                    self.run(x.body)
            case s.AttrStmt():
                self.run(x.body)
            case s.AssertStmt():
                assert self.expr(x.condition)
                self.run(x.body)
            case s.Allocate():
                self.declare(x.buffer_var, math.prod(int(self.expr(d)) for d in x.extents), x.dtype)
                self.run(x.body)
            case s.BufferRealize():
                extents = [int(self.expr(r.extent)) for r in x.bounds]
                self.declare(x.buffer.data, math.prod(extents), x.buffer.dtype)
                lows = [int(self.expr(r.min)) for r in x.bounds]
                self.buffers[x.buffer] = (
                    x.buffer.data,
                    lows,
                    [math.prod(extents[i + 1 :]) for i in range(len(extents))],
                )
                self.run(x.body)
            case s.Store():
                assert np.all(self.expr(x.predicate))
                self._store(x.buffer_var, self.expr(x.index), self.expr(x.value))
            case s.BufferStore():
                value = self.expr(x.value)
                self._store(*self._flat(x.buffer, [self.expr(i) for i in x.indices]), value)
            case s.Evaluate():
                pass
            case _:
                raise AssertionError(type(x).__name__)


def run(func: PrimFunc, scalars: dict[e.Var, int] | None = None, **arrays: np.ndarray) -> Interpreter:
    """Run ``func`` on arrays given by buffer name; they are changed in place."""
    machine = Interpreter()
    for var, value in (scalars or {}).items():
        machine.values[var] = np.int32(value)
    for buffer in func.buffer_map.values():
        data = arrays[buffer.name]
        for extent, own in zip(data.shape, buffer.shape, strict=True):
            if isinstance(own, e.Var):
                machine.values[own] = np.int32(extent)
        machine.declare(buffer.data, data.size, buffer.dtype, data.reshape(-1))
        strides = [math.prod(data.shape[i + 1 :]) for i in range(data.ndim)]
        for stride, own in zip(strides, buffer.strides, strict=False):
            if isinstance(own, e.Var):
                machine.values[own] = np.int32(stride)
        machine.buffers[buffer] = (buffer.data, [0] * data.ndim, strides)
    machine.run(func.body)
    return machine
