"""The engine of LiftConv1D and LiftConv3D: values of another rank computed as images (N, C, H, W)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay.expr import Call, Tuple
from tilewright.relay.op import layout_rules
from tilewright.relay.op.nn.activation import PRelu
from tilewright.relay.op.nn.bias_add import BiasAdd
from tilewright.relay.transform.common import concrete_shape, open_children
from tilewright.relay.visitor import ExprMutator

Shape = tuple[int, ...]
Rule = Callable[[Call], RelayExpr | None]

FEWEST_CHANNELS = 4  # of a convolution's result; fewer cannot be packed, and vectors along columns are faster
_OF_CHANNELS = (BiasAdd.op, PRelu.op)  # add or multiply by a vector along an axis


class Lifter(ExprMutator):
    """Rewriter of values of rank ``rank``, (N, C, ...), to images; ``lifted[e]`` is the image of ``e``."""

    rank: int

    def __init__(self) -> None:
        super().__init__()
        self.lifted: dict[RelayExpr, RelayExpr] = {}

    def rule(self, op: Op, data: RelayExpr) -> Rule | None:
        """Return the function that lifts calls of the operator ``op`` with the first operand ``data``, unless
        element-wise.

        Its result is an image, or the call's value where that has another rank; None where it cannot lift a call.
        """
        raise NotImplementedError

    def image(self, expr: RelayExpr) -> RelayExpr:
        """Return the lifted form of an expression of rank ``rank``."""
        raise NotImplementedError

    def operand(self, arg: RelayExpr, result: Shape) -> RelayExpr | None:
        """Return the lifted form of an operand that broadcasts to ``result``; None where there is none."""
        raise NotImplementedError

    def lowered(self, value: RelayExpr, shape: Shape) -> RelayExpr:
        """Return the value of ``shape`` that the image ``value`` represents."""
        raise NotImplementedError

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        shape = concrete_shape(expr)
        value = self._lift(expr) if shape is not None else None
        if value is None or shape is None:
            return super().visit_call(expr)
        if len(shape) != self.rank:
            return value
        self.lifted[expr] = value
        return self.lowered(value, shape)

    def _lift(self, expr: Call) -> RelayExpr | None:
        if not isinstance(expr.op, Op) or not expr.args:
            return None
        layout_rule = expr.op.get_attr("FInferCorrectLayout")
        if expr.op in _OF_CHANNELS:
            return self._of_channels(expr)
        if layout_rule in (layout_rules.elementwise, layout_rules.broadcast):
            return self._elementwise(expr)
        rule = self.rule(expr.op, expr.args[0])
        return rule(expr) if rule is not None else None

    def _of_channels(self, expr: Call) -> RelayExpr | None:
        attrs: Any = expr.attrs
        data, vector = expr.args
        if data not in self.lifted or attrs.axis % self.rank != 1:
            return None
        return Call(expr.op, [self.lifted[data], self.visit(vector)], attrs.replace(axis=1), expr.type_args, expr.span)

    def _elementwise(self, expr: Call) -> RelayExpr | None:
        shape = concrete_shape(expr)
        if shape is None or not any(arg in self.lifted and concrete_shape(arg) == shape for arg in expr.args):
            return None
        operands = [self.operand(arg, shape) for arg in expr.args]
        known = [o for o in operands if o is not None]
        return Call(expr.op, known, expr.attrs, expr.type_args, expr.span) if len(known) == len(operands) else None

    def lifted_fields(self, expr: Call) -> Tuple | None:
        """Return the lifted fields of a tuple argument of ``expr``; None where one is not lifted."""
        fields = expr.args[0].fields if isinstance(expr.args[0], Tuple) else ()
        if not fields or any(field not in self.lifted for field in fields):
            return None
        return Tuple([self.lifted[field] for field in fields])
