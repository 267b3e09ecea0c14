"""Quick tests that every match of a pattern passes, and few other expressions do.

A test looks at the operators of a call and of its arguments, and at constants; the matcher does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.relay.dataflow_pattern.language import (
    AltPattern,
    AttrPattern,
    CallPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    ProductPattern,
    ShapePattern,
    TypePattern,
)
from tilewright.relay.dataflow_pattern.matcher import LEAVES, associates, commutes
from tilewright.relay.dataflow_pattern.products import PRODUCTS
from tilewright.relay.expr import Call

Test = Callable[[RelayExpr], bool]


def operators_of(pattern: DFPattern) -> frozenset[RelayExpr] | None:
    """Return the operators that a match of ``pattern`` may call; None where it may be anything."""
    match pattern:
        case CallPattern():
            wanted = operators_of(pattern.op)
            return wanted | associates(pattern) if wanted is not None else None
        case AltPattern():
            left, right = operators_of(pattern.left), operators_of(pattern.right)
            return None if left is None or right is None else left | right
        case AttrPattern() | TypePattern() | DataTypePattern() | ShapePattern():
            return operators_of(pattern.pattern)
        case ProductPattern():
            return frozenset(map(Op.get, PRODUCTS))
        case ExprPattern() if isinstance(pattern.expr, Op):
            return frozenset([pattern.expr])
    return None


def screen(pattern: DFPattern, depth: int = 2) -> Test:
    """Return the test for ``pattern``, which looks ``depth`` calls deep."""
    if type(pattern) in LEAVES:
        return partial(LEAVES[type(pattern)], pattern)
    match pattern:
        case AltPattern():
            left, right = screen(pattern.left, depth), screen(pattern.right, depth)
            return lambda expr: left(expr) or right(expr)
        case AttrPattern() | TypePattern() | DataTypePattern() | ShapePattern():
            return screen(pattern.pattern, depth)
        case CallPattern() if depth:
            return _screen_call(pattern, depth)
    return lambda expr: True


def _screen_call(pattern: CallPattern, depth: int) -> Test:
    wanted, args = operators_of(pattern), pattern.args
    tests = [] if args is None or associates(pattern) else [screen(arg, depth - 1) for arg in args]
    either = commutes(pattern)

    def test(expr: RelayExpr) -> bool:
        if not isinstance(expr, Call) or not (wanted is None or expr.op in wanted):
            return False
        if not tests:
            return True
        fit = all(t(arg) for t, arg in zip(tests, expr.args, strict=False))
        return fit or (either and tests[0](expr.args[1]) and tests[1](expr.args[0]))

    return test
