"""Recurrent networks of integers, to the bit as TensorFlow Lite's kernels compute them: states are numbers of 16 bits.

A product with weights is a sum of 32 bits. ``scaled`` multiplies it by a factor of 31 bits, and rounds twice.
Sigmoid and tanh are tables over all numbers of 16 bits (``fixed_point.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.tflite.context import OperatorContext, typed
from tilewright.relay.frontend.tflite.fixed_point import sigmoid_table, tanh_table
from tilewright.relay.frontend.tflite.integer_norm import normalized
from tilewright.relay.frontend.tflite.model import Tensor

_GATE = 2.0**-12  # the step of a gate before its activation
_VARIANCE = 10000  # times a norm's scale: the variance of rows of equal numbers
_INT16 = (-32768.0, 32767.0)
_INT8 = (-128.0, 127.0)


def scaled(value: RelayExpr, factor: float) -> RelayExpr:
    """Return int32 numbers times a factor, rounded as TensorFlow Lite's MultiplyByQuantizedMultiplier does."""
    part, exponent = math.frexp(factor)
    whole = round(part * 2**31)
    if whole == 2**31:
        whole, exponent = whole // 2, exponent + 1
    if exponent < -31:
        return relay_op.zeros_like(value)
    wide = relay_op.cast(value, "int64")
    wide = relay_op.left_shift(wide, _int64(exponent)) if exponent > 0 else wide
    # The sum is 2^30 for what is not negative, 1 - 2^30 for the rest, and the quotient is cut: halves go up.
    high = relay_op.right_shift(relay_op.add(relay_op.multiply(wide, _int64(whole)), _int64(1 << 30)), _int64(31))
    return relay_op.cast(_halved(high, max(-exponent, 0), "int64"), "int32")


def _halved(value: RelayExpr, times: int, dtype: str = "int32") -> RelayExpr:
    """Return integers divided by a power of two, rounded to the nearest, halves away from zero."""
    if not times:
        return value
    nudge = relay_op.add(const(1 << (times - 1), dtype), _sign(value, dtype))
    return relay_op.right_shift(relay_op.add(value, nudge), const(times, dtype))


def _sign(value: RelayExpr, dtype: str) -> RelayExpr:
    """Return -1 for what is below zero, 0 for the rest."""
    return relay_op.negative(relay_op.cast(relay_op.less(value, const(0, dtype)), dtype))


def _int64(value: int) -> RelayExpr:
    return const(value, "int64")


def _narrow(value: RelayExpr, bounds: tuple[float, float]) -> RelayExpr:
    return relay_op.clip(value, *bounds)


def _scale(ctx: OperatorContext, tensor: Tensor, what: str) -> float:
    if tensor.scale is None or tensor.is_per_axis:
        ctx.fail(f"{what}, {tensor.name!r}, must have one scale")
    return float(tensor.scale[0])


def _zero(tensor: Tensor) -> int:
    return int(tensor.zero.reshape(-1)[0])


@dataclass(frozen=True)
class _Product:
    """The sums of integers times a constant matrix and a bias, int32; ``factor`` is what a step of them counts."""

    ctx: OperatorContext
    weight: int
    bias: int | None
    zero: int
    factor: float

    def __call__(self, data: RelayExpr) -> RelayExpr:
        ctx = self.ctx
        matrix = ctx.constant(self.weight, "its weight").astype("int64")
        start = -self.zero * matrix.sum(1)
        if self.bias is not None and ctx.has(self.bias):
            start = start + ctx.constant(self.bias, "its bias").astype("int64")
        weight = ctx.weight(self.weight, lambda array: array)
        sums = relay_op.nn.dense(data, weight, units=matrix.shape[0], out_dtype="int32")
        return scaled(typed(relay_op.add(sums, const(start.astype("int32")))), self.factor)


# ------------------------------------------------------------------------------------------- LSTM


