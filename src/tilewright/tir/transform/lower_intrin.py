"""LowerIntrin: replace operators without an instruction of the target by ones that have one.

Division that rounds down, of operands whose signs are known::

    floordiv(a, 8)          ->  a >> 3
    floormod(a, 8)          ->  a & 7
    floordiv(a, 3), a >= 0  ->  truncdiv(a, 3)
    floordiv(a, 3)          ->  select(truncmod(a, 3) >= 0, truncdiv(a, 3), truncdiv(a, 3) - 1)
    pow(x, 2)               ->  x * x
    fma(a, b, c)            ->  a * b + c          where there is no such instruction
    byte_index(x)           ->  int32(x)           but for llvm, which looks vectors up

Exponentials and the like stay: code generators know how to compute them (``target/intrinsics.py``). Rules of users,
registered by ``register_intrin_lowering(op, target_kind, f=rule)``, are tried first.
"""

from __future__ import annotations

import functools
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.function_attributes import TARGET
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext, function_pass
from tilewright.tir import op as tir_op
from tilewright.tir.expr import (
    Add,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    PrimExpr,
    Ramp,
    Select,
    SizeVar,
    Sub,
    Var,
)  # fmt: skip
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import For, LetStmt, Stmt
from tilewright.tir.visitor import StmtExprMutator

_INFINITY = float("inf")
Interval = tuple[float, float]
_UNKNOWN: Interval = (-_INFINITY, _INFINITY)


class Bounds:
    """Intervals of integer expressions from loop ranges: cheap, and enough to know signs."""

    def __init__(self) -> None:
        self._known: dict[PrimExpr, Interval] = {}

    def set(self, var: Var, interval: Interval) -> None:
        """Set the range of ``var``."""
        self._known[var] = interval

    def of(self, e: PrimExpr) -> Interval:
        """Return an interval that contains ``e``, infinite if nothing is known."""
        known = self._known.get(e)
        if known is None:
            known = self._known[e] = self._find(e)
        return known

    def _find(self, e: PrimExpr) -> Interval:
        if isinstance(e, IntImm):
            return e.value, e.value
        if isinstance(e, SizeVar):
            return 0, _INFINITY
        if isinstance(e, Broadcast):
            return self.of(e.value)
        if isinstance(e, Ramp):
            last = ops.mul(e.stride, ops.const(e.lanes - 1, e.stride.dtype))
            return _union(self.of(e.base), _sum(self.of(e.base), self.of(last)))
        if isinstance(e, Cast):
            return self._cast(e)
        if isinstance(e, Select):
            return _union(self.of(e.true_value), self.of(e.false_value))
        if isinstance(e, Call) and e.op.name == "tir.if_then_else":
            return _union(self.of(e.args[1]), self.of(e.args[2]))
        if isinstance(e, (Add, Sub, Mul, Min, Max, FloorDiv, FloorMod, Div, Mod)) and not dt.is_float(e.dtype):
            return _combine(type(e), self.of(e.a), self.of(e.b))
        return _UNKNOWN

    def _cast(self, e: Cast) -> Interval:
        if not dt.is_int(e.value.dtype):
            return (0, 1) if dt.is_bool(e.value.dtype) else _UNKNOWN
        low, high = self.of(e.value)
        if not dt.is_int(e.dtype):
            return _UNKNOWN
        smallest, largest = dt.int_range(e.dtype)
        return (low, high) if smallest <= low and (high <= largest or dt.bits(e.dtype) >= 32) else _UNKNOWN


