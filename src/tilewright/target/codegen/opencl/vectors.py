"""Vector statements that OpenCL C's own vectors can express; the others become loops over lanes."""

from __future__ import annotations

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.target import intrinsics
from tilewright.tir.expr import Call, Let, Load, PrimExpr, Var
from tilewright.tir.stmt import Store

_WIDTHS = (1, 2, 4, 8, 16)
_OF_VECTORS = frozenset(
    f"tir.{name}"
    for name in (
        *intrinsics.FLOAT_MATH, "isnan", "isinf", "isfinite", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not",
        "shift_left", "shift_right", "popcount", "clz", "likely", "if_then_else", "call_pure_extern",
    )
)  # fmt: skip


def is_native(s: Store) -> bool:
    """Return whether a store of a vector, and all that its value is made of, are vectors of OpenCL C."""
    if not ops.is_const_int(s.predicate, 1):
        return False
    bound: set[PrimExpr] = set()
    seen: set[PrimExpr] = set()
    stack: list[object] = [s.value, s.index]
    while stack:
        e = stack.pop()
        if not isinstance(e, PrimExpr) or e in seen:
            continue
        seen.add(e)
        if isinstance(e, Let):
            bound.add(e.var)
        if dt.lanes(e.dtype) > 1 and not _has_form(e, bound):
            return False
        for _, child in e.field_values():
            stack.extend(child if isinstance(child, tuple) else [child])
    return True


def _has_form(e: PrimExpr, bound: set[PrimExpr]) -> bool:
    info = dt.parse(e.dtype)
    if info.lanes not in _WIDTHS or info.kind == "bfloat" or (info.kind != "bool" and info.bits not in (8, 16, 32, 64)):
        return False
    if isinstance(e, Var):
        return e in bound
    if isinstance(e, Load):
        return ops.is_const_int(e.predicate, 1)
    if isinstance(e, Call):
        if e.op.name == "tir.if_then_else" and dt.lanes(e.args[0].dtype) > 1:
            return False  # a lane that is not chosen may not be evaluated
        return e.op.name in _OF_VECTORS
    return True
