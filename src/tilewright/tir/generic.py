"""``tvm.tir.generic``: arithmetic by names, of scalar expressions and numbers."""

from __future__ import annotations

from tilewright.ir import prim_ops as ops
from tilewright.tir.expr import PrimExpr


def add(lhs: PrimExpr, rhs: PrimExpr, span: object = None) -> PrimExpr:
    """Sum; ``span`` is for TVM's callers, here and in all of these."""
    return ops.add(lhs, rhs)


def subtract(lhs: PrimExpr, rhs: PrimExpr, span: object = None) -> PrimExpr:
    """Difference."""
    return ops.sub(lhs, rhs)


def multiply(lhs: PrimExpr, rhs: PrimExpr, span: object = None) -> PrimExpr:
    """Product."""
    return ops.mul(lhs, rhs)


def divide(lhs: PrimExpr, rhs: PrimExpr, span: object = None) -> PrimExpr:
    """Quotient of floating-point operands."""
    return ops.div(lhs, rhs)


def cast(src: PrimExpr, dtype: str, span: object = None) -> PrimExpr:
    """Convert ``src`` to ``dtype``."""
    return src.astype(dtype)


__all__ = ["add", "cast", "divide", "multiply", "subtract"]