class IntegerCell:
    """An LSTM of int8 data, int8 weights, an int16 cell and int16 gates; states are int8 and int16."""

    def __init__(self, ctx: OperatorContext) -> None:
        if ctx.tensor(0).dtype != "int8" or ctx.tensor(19).dtype != "int16":
            ctx.unsupported(f"a recurrent network of {ctx.tensor(0).dtype} with a cell of {ctx.tensor(19).dtype}")
        self.ctx = ctx
        self.normalizes = ctx.has(21)
        self.data, self.state, self.cell = ctx.tensor(0), ctx.tensor(18), ctx.tensor(19)
        self.exponent = self._power_of_two()

    def _power_of_two(self) -> int:
        exponent = math.log2(_scale(self.ctx, self.cell, "its cell"))
        if exponent != round(exponent) or not -15 <= exponent <= -9:
            self.ctx.fail(f"the scale of its cell, {self.cell.name!r}, must be a power of two from 2^-15 to 2^-9")
        return round(exponent)

    def step(self, data: RelayExpr, states: list[RelayExpr]) -> list[RelayExpr]:
        """Return the output and the cell after a step."""
        ctx = self.ctx
        output, cell = states
        forget = _at(sigmoid_table(), self._gate(1, data, output, cell))
        candidate = _at(tanh_table(3), self._gate(2, data, output, None))
        if ctx.has(1):
            take = _at(sigmoid_table(), self._gate(0, data, output, cell))
        else:
            take = relay_op.subtract(const(32767, "int32"), forget)
        kept = _halved(relay_op.multiply(forget, _wide(cell)), 15)
        added = _halved(relay_op.multiply(take, candidate), 30 + self.exponent)
        total = _narrow(relay_op.add(kept, _narrow(added, _INT16)), _INT16)
        clip = float(ctx.option("cell_clip"))
        if clip > 0:
            limit = float(min(max(clip / 2.0**self.exponent, _INT16[0]), _INT16[1]) // 1)
            total = relay_op.clip(total, -limit, limit)
        opened = _at(sigmoid_table(), self._gate(3, data, output, total))
        hidden = relay_op.multiply(opened, _at(tanh_table(15 + self.exponent), total))
        return [self._output(hidden), relay_op.cast(total, "int16")]

    def _gate(self, which: int, data: RelayExpr, output: RelayExpr, cell: RelayExpr | None) -> RelayExpr:
        """Return a gate before its activation, numbers of 16 bits in steps of 2^-12."""
        ctx = self.ctx
        step = _scale(ctx, ctx.intermediate(which), "a gate before its norm") if self.normalizes else _GATE
        total = self._product(1 + which, None if self.normalizes else 12 + which, self.data, step)(data)
        total = relay_op.add(_narrow(total, _INT16), self._product(5 + which, None, self.state, step)(output))
        total = _narrow(total, _INT16)
        peephole = 9 + (0, 1, 0, 2)[which]
        if cell is not None and ctx.has(peephole):
            factor = 2.0**self.exponent * _scale(ctx, ctx.tensor(peephole), "a peephole's weight") / step
            seen = relay_op.multiply(_wide(cell), _wide(ctx.plain(peephole)))
            total = _narrow(relay_op.add(total, scaled(seen, factor)), _INT16)
        return self._normalized(which, total) if self.normalizes else total

    def _normalized(self, which: int, total: RelayExpr) -> RelayExpr:
        """Return a gate after layer normalization, in steps of 2^-12."""
        ctx = self.ctx
        scale = _scale(ctx, ctx.tensor(20 + which), "a norm's weight")
        weight = ctx.constant(20 + which, "a norm's weight")
        bias = ctx.constant(12 + which, "a gate's bias")
        made = normalized(typed(total), weight, bias, max(1, int(_VARIANCE * scale)))
        return _narrow(scaled(made, scale / _GATE), _INT16)

    def _product(self, weight: int, bias: int | None, data: Tensor, step: float) -> _Product:
        ctx = self.ctx
        factor = _scale(ctx, data, "its data") * _scale(ctx, ctx.tensor(weight), "a weight") / step
        return _Product(ctx, weight, bias, _zero(data), factor)

    def _output(self, hidden: RelayExpr) -> RelayExpr:
        """Return the output of a step, int8, of the product of the output gate and the cell's tanh."""
        ctx = self.ctx
        between = ctx.intermediate(4)
        scale = _scale(ctx, between, "what its projection reads")
        steps = relay_op.add(scaled(hidden, 2.0**-30 / scale), const(_zero(between), "int32"))
        made = relay_op.cast(_narrow(steps, _INT8), "int8")
        if not ctx.has(16):
            return made
        factor = scale * _scale(ctx, ctx.tensor(16), "its projection") / _scale(ctx, self.state, "its state")
        total = _Product(ctx, 16, 17, _zero(between), factor)(made)
        total = _narrow(relay_op.add(total, const(_zero(self.state), "int32")), _INT8)
        clip = float(ctx.option("projection_clip"))
        if clip > 0:
            limit = float(min(clip / _scale(ctx, self.state, "its state"), _INT8[1]) // 1)
            total = relay_op.clip(total, -limit, limit)
        return relay_op.cast(total, "int8")


def _wide(value: RelayExpr) -> RelayExpr:
    return typed(relay_op.cast(value, "int32"))


def _at(table: np.ndarray[Any, Any], value: RelayExpr) -> RelayExpr:
    """Return the entries of a table over all numbers of 16 bits."""
    place = relay_op.add(value, const(32768, "int32"))
    return _wide(relay_op.take(const(table), place, mode="fast"))


# ------------------------------------------------------------------------------------------- SVDF


def integer_memory(ctx: OperatorContext) -> tuple[Callable[[RelayExpr], RelayExpr], Callable[..., RelayExpr]]:
    """Return what an SVDF remembers of data, int16, and the result of the sums over its memory, int8."""
    state, out = ctx.tensor(4), ctx.out()
    kinds = (ctx.tensor(0).dtype, state.dtype, ctx.tensor(2).dtype, out.dtype)
    if kinds != ("int8", "int16", "int16", "int8"):
        ctx.unsupported(f"an SVDF of {kinds[0]} with a memory of {kinds[1]}, weights of {kinds[2]}, giving {kinds[3]}")
    memory = _scale(ctx, state, "its memory")
    features = _scale(ctx, ctx.tensor(0), "its data") * _scale(ctx, ctx.tensor(1), "its weight") / memory
    times = memory * _scale(ctx, ctx.tensor(2), "its weight over time") / _scale(ctx, out, "its result")

    def remembered(data: RelayExpr) -> RelayExpr:
        sums = _Product(ctx, 1, None, _zero(ctx.tensor(0)), features)(data)
        return relay_op.cast(_narrow(sums, _INT16), "int16")

    def finished(sums: RelayExpr) -> RelayExpr:
        steps = relay_op.add(scaled(sums, times), const(_zero(out), "int32"))
        return relay_op.cast(_narrow(steps, _INT8), "int8")

    return remembered, finished


__all__ = ["IntegerCell", "integer_memory", "scaled"]
