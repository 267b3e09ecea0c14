"""LowerCustomDatatypes: replace numbers of custom types by unsigned integers of their bits, and operations by calls.

Before and after, with lowering functions made by ``tvm.target.datatype.create_lower_func``::

    C[i] = cast(custom[posit]32, (float32*)A[i]) + B[i]
    C[i] = call_pure_extern("PositAdd", call_pure_extern("FloatToPosit", (float32*)A[i]), (uint32*)B[i])

A lowering function takes an operation with lowered operands, and returns an expression without custom types.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL, TARGET
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import BinaryExpr, Broadcast, Call, Cast, FloatImm, Let, PrimExpr, Ramp, Select, Var
from tilewright.ir.transform import Pass, PassContext, function_pass
from tilewright.tir.expr import Load
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate, LetStmt, Stmt, Store
from tilewright.tir.visitor import StmtExprMutator, post_order_visit

Key = tuple[str, ...]
LOWERING: dict[Key, Callable[[PrimExpr], PrimExpr]] = {}
"""By the target's kind, the operation ("Cast", "Add", "Call", ...), the type's name, and the other type of a Cast or
the intrinsic of a Call."""
SMALLEST: dict[str, Callable[[int], PrimExpr]] = {}
"""From the number of bits to the smallest value, by the type's name."""


def type_name(dtype: str) -> str:
    """Return the name by which lowering functions know a type: the user's name, or ``float``, ``int``, ``uint``."""
    return dt.custom_name(dtype) if dt.is_custom(dtype) else dt.parse(dtype).kind


def as_bits(dtype: str) -> str:
    """The unsigned integer that holds a number of a user's type; other types are their own."""
    return dt.make("uint", dt.bits(dtype), dt.lanes(dtype)) if dt.is_custom(dtype) else dtype


def smallest(dtype: str) -> PrimExpr:
    """The smallest value of a user's type."""
    name = dt.custom_name(dtype)
    if name not in SMALLEST:
        raise TilewrightError(
            f"the smallest value of {dtype} is not known; tvm.target.datatype.register_min_func says it"
        )
    return SMALLEST[name](dt.bits(dtype))


class _Lower(StmtExprMutator):
    def __init__(self, kind: str, function: str) -> None:
        super().__init__()
        self.kind, self.function = kind, function

    def _rule(self, op: PrimExpr, operation: str, dtype: str, other: str = "") -> PrimExpr:
        """Apply the user's lowering function to an operation on lowered operands."""
        name = type_name(dtype)
        if dt.lanes(op.dtype) != 1:
            raise TilewrightError(
                f"{self.function}: {operation} of vectors of {dtype}; such numbers are computed one by one: build with "
                'tvm.transform.PassContext(config={"tir.disable_vectorize": True})'
            )
        rule = LOWERING.get((self.kind, operation, name, other))
        if rule is None:
            what = f"{operation} of {other}" if other else operation
            raise TilewrightError(
                f"{self.function}: there is no lowering function of {what} for {name} on {self.kind}; give one with "
                "tvm.target.datatype.register_op"
            )
        return rule(op)

    def visit_var(self, e: Var) -> PrimExpr:
        if dt.is_custom(e.dtype) and e not in self.memo:
            self.memo[e] = Var(e.name, as_bits(e.dtype))
        return self.memo.get(e, e)

    def visit_float_imm(self, e: FloatImm) -> PrimExpr:
        return self._rule(e, "FloatImm", e.dtype) if dt.is_custom(e.dtype) else e

    def visit_load(self, e: Load) -> PrimExpr:
        new = super().visit_load(e)
        return new.replace(dtype=as_bits(e.dtype)) if dt.is_custom(e.dtype) else new

    def visit_binary(self, e: BinaryExpr) -> PrimExpr:
        if not dt.is_custom(e.a.dtype):
            return super().visit_binary(e)
        return self._rule(type(e)(self.visit_expr(e.a), self.visit_expr(e.b)), type(e).__name__, e.a.dtype)

    def visit_cast(self, e: Cast) -> PrimExpr:
        source, dest = e.value.dtype, e.dtype
        if not (dt.is_custom(source) or dt.is_custom(dest)):
            return super().visit_cast(e)
        value = self.visit_expr(e.value)
        return self._rule(Cast(dest, value), "Cast", source, type_name(dest))

    def visit_call(self, e: Call) -> PrimExpr:
        new = Call(e.dtype, e.op, self.visit_exprs(e.args))
        return self._rule(new, "Call", e.dtype, e.op.name) if dt.is_custom(e.dtype) else new

    def visit_select(self, e: Select) -> PrimExpr:
        return Select(*(self.visit_expr(x) for x in (e.condition, e.true_value, e.false_value)))

    def visit_broadcast(self, e: Broadcast) -> PrimExpr:
        return Broadcast(self.visit_expr(e.value), e.lanes)

    def visit_ramp(self, e: Ramp) -> PrimExpr:
        return e  # an index

    def visit_let(self, e: Let) -> PrimExpr:
        value, var = self.visit_expr(e.value), self.visit_expr(e.var)
        assert isinstance(var, Var)
        return Let(var, value, self.visit_expr(e.body))

    def visit_let_stmt(self, s: LetStmt) -> Stmt:
        value, var = self.visit_expr(s.value), self.visit_expr(s.var)
        assert isinstance(var, Var)
        return LetStmt(var, value, self.visit_stmt(s.body))

    def visit_allocate(self, s: Allocate) -> Stmt:
        new = super().visit_allocate(s)
        return new.replace(dtype=as_bits(s.dtype)) if dt.is_custom(s.dtype) else new

    def visit_store(self, s: Store) -> Stmt:
        return Store(s.buffer_var, self.visit_expr(s.value), self.visit_expr(s.index), self.visit_expr(s.predicate))


def _uses_custom(stmt: Stmt) -> bool:
    found = False

    def look(node: Any) -> None:
        nonlocal found
        if isinstance(node, (PrimExpr, Allocate)):
            found = found or dt.is_custom(node.dtype)

    post_order_visit(stmt, look)
    return found


def LowerCustomDatatypes() -> Pass:
    """The pass, for the function's own target (attribute ``target``)."""

    @functools.partial(function_pass, opt_level=0, name="tir.LowerCustomDatatypes", func_type=PrimFunc)
    def run(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        if not _uses_custom(func.body):
            return func
        target = TARGET.get(func)
        lower = _Lower("llvm" if target is None else target.kind.name, GLOBAL_SYMBOL.get(func, "main"))
        return func.with_body(lower.visit_stmt(func.body))

    made: Pass = run
    return made
