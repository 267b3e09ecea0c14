"""Chains of lets as lists of bindings, and back."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Let, Var

Binding = tuple[Var, RelayExpr]


def let_chain(expr: RelayExpr) -> tuple[list[Binding], RelayExpr]:
    """Return the bindings of a chain of lets, and its body; none and ``expr`` where it is no let."""
    bindings = []
    while isinstance(expr, Let):
        bindings.append((expr.var, expr.value))
        expr = expr.body
    return bindings, expr


def with_lets(bindings: Iterable[Binding], body: RelayExpr) -> RelayExpr:
    """Return ``body`` in a chain of lets, the first binding outermost."""
    for var, value in reversed(list(bindings)):
        body = Let(var, value, body)
    return body
