"""RoundToBytes: limit numbers before they are rounded to small integers, so that one instruction rounds and converts.

Before and after, of sums of integers, as quantized networks have them::

    B[i] = cast(uint8, max(min((nearbyint(x) + 3f32), 255f32), 0f32))
    ->
    B[i] = cast(uint8, (cast(int32, nearbyint(max(min(x, 252f32), -3f32))) + 3))

    C[i] = ((cast(float32, cast(uint8, max(min((nearbyint(x) + 3f32), 255f32), 0f32))) - 3f32)*s)
    ->
    C[i] = (nearbyint(max(min(x, 252f32), -3f32))*s)

Rounding keeps order and whole numbers, so that limits which are whole may come first. Numbers of 8 bits and whole
constants have exact sums in float32. Where ``x`` could be NaN, which a conversion makes anything of, it stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import BinaryExpr, Broadcast, Call, Cast, FloatImm, PrimExpr
from tilewright.ir.transform import Pass
from tilewright.tir.expr import Add, Div, Load, Max, Min, Mul, Sub
from tilewright.tir.stmt import Stmt
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtExprMutator

_BYTES = ("int8", "uint8")
_LARGEST = 1 << 22  # whole constants, whose sums with numbers of 8 bits are exact in float32


@dataclass(frozen=True)
class _Steps:
    """``max(min(nearbyint(value) + zero, high), low)``, whole numbers of 8 bits."""

    value: PrimExpr
    zero: int
    low: int
    high: int


def _whole(e: PrimExpr) -> int | None:
    """Return the whole number that ``e`` is in all lanes; None of anything else."""
    if isinstance(e, Broadcast):
        return _whole(e.value)
    if isinstance(e, FloatImm) and abs(e.value) < _LARGEST and e.value == int(e.value):
        return int(e.value)
    return None


def _shifted(e: PrimExpr) -> tuple[PrimExpr, int]:
    """Return ``e`` as something and a whole constant that is added to it."""
    if isinstance(e, (Add, Sub)) and (constant := _whole(e.b)) is not None:
        return e.a, constant if isinstance(e, Add) else -constant
    if isinstance(e, Add) and (constant := _whole(e.a)) is not None:
        return e.b, constant
    return e, 0


def _steps(e: PrimExpr) -> _Steps | None:
    """Return the limits and the number that is rounded in ``e``, a conversion to a byte; None of other ones."""
    if not isinstance(e, Cast) or dt.element(e.dtype) not in _BYTES or not isinstance(e.value, Max):
        return None
    limited = e.value
    low, inner = _whole(limited.b), limited.a
    high = _whole(inner.b) if isinstance(inner, Min) else None
    if not isinstance(inner, Min) or low is None or high is None or dt.element(inner.dtype) != "float32":
        return None
    rounded, zero = _shifted(inner.a)
    least, most = dt.int_range(dt.element(e.dtype))
    if not _is_rounding(rounded) or not least <= low <= high <= most:
        return None
    value = rounded.args[0]  # type: ignore[attr-defined]
    return _Steps(value, zero, low, high) if _is_number(value) else None


def _is_rounding(e: PrimExpr) -> bool:
    return isinstance(e, Call) and e.op.name == "tir.nearbyint"


def _is_number(e: PrimExpr) -> bool:
    """Return whether ``e`` is a float made of integers and factors, which are taken to be finite."""
    match e:
        case Cast():
            return not dt.is_float(e.value.dtype)
        case Broadcast():
            return _is_number(e.value)
        case FloatImm():
            return abs(e.value) < float("inf")
        case Add() | Sub() | Max() | Min():
            return _is_number(e.a) and _is_number(e.b)
        case Mul():
            return all(_is_number(side) or _is_factor(side) for side in (e.a, e.b)) and (
                _is_number(e.a) or _is_number(e.b)
            )
        case Div():
            return _is_number(e.a) and _whole(e.b) not in (None, 0)
        case Call():
            return _is_rounding(e) and _is_number(e.args[0])
    return False


def _is_factor(e: PrimExpr) -> bool:
    return isinstance(e.value if isinstance(e, Broadcast) else e, Load)


class _RoundToBytes(StmtExprMutator):
    def visit_cast(self, e: Cast) -> PrimExpr:
        """Convert rounded numbers by way of int32; a byte that becomes float32 at once stays a float."""
        steps = _steps(e)
        if steps is not None:
            wide = dt.with_lanes("int32", dt.lanes(e.dtype))
            return ops.cast(e.dtype, ops.cast(wide, self._rounded(steps)) + ops.const(steps.zero, wide))
        steps = _steps(e.value) if dt.element(e.dtype) == "float32" else None
        return super().visit_cast(e) if steps is None else self._sum(self._rounded(steps), steps.zero)

    def visit_binary(self, e: BinaryExpr) -> PrimExpr:
        """Add what is left of a whole constant and a zero point."""
        sum_ = self._shift(e) if isinstance(e, (Add, Sub)) else None
        return super().visit_binary(e) if sum_ is None else sum_

    def _shift(self, e: Add | Sub) -> PrimExpr | None:
        """Return the sum of a byte that becomes float32 and a whole constant; None of other sums."""
        inner, constant = _shifted(e)
        if dt.element(e.dtype) != "float32" or not isinstance(inner, Cast):
            return None
        steps = _steps(inner.value)
        return None if steps is None else self._sum(self._rounded(steps), steps.zero + constant)

    def _rounded(self, steps: _Steps) -> PrimExpr:
        """Return the number limited, then rounded."""
        value = self.visit_expr(steps.value)
        low, high = (ops.const(end - steps.zero, value.dtype) for end in (steps.low, steps.high))
        return Call(value.dtype, "tir.nearbyint", (ops.maximum(ops.minimum(value, high), low),))

    @staticmethod
    def _sum(value: PrimExpr, constant: int) -> PrimExpr:
        return value + ops.const(constant, value.dtype) if constant else value


def round_to_bytes(stmt: Stmt) -> Stmt:
    """Limit numbers before they are rounded to small integers."""
    return _RoundToBytes().visit_stmt(stmt)


def RoundToBytes() -> Pass:
    """The pass of :func:`round_to_bytes`."""
    return body_pass("RoundToBytes", round_to_bytes)
