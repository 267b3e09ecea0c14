"""Natural numbers as a data type, for tests of recursion and matching: ``nat.rly`` of the library.

``prelude`` is a ``Prelude`` whose module has imported it.
"""

from __future__ import annotations

from tilewright.ir.expr import RelayExpr
from tilewright.relay.interpreter import ConstructorValue
from tilewright.relay.prelude import Prelude


def count(prelude: Prelude, n: ConstructorValue) -> int:
    """Return the number that a value of type ``nat`` represents."""
    _, zero, succ = prelude.mod.get_type("nat")
    found = 0
    while n.tag == succ.tag:
        found += 1
        n = n.fields[0]
    assert n.tag == zero.tag
    return found


def make_nat_value(prelude: Prelude, n: int) -> ConstructorValue:
    """Return the value of type ``nat`` for ``n``, which is not negative."""
    _, zero, succ = prelude.mod.get_type("nat")
    value = ConstructorValue(zero.tag, [], zero)
    for _ in range(n):
        value = ConstructorValue(succ.tag, [value], succ)
    return value


def make_nat_expr(prelude: Prelude, n: int) -> RelayExpr:
    """Return an expression of type ``nat`` for ``n``, which is not negative."""
    _, zero, succ = prelude.mod.get_type("nat")
    expr: RelayExpr = zero()
    for _ in range(n):
        expr = succ(expr)
    return expr
