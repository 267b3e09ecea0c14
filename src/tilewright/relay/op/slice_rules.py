"""Slices of results as slices of the operands: the hook ``slice_operands`` of operators.

A rule takes a call, a cut of its result, and the known shapes of result and operands. It returns the part of each
operand that the cut depends on, or None where it depends on all of them. Element-wise operators need no rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.relay.expr import Call

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """The elements ``begin`` to ``end`` of one dimension and all elements of the others."""

    axis: int
    begin: int
    end: int

    def on(self, axis: int) -> Cut:
        """Return the cut of the same elements along another dimension."""
        return Cut(axis, self.begin, self.end)

    def of(self, shape: Shape) -> Shape:
        """Return the shape of the cut of a tensor of ``shape``."""
        return (*shape[: self.axis], self.end - self.begin, *shape[self.axis + 1 :])


@dataclass(frozen=True)
class Part:
    """The computation of a part of a call's result: parts of its operands (None: the whole operand), and its
    attributes.
    """

    operands: list[Cut | None]
    attrs: Any


Rule = Callable[[Call, Cut, Shape, list[Shape]], Part | None]


def element_wise(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut each operand that is not broadcast along the dimension."""
    parts: list[Cut | None] = []
    for operand in operands:
        axis = cut.axis - len(shape) + len(operand)
        extent = operand[axis] if axis >= 0 else 1
        if extent not in (1, shape[cut.axis]):
            return None
        parts.append(cut.on(axis) if extent != 1 else None)
    return Part(parts, call.attrs) if any(parts) else None


def bias_add(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut the bias where the slice is along its dimension."""
    attrs: Any = call.attrs
    return Part([cut, cut.on(0) if attrs.axis % len(shape) == cut.axis else None], attrs)


def along_others(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut any dimension but the reduced one."""
    attrs: Any = call.attrs
    if attrs.axis % len(shape) == cut.axis:
        return None
    return Part([cut, *(None for _ in operands[1:])], attrs)


def dense(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut rows of the data, which the other operands are multiplied with."""
    return Part([cut, *(None for _ in operands[1:])], call.attrs) if cut.axis < len(shape) - 1 else None


def batch_matmul(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut the batch, rows of the first operand or columns of the second."""
    attrs: Any = call.attrs
    if cut.axis == 1:
        return Part([cut.on(2 if attrs.transpose_a else 1), None], attrs)
    if cut.axis == 2:
        return Part([None, cut.on(1 if attrs.transpose_b else 2)], attrs)
    return Part([cut if operand[0] != 1 else None for operand in operands], attrs)


def attention(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut batch, heads or rows of (batch, rows, heads, width); rows do not depend on one another."""
    if cut.axis != 1:
        return None
    masks = [cut.on(2) if mask[2] != 1 else None for mask in operands[3:]]
    return Part([cut.on(2), None, None, *masks], call.attrs)


def transpose(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut the permuted dimension of the operand."""
    attrs: Any = call.attrs
    axes = attrs.axes or tuple(range(len(shape) - 1, -1, -1))
    return Part([cut.on(int(axes[cut.axis]) % len(shape))], attrs)


def reshape(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part | None:
    """Cut the operand's dimension of the same extent that has as many elements before it."""
    attrs: Any = call.attrs
    (source,) = operands
    before = math.prod(shape[: cut.axis])
    for axis, extent in enumerate(source):
        if extent == shape[cut.axis] != 1 and math.prod(source[:axis]) == before:
            return Part([cut.on(axis)], attrs.replace(newshape=cut.of(shape), allowzero=False))
    return None
