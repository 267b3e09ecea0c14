"""SinkReshape: move a reshape of a convolution's or dense layer's result below the element-wise operators after it.

Before::

    %0 = nn.dense(%x, %w, units=768);
    %1 = reshape(%0, newshape=[1, 128, 768]);
    %2 = add(%1, %bias);
    add(%2, %residual)                                // %residual: Tensor[(1, 128, 768)]

after::

    %0 = nn.dense(%x, %w, units=768);
    %1 = add(%0, %bias);
    %2 = reshape(%residual, newshape=[128, 768]);
    %3 = add(%1, %2);
    reshape(%3, newshape=[1, 128, 768])

A reshape costs nothing by itself, but as it is injective, not element-wise, it would keep the operators after it
from fusing into the kernel that computes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.views import is_reshape
from tilewright.relay.transform.common import known_dims, open_children, pattern_of, typed_function_pass
from tilewright.relay.visitor import ExprMutator

Dims = tuple[Any, ...]  # numbers, and expressions over named dimensions


def _is_one(extent: Any) -> bool:
    return isinstance(extent, int) and extent == 1


class _Sinker(ExprMutator):
    """Rewriter; ``inner[e]`` is the argument of the reshape that ``e`` became, with its shape and the reshape.

    ``tails`` are the convolutions and dense layers, and the operators that fuse into them without a reshape in between.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inner: dict[RelayExpr, tuple[RelayExpr, Dims, Callable[[RelayExpr], RelayExpr]]] = {}
        self.tails: set[RelayExpr] = set()

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        pattern = pattern_of(expr)
        if pattern == OpPattern.OUT_ELEMWISE_FUSABLE or (
            pattern <= OpPattern.BROADCAST
            and any(a in self.tails and known_dims(a) == known_dims(expr) for a in expr.args)
        ):
            self.tails.add(expr)
        if is_reshape(expr):
            self._note_reshape(expr)
        elif pattern <= OpPattern.BROADCAST and isinstance(expr.checked_type, TensorType):
            sunk = self._sink(expr)
            if sunk is not None:
                return sunk
        return super().visit_call(expr)

    def _note_reshape(self, expr: Call) -> None:
        source = expr.args[0]
        shape = known_dims(source)
        if source in self.inner:
            value, shape, before = self.inner[source]
            self.inner[expr] = (value, shape, lambda e: self._again(expr, before(e)))
        elif source in self.tails and shape:
            self.inner[expr] = (self.visit(source), shape, lambda e: self._again(expr, e))

    def _again(self, reshape: Call, value: RelayExpr) -> RelayExpr:
        """Apply ``reshape`` to another value of that shape; where known, to its numbers."""
        shape = known_dims(reshape)
        if shape is not None and all(isinstance(extent, int) for extent in shape):
            return relay_op.reshape(value, newshape=shape)
        args = [value, *map(self.visit, reshape.args[1:])]
        return Call(reshape.op, args, reshape.attrs, reshape.type_args, reshape.span)

    def _sink(self, expr: Call) -> RelayExpr | None:
        """Apply the operator before the reshape of one of its operands, if all its operands allow it."""
        result = known_dims(expr)
        for arg in expr.args:
            if arg not in self.inner or result is None or known_dims(arg) != result:
                continue
            _, inner_shape, outwards = self.inner[arg]
            operands = [self._operand(a, inner_shape, result) for a in expr.args]
            known = [o for o in operands if o is not None]
            if len(known) != len(operands):
                continue
            value = Call(expr.op, known, expr.attrs, expr.type_args, expr.span)
            self.inner[expr] = (value, inner_shape, outwards)
            numbers = all(isinstance(extent, int) for extent in result)
            return relay_op.reshape(value, newshape=result) if numbers else outwards(value)
        return None

    def _operand(self, arg: RelayExpr, inner: Dims, outer: Dims) -> RelayExpr | None:
        """Return an operand of an operation on ``outer`` as one on ``inner``; None when its broadcast does not
        carry over.
        """
        if arg in self.inner and self.inner[arg][1] == inner and known_dims(arg) == outer:
            return self.inner[arg][0]
        shape = known_dims(arg)
        if shape is None:
            return None
        if all(_is_one(extent) for extent in shape):
            return relay_op.reshape(self.visit(arg), newshape=()) if shape else self.visit(arg)
        if shape == outer:
            codes = [extent if isinstance(extent, int) else -1 for extent in inner]
            return relay_op.reshape(self.visit(arg), newshape=codes) if codes.count(-1) <= 1 else None
        vector = [extent for extent in shape if not _is_one(extent)]
        if len(vector) == 1 and isinstance(vector[0], int) and shape[-1] == vector[0] == outer[-1] == inner[-1]:
            return self.visit(arg) if len(shape) == 1 else relay_op.reshape(self.visit(arg), newshape=(vector[0],))
        return None


def SinkReshape() -> Pass:
    """Move reshapes below element-wise operators, so that those fuse with the operator above the reshape."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Sinker().visit(func)

    return typed_function_pass(run, "SinkReshape", 3)
