"""Kernels over tensors whose number of elements exceeds 32 bits: their dimensions, loops and indices have 64 bits.

``NarrowDataType`` narrows those that fit back to 32 bits; all other kernels have 32-bit ones from the start.
"""

from __future__ import annotations

import math

from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm
from tilewright.ir.type import TensorType, TupleType, Type, tensors_of
from tilewright.relay.expr import Call, Function
from tilewright.relay.visitor import post_order

# Loops may go past a tensor's end by a tile of each axis, whose work is left out.
_MOST_ELEMENTS = (1 << 31) - (1 << 18)


def is_wide(func: Function) -> bool:
    """Return whether a primitive function has a tensor whose number of elements exceeds 32 bits."""
    types = [p.checked_type for p in func.params] + [e.checked_type for e in post_order(func.body) if _is_typed(e)]
    return any(_elements(tensor) > _MOST_ELEMENTS for type_ in types for tensor in tensors_of(type_))


def _is_typed(expr: object) -> bool:
    return isinstance(expr, Call) and expr.checked_type_or_none is not None


def _elements(tensor: TensorType) -> int:
    """Return the number of elements as far as dimensions are known."""
    return math.prod(int(d.value) for d in tensor.shape if isinstance(d, IntImm))


def widened(type_: Type) -> Type:
    """Return the type with 64-bit dimensions."""
    if isinstance(type_, TupleType):
        return TupleType([widened(item) for item in type_.fields])
    if not isinstance(type_, TensorType):
        return type_
    dims = [ops.const(int(d.value), "int64") if isinstance(d, IntImm) else d for d in type_.shape]
    return TensorType(dims, type_.dtype)
