"""Factorization of products into a number and factors.

``multiply(divide(x, 2f), power(y, 3f))`` is 0.5 times x, y, y and y; where two factors are asked for, it is 0.5 times x
and power(y, 3f).
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay.expr import Call, scalar_value

PRODUCTS = ("multiply", "divide", "power")  # the operators that are taken apart
_MOST_FORMS = 64
_Product = tuple[float, tuple[RelayExpr, ...]]


def products(expr: RelayExpr, count: int) -> Iterator[_Product]:
    """Yield the factorizations of ``expr`` into a number and ``count`` factors, those with the fewest steps first."""
    forms: list[tuple[float, tuple[RelayExpr, ...], int]] = [(1.0, (expr,), 0)]
    for number, factors, start in forms:  # which grows
        if len(factors) == count:
            yield number, factors
        for k in range(start, len(factors)):
            parts = _taken_apart(factors[k])
            if parts is not None and len(factors) + len(parts[1]) - 1 <= count and len(forms) < _MOST_FORMS:
                forms.append((number * parts[0], (*factors[:k], *parts[1], *factors[k + 1 :]), k))


def _taken_apart(expr: RelayExpr) -> _Product | None:
    """Factorize one operator of a product; None where there is none."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.name not in PRODUCTS:
        return None
    left, right = expr.args
    a, b = scalar_value(left), scalar_value(right)
    if expr.op.name == "multiply":
        factors = [arg for arg, value in ((left, a), (right, b)) if value is None]
        return (1.0 if a is None else a) * (1.0 if b is None else b), tuple(factors)
    if expr.op.name == "divide":
        return (1.0 / b, (left,)) if b else None
    return (1.0, (left,) * int(b)) if b in (2, 3) else None
