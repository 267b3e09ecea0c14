"""Quantized groups in operators that every target has; ``groups`` defines each of them.

``CanonicalizeOps`` does sums and products of two tensors, and products with constant weights, itself, since their form
depends on the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Tuple, const
from tilewright.relay.op.reduce.reduce import Mean as MeanOp
from tilewright.relay.op.tensor.creation import Where
from tilewright.relay.qnn.byte_pairs import pair_of_bytes
from tilewright.relay.qnn.byte_products import EXACT
from tilewright.relay.qnn.groups import (
    Array,
    Joined,
    Mean,
    Output,
    Pair,
    Quantized,
    Shares,
    Table,
    Windows,
)


class Form(Protocol):
    """How ``CanonicalizeOps`` writes integers for a target."""

    def visit(self, expr: RelayExpr) -> RelayExpr:
        """An expression, rewritten."""

    def integers(self, data: Quantized) -> tuple[RelayExpr, int]:
        """Integers and their zero point, perhaps both of the other type of 8 bits."""

    def whole(self, data: Quantized, dtype: str = "float32") -> RelayExpr:
        """The integers less their zero point."""

    def requantized(self, value: RelayExpr, output: Output) -> RelayExpr:
        """Steps of the result, rounded, with zero point and limits."""

    def rescaled(self, data: Quantized, factor: np.float32, output: Output) -> RelayExpr:
        """The integers, less their zero point, times a factor, in steps of the result."""

    def tabulated(self, data: Quantized, values: Array, output: Output) -> RelayExpr:
        """Look the integers up in a table of values, which begins with that of the least integer."""

    def together(self, parts: Sequence[RelayExpr], build: Callable[[Sequence[RelayExpr]], RelayExpr]) -> RelayExpr:
        """Apply an operator that moves elements, ``build``, to tensors of one type."""


_SMALLEST_TERM = 255  # no difference of two integers of 8 bits is larger


def exact(group: Any, form: Form) -> RelayExpr:
    """Return what a group computes."""
    match group:
        case Table():
            return form.tabulated(group.data, group.values, group.output)
        case Joined():
            return _joined(group, form)
        case Shares():
            return _shares(group, form)
        case _:
            value = _VALUES[type(group)](group, form)
            return form.requantized(relay_op.multiply(value, const(group.multiplier)), group.output)


def _pair(group: Pair, form: Form) -> RelayExpr:
    """Sums of bytes where the target has them, else in float32 where they are exact, else in int32."""
    sums = pair_of_bytes(group, form)
    if sums is not None:
        return relay_op.cast(sums, "float32")
    attrs: Any = group.operator.attrs
    if group.largest_sum < EXACT:
        return Call(group.operator.op, [form.whole(side, "float32") for side in group.data], attrs)
    sums = Call(group.operator.op, [form.whole(side, "int32") for side in group.data], attrs.replace(out_dtype="int32"))
    return relay_op.cast(sums, "float32")


def _mean(group: Mean, form: Form) -> RelayExpr:
    attrs: Any = group.operator.attrs
    keeps = group.operator.op is not MeanOp.op or bool(attrs.keepdims)
    dtype = "float32" if group.count * _SMALLEST_TERM < EXACT else "int32"
    total = relay_op.sum(form.whole(group.data, dtype), axis=list(group.axes), keepdims=keeps)
    return total if dtype == "float32" else relay_op.cast(total, "float32")


def _shares(group: Shares, form: Form) -> RelayExpr:
    tensor = form.integers(group.data)[0]
    below = relay_op.subtract(relay_op.max(tensor, axis=group.axis, keepdims=True), tensor)  # wraps in int8
    powers = relay_op.lookup(relay_op.reinterpret(below, "uint8"), const(group.exponentials))
    total = relay_op.sum(powers, axis=group.axis, keepdims=True)
    share = relay_op.divide(const(group.multiplier), relay_op.cast(total, "float32"))
    return form.requantized(relay_op.multiply(relay_op.cast(powers, "float32"), share), group.output)


def _windows(group: Windows, form: Form) -> RelayExpr:
    return Call(group.operator.op, [form.whole(group.data)], group.operator.attrs)


_VALUES: dict[type, Callable[[Any, Form], RelayExpr]] = {
    Pair: _pair,
    Mean: _mean,
    Windows: _windows,
}


def _joined(group: Joined, form: Form) -> RelayExpr:
    operator = group.operator

    def part(side: Quantized, factor: np.float32) -> RelayExpr:
        if factor == 1 and side.zero == group.output.zero and group.output.is_free:
            return form.visit(side.tensor)
        return form.rescaled(side, factor, group.output)

    def build(parts: Sequence[RelayExpr]) -> RelayExpr:
        if operator.op is Where.op:
            return relay_op.where(form.visit(operator.args[0]), *parts)
        return Call(operator.op, [Tuple(parts)], operator.attrs)

    return form.together([part(*pair) for pair in zip(group.data, group.multipliers, strict=True)], build)


def limited(tensor: RelayExpr, output: Output) -> RelayExpr:
    """Integers within the limits of an activation."""
    if output.is_free:
        return tensor
    clipped = relay_op.clip(relay_op.cast(tensor, "float32"), float(output.low), float(output.high))
    return relay_op.cast(clipped, output.dtype)
