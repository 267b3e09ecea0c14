"""Analysis of indices for code generators: lanes in steps, and divisors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.op import Op
from tilewright.tir.expr import Add, Broadcast, Call, Cast, IntImm, Mul, PrimExpr, Ramp, Sub, Var

# One wide common factor for the index 0: it is aligned to anything.
_ALIGNED_TO_ANYTHING = 1 << 20


class Divisors:
    """Numbers that divide integer expressions; variables are defined as code generation meets them."""

    def __init__(self) -> None:
        self._known: dict[PrimExpr, int] = {}

    def define(self, var: Var, value: PrimExpr) -> None:
        """Set the divisor of ``var`` to that of ``value``."""
        self._known[var] = self.of(value)

    def forget(self, var: Var) -> None:
        """Forget what is known of ``var`` and of expressions with it."""
        for known in [k for k in self._known if not isinstance(k, Var)]:
            del self._known[known]
        self._known.pop(var, None)

    def of(self, e: PrimExpr) -> int:
        """Return a known divisor of the integer expression ``e``; 1 if nothing is known."""
        known = self._known.get(e)
        if known is None:
            known = self._known[e] = self._find(e)
        return known

    def _find(self, e: PrimExpr) -> int:
        if isinstance(e, IntImm):
            return abs(e.value) or _ALIGNED_TO_ANYTHING
        if isinstance(e, (Add, Sub)):
            return math.gcd(self.of(e.a), self.of(e.b))
        if isinstance(e, Mul):
            return self.of(e.a) * self.of(e.b)
        if isinstance(e, Cast) and dt.is_int(e.value.dtype):
            return self.of(e.value)
        return 1


def as_ramp(index: PrimExpr) -> tuple[PrimExpr, int] | None:
    """Return ``index`` as (base, constant stride) when its lanes go up in equal steps; None otherwise."""
    if isinstance(index, Ramp):
        return (index.base, index.stride.value) if isinstance(index.stride, IntImm) else None
    if isinstance(index, Broadcast):
        return index.value, 0
    if isinstance(index, (Add, Sub)):
        a, b = as_ramp(index.a), as_ramp(index.b)
        if a is not None and b is not None:
            if isinstance(index, Add):
                return ops.add(a[0], b[0]), a[1] + b[1]
            return ops.sub(a[0], b[0]), a[1] - b[1]
    if isinstance(index, Mul):
        a, b = as_ramp(index.a), as_ramp(index.b)
        for ramp, factor in ((a, b), (b, a)):
            if ramp is not None and factor is not None and factor[1] == 0 and isinstance(factor[0], IntImm):
                return ops.mul(ramp[0], factor[0]), ramp[1] * factor[0].value
    return None


def as_offsets(index: PrimExpr) -> tuple[PrimExpr, list[int]] | None:
    """Return ``index`` as a scalar plus a constant for each lane; None if it is no such sum."""
    zero = ops.const(0, dt.element(index.dtype))
    ramp = as_ramp(index)
    if ramp is not None:
        base, stride = ramp
        first = base.value if isinstance(base, IntImm) else 0
        return zero if isinstance(base, IntImm) else base, [first + stride * i for i in range(dt.lanes(index.dtype))]
    if isinstance(index, (Add, Sub)):
        a, b = as_offsets(index.a), as_offsets(index.b)
        if a is None or b is None:
            return None
        if isinstance(index, Add):
            return ops.add(a[0], b[0]), [x + y for x, y in zip(a[1], b[1], strict=True)]
        return ops.sub(a[0], b[0]), [x - y for x, y in zip(a[1], b[1], strict=True)]
    operands: Sequence[PrimExpr] = ()
    if isinstance(index, Mul):
        operation, operands = operator.mul, (index.a, index.b)
    elif isinstance(index, Call) and isinstance(index.op, Op) and index.op.name in _OF_POWERS_OF_2:
        operation, operands = _OF_POWERS_OF_2[index.op.name], index.args
    parts = [found for x in operands if (found := as_offsets(x)) is not None]
    if len(parts) != 2 or not all(ops.is_const_int(base, 0) and min(offsets) >= 0 for base, offsets in parts):
        return None
    return zero, [operation(x, y) for x, y in zip(parts[0][1], parts[1][1], strict=True)]


# What divisions by powers of 2 have become when code is generated.
_OF_POWERS_OF_2: dict[str, Callable[[int, int], int]] = {
    "tir.shift_right": operator.rshift,
    "tir.bitwise_and": operator.and_,
}
