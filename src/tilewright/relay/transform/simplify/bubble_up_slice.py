"""BubbleUpSlice: compute only the part of a tensor that is read.

Before, where only the first of 197 rows is used::

    %0 = nn.dense(%x, %w, units=768);                 // %x: Tensor[(197, 3072), float32]
    %1 = nn.layer_norm(%0, %gamma, %beta);
    take(%1, 0, axis=0)

after::

    %0 = strided_slice(%x, begin=[0], end=[1], axes=[0]);
    %1 = nn.dense(%0, %w, units=768);
    %2 = nn.layer_norm(%1, %gamma, %beta);
    reshape(%2, newshape=[768])

A classifier reads one token of a transformer's last layer, and a language model that processes a prompt reads the last
one: most of that layer need not be computed. A slice moves up through an operator when all users of the operator's
result take the same slice, and where that saves more than moving or mapping elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.slice_rules import Cut, Part
from tilewright.relay.op.transform.indexing import Take
from tilewright.relay.op.transform.slicing import StridedSlice, slices_of
from tilewright.relay.transform.common import (
    call_of,
    concrete_shape,
    open_children,
    pattern_of,
    scalar_constant,
    typed_function_pass,
)
from tilewright.relay.transform.parts import part_of
from tilewright.relay.visitor import ExprMutator, post_order


def _cut_of_slice(call: Call) -> Cut | None:
    """Return the cut of its operand that a slice along one dimension, or taking one element of it, reads."""
    shape = concrete_shape(call.args[0]) if call.args else None
    attrs: Any = call.attrs
    if shape is None:
        return None
    if call_of(call, StridedSlice.op) is not None:
        parts = [part.indices(extent) for part, extent in zip(slices_of(shape, attrs), shape, strict=True)]
        cuts = [Cut(i, p[0], p[1]) for i, (p, n) in enumerate(zip(parts, shape, strict=True)) if p != (0, n, 1)]
        return cuts[0] if len(cuts) == 1 and parts[cuts[0].axis][2] == 1 and cuts[0].begin < cuts[0].end else None
    if call_of(call, Take.op) is not None and attrs.axis is not None and not attrs.batch_dims:
        index, axis = scalar_constant(call.args[1]), attrs.axis % len(shape)
        if index is not None and concrete_shape(call.args[1]) == () and 0 <= index < shape[axis] != 1:
            return Cut(axis, int(index), int(index) + 1)
    return None


def _find_parts(func: Function) -> dict[RelayExpr, Part]:
    """Return the calls of which only a part is read and can be computed alone, with how."""
    order = post_order(func, open_children)
    wanted: dict[RelayExpr, list[Cut | None]] = {}
    parts: dict[RelayExpr, Part] = {}
    for node in reversed(order):
        wants = set(wanted.get(node, [None]))
        cut = wants.pop() if len(wants) == 1 else None
        part = part_of(node, cut) if isinstance(node, Call) and cut is not None else None
        needs: list[Cut | None] = []
        if part is not None:
            parts[node] = part
            needs = part.operands
        elif isinstance(node, Call):
            needs = [_cut_of_slice(node)]
        children = node.args if isinstance(node, Call) else open_children(node)
        for child, need in zip_longest(children, needs):
            if child is not None:
                wanted.setdefault(child, []).append(need)
    return _worthwhile(order, parts)


def _worthwhile(order: Sequence[RelayExpr], parts: dict[RelayExpr, Part]) -> dict[RelayExpr, Part]:
    """Return the parts that save an operator which does more than move or map elements."""
    kept: dict[RelayExpr, Part] = {}
    for node in order:
        if node in parts and isinstance(node, Call):
            if pattern_of(node) > OpPattern.INJECTIVE or any(a in kept for a in node.args):
                kept[node] = parts[node]
    return kept


class _Slicer(ExprMutator):
    def __init__(self, parts: dict[RelayExpr, Part]) -> None:
        super().__init__()
        self.parts = parts

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        part = self.parts.get(expr)
        if part is not None:
            args = [self._part(a, c) for a, c in zip(expr.args, part.operands, strict=True)]
            return Call(expr.op, args, part.attrs, (), expr.span)
        if expr.args and expr.args[0] in self.parts:  # a slice of what is computed in part now
            shape = concrete_shape(expr)
            assert shape is not None
            return relay_op.reshape(self.visit(expr.args[0]), newshape=shape)
        return super().visit_call(expr)

    def _part(self, expr: RelayExpr, cut: Cut | None) -> RelayExpr:
        if cut is None or expr in self.parts:
            return self.visit(expr)
        return relay_op.strided_slice(self.visit(expr), begin=(cut.begin,), end=(cut.end,), axes=(cut.axis,))


def BubbleUpSlice() -> Pass:
    """Move slices up through the operators that compute the dropped elements."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        parts = _find_parts(func)
        return _Slicer(parts).visit(func) if parts else func

    return typed_function_pass(run, "BubbleUpSlice", 3)