def _sum(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def _union(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), max(a[1], b[1])


def _product(x: float, y: float) -> float:
    return 0 if x == 0 or y == 0 else x * y


def _combine(op: type, a: Interval, b: Interval) -> Interval:
    if op is Add:
        return _sum(a, b)
    if op is Sub:
        return a[0] - b[1], a[1] - b[0]
    if op is Mul:
        corners = [_product(x, y) for x in a for y in b]
        return min(corners), max(corners)
    if op is Min:
        return min(a[0], b[0]), min(a[1], b[1])
    if op is Max:
        return max(a[0], b[0]), max(a[1], b[1])
    if b[0] <= 0:
        return _UNKNOWN
    if op is FloorMod:
        return 0, b[1] - 1 if a[0] < 0 else min(a[1], b[1] - 1)
    if op is Mod:
        return (0, min(a[1], b[1] - 1)) if a[0] >= 0 else (-(b[1] - 1), b[1] - 1)
    low = 0 if a[0] >= 0 else a[0]  # a quotient by a positive number is no larger in size
    return low, (a[1] if a[1] == _INFINITY else a[1] // b[0]) if a[1] >= 0 else 0


class _LowerIntrin(StmtExprMutator):
    def __init__(self, has_fma: bool, kind: str = "default") -> None:
        super().__init__()
        self.bounds, self.has_fma, self.kind = Bounds(), has_fma, kind
        self.rules = tuple(dict.fromkeys(f"{name}.FLowerIntrinsic" for name in (kind, "default")))

    def visit_for(self, s: For) -> Stmt:
        """Note the loop variable's range."""
        low, extent = self.bounds.of(s.min), self.bounds.of(s.extent)
        self.bounds.set(s.loop_var, (low[0], low[1] + extent[1] - 1))
        return super().visit_for(s)

    def visit_let_stmt(self, s: LetStmt) -> Stmt:
        """Note the variable's range."""
        if dt.is_int(s.value.dtype):
            self.bounds.set(s.var, self.bounds.of(s.value))
        return super().visit_let_stmt(s)

    def visit_let(self, e: Let) -> PrimExpr:
        """Note the variable's range."""
        if dt.is_int(e.value.dtype):
            self.bounds.set(e.var, self.bounds.of(e.value))
        return super().visit_let(e)

    def visit_floor_div(self, e: FloorDiv) -> PrimExpr:
        """Lower to a shift, or to C's division if the signs allow it."""
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if (shift := _power_of_two(b)) is not None:
            return ops.shift_right(a, ops.const(shift, a.dtype))
        if self._positive(e.b):
            if self._non_negative(e.a):
                return ops.truncdiv(a, b)
            if dt.is_signed(e.dtype):
                quotient, rest = ops.truncdiv(a, b), ops.truncmod(a, b)
                exact = ops.greater_equal(rest, ops.const(0, e.dtype))
                return Select(exact, quotient, ops.sub(quotient, ops.const(1, e.dtype)))
        return FloorDiv(a, b)

    def visit_floor_mod(self, e: FloorMod) -> PrimExpr:
        """Lower to a mask, or to C's remainder if the signs allow it."""
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        if (shift := _power_of_two(b)) is not None:
            return ops.bitwise_and(a, ops.const((1 << shift) - 1, a.dtype))
        if self._positive(e.b):
            if self._non_negative(e.a):
                return ops.truncmod(a, b)
            if dt.is_signed(e.dtype):
                rest = ops.truncmod(a, b)
                return Select(ops.greater_equal(rest, ops.const(0, e.dtype)), rest, ops.add(rest, b))
        return FloorMod(a, b)

    def _non_negative(self, e: PrimExpr) -> bool:
        return not dt.is_signed(e.dtype) or self.bounds.of(e)[0] >= 0

    def _positive(self, e: PrimExpr) -> bool:
        return self.bounds.of(e)[0] > 0

    def visit_call(self, e: Call) -> PrimExpr:
        """Lower powers with small exponents, and multiply-add if the target has no such instruction."""
        made = super().visit_call(e)
        if not isinstance(made, Call):
            return made
        by_rule = self._by_rule(made)
        if by_rule is not None:
            return by_rule
        if made.op.name == "tir.pow":
            return _power(made)
        if made.op.name == "tir.byte_index" and self.kind != "llvm":
            return ops.cast(made.dtype, made.args[0])
        if made.op.name == "tir.fma" and not self.has_fma:
            a, b, c = made.args
            return ops.add(ops.mul(a, b), c)
        return made

    def _by_rule(self, e: Call) -> PrimExpr | None:
        """Return the lowered result of a user's rule; None without a rule, or if it leaves the call unchanged."""
        rule = next((r for key in self.rules if (r := e.op.get_attr(key)) is not None), None)
        given = None if rule is None else rule(e)
        if given is None or given is e:
            return None
        if isinstance(given, Call) and given.op is e.op:
            return given
        lowered: PrimExpr = self.visit_expr(given)
        return lowered


def _power_of_two(e: PrimExpr) -> int | None:
    value: Any = e.value if isinstance(e, Broadcast) else e
    if isinstance(value, IntImm) and value.value > 0 and value.value & (value.value - 1) == 0:
        return value.value.bit_length() - 1
    return None


def _power(e: Call) -> PrimExpr:
    x, exponent = e.args
    value: Any = exponent.value if isinstance(exponent, Broadcast) else exponent
    if not isinstance(value, FloatImm):
        return e
    if value.value == 2.0:
        return ops.mul(x, x)
    if value.value == 3.0:
        return ops.mul(ops.mul(x, x), x)
    if value.value == 1.0:
        return x
    if value.value == 0.5:
        return tir_op.sqrt(x)
    if value.value == -0.5:
        return tir_op.rsqrt(x)
    return e


def lower_intrin(func: PrimFunc, has_fma: bool = True, kind: str = "default") -> PrimFunc:
    """Lower divisions and powers in ``func``.

    Args:
        func: the function.
        has_fma: whether multiply-add is one instruction.
        kind: the kind of target whose rules (``register_intrin_lowering``) apply.
    """
    body = _LowerIntrin(has_fma, kind).visit_stmt(func.body)
    return func if body is func.body else func.with_body(body)


def LowerIntrin() -> Pass:
    """The pass of :func:`lower_intrin`, for the function's own target (attribute ``target``)."""

    @functools.partial(function_pass, opt_level=0, name="tir.LowerIntrin", func_type=PrimFunc)
    def run(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        target = TARGET.get(func)
        if target is None:
            return lower_intrin(func)
        return lower_intrin(func, target.features.has_fma, target.kind.name)

    made: Pass = run
    return made
