"""Rewriting by rules of operators that tell what they give to the rules after them.

A rule is an attribute of an operator, ``rule(ref_call, new_args, ctx)``: the call as it was, its arguments as they are
now, some of them a ``TempExpr`` that says more of a value than the value alone. It returns an expression, a
``TempExpr``, or None for the call itself with its arguments made real.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay.expr import Call, Function, TempExpr, Tuple, TupleGetItem
from tilewright.relay.visitor import ExprMutator, direct_children, post_order

Rule = Callable[[Call, list[Any], Any], RelayExpr | None]


class ForwardRewriter(ExprMutator):
    """Applies the rules ``attribute``; ``shared`` maps a temporary value that several calls read."""

    def __init__(self, attribute: str, shared: Callable[[TempExpr], RelayExpr] | None = None) -> None:
        super().__init__()
        self._attribute, self._shared = attribute, shared
        self._uses: Counter[RelayExpr] = Counter()
        self._real: dict[RelayExpr, RelayExpr] = {}

    def rewrite(self, func: Function) -> Function:
        """Return a function with the rules applied."""
        self._uses = Counter(child for node in post_order(func) for child in direct_children(node))
        result = self.visit(func)
        assert isinstance(result, Function)
        return result

    def visit(self, expr: RelayExpr) -> RelayExpr:
        """Return the real expression."""
        return self._realized(super().visit(expr))

    def _temporary(self, expr: RelayExpr) -> RelayExpr:
        """Return the expression as the rules after it see it."""
        self.visit(expr)
        found = self.memo_map[expr]
        if self._shared is not None and isinstance(found, TempExpr) and self._uses[expr] > 1:
            found = self._shared(found)
        return found

    def _realized(self, expr: RelayExpr) -> RelayExpr:
        if not isinstance(expr, TempExpr | Tuple):
            return expr
        if expr not in self._real:
            if isinstance(expr, TempExpr):
                self._real[expr] = expr.realize()
            else:
                fields = tuple(self._realized(f) for f in expr.fields)
                changed = any(a is not b for a, b in zip(fields, expr.fields, strict=True))
                self._real[expr] = Tuple(fields, expr.span) if changed else expr
        return self._real[expr]

    def visit_call(self, expr: Call) -> RelayExpr:
        """Ask the operator's rule."""
        args = [self._temporary(a) for a in expr.args]
        rule = expr.op.get_attr(self._attribute) if isinstance(expr.op, Op) else None
        result: RelayExpr | None = rule(expr, args, None) if rule is not None else None
        if result is not None:
            return result
        real = [self._realized(a) for a in args]
        if all(a is b for a, b in zip(real, expr.args, strict=True)):
            return expr
        return Call(self.visit(expr.op), real, expr.attrs, expr.type_args, expr.span)

    def visit_tuple(self, expr: Tuple) -> RelayExpr:
        """Keep temporary fields."""
        fields = tuple(self._temporary(f) for f in expr.fields)
        changed = any(a is not b for a, b in zip(fields, expr.fields, strict=True))
        return Tuple(fields, expr.span) if changed else expr

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        """Take a field that is there."""
        value = self._temporary(expr.tuple_value)
        return value.fields[expr.index] if isinstance(value, Tuple) else super().visit_tuple_getitem(expr)


def forward_call(ref_call: Call, args: list[Any], attrs: Any = None) -> Call:
    """Return the call with other arguments, and other attributes if they are given."""
    return Call(ref_call.op, args, ref_call.attrs if attrs is None else attrs, ref_call.type_args, ref_call.span)
