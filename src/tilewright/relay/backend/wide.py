"""Kernels over tensors whose number of elements may exceed 32 bits: their dimensions, loops and indices have 64 bits.

``NarrowDataType`` narrows those that fit back to 32 bits; all other kernels have 32-bit ones from the start. On the CPU
a dimension that is known at run time counts as its greatest value. GPUs divide 64-bit numbers slowly: there such
dimensions have 32 bits, and the machine refuses larger tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.arith.analyzer import Analyzer
from tilewright.ir import prim_ops as ops
from tilewright.ir import walk
from tilewright.ir.attrs import Attrs
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import DimVar, IntImm, PrimExpr, Var
from tilewright.ir.prim_functor import ExprMutator
from tilewright.ir.type import TensorType, TupleType, Type, tensors_of
from tilewright.relay.expr import Call, Function
from tilewright.relay.visitor import post_order
from tilewright.target.target import Target
from tilewright.tir.visitor import free_vars

_CPU = 1
# Loops may go past a tensor's end by a tile of each axis, whose work is left out.
_MOST_ELEMENTS = (1 << 31) - (1 << 18)


def is_wide(func: Function, target: Target) -> bool:
    """Return whether a primitive function has a tensor whose number of elements may exceed 32 bits."""
    types = [p.checked_type for p in func.params] + [e.checked_type for e in post_order(func.body) if _is_typed(e)]
    open_ended = target.device_type == _CPU
    bound = Analyzer().bounds.bound

    def greatest(dim: PrimExpr) -> int:
        if isinstance(dim, IntImm):
            return dim.value
        return int(bound(dim)[1]) if open_ended else 1

    return any(math.prod(map(greatest, t.shape)) > _MOST_ELEMENTS for type_ in types for t in tensors_of(type_))


def is_bounded(func: Function) -> bool:
    """Return whether every dimension of a primitive function's parameters has a greatest value."""
    dims = {d for p in func.params for t in tensors_of(p.checked_type) for d in t.shape}
    variables = [v for d in dims for v in ([d] if isinstance(d, AnyDim) else free_vars(d))]
    return all(isinstance(v, DimVar) and v.high is not None for v in variables)


def takes_any_size(op: te.Operation) -> bool:
    """Return whether the positions of loops that an operator writes itself have as many bits as the extents."""
    return isinstance(op, te.ExternOp) and "any_size" in op.attrs


def narrow_tensors(outputs: Sequence[te.Tensor]) -> list[te.Tensor]:
    """Return the tensors of loops that operators write themselves and that keep positions in 32 bits."""
    found: dict[te.Tensor, None] = {}
    for tensor in walk.post_order(outputs, lambda tensor: tensor.op.input_tensors):
        if isinstance(tensor.op, te.ExternOp) and not takes_any_size(tensor.op):
            found |= dict.fromkeys((tensor, *tensor.op.input_tensors))
    return list(found)


def limit_of(tensor: te.Tensor, widener: Widener) -> PrimExpr:
    """Return the condition that a tensor's elements are counted in 32 bits, over the variables of ``widener``."""
    count = math.prod((widener.dim(d) for d in tensor.shape), start=ops.const(1, "int64"))
    return ops.less_equal(count, _MOST_ELEMENTS)


def _is_typed(expr: object) -> bool:
    return isinstance(expr, Call) and expr.checked_type_or_none is not None


class Widener(ExprMutator):
    """Dimensions in 64 bits; each variable gets one of 64 bits of the same name and range."""

    def __init__(self) -> None:
        super().__init__()
        self._variables: dict[Var, Var] = {}

    def visit_int_imm(self, e: IntImm) -> PrimExpr:
        """Return the number in 64 bits."""
        return ops.const(e.value, "int64") if e.dtype == "int32" else e

    def visit_var(self, e: Var) -> Var:
        """Return the variable of 64 bits, always the same one."""
        if e.dtype != "int32":
            return e
        if e not in self._variables:
            self._variables[e] = e.widened() if isinstance(e, DimVar) else type(e)(e.name, "int64")
        return self._variables[e]

    def dim(self, dim: PrimExpr | int) -> PrimExpr:
        """Return a dimension in 64 bits."""
        dim = ops.as_expr(dim)
        return dim if isinstance(dim, AnyDim) else self.visit_expr(dim)

    def type(self, type_: Type) -> Type:
        """Return a type with 64-bit dimensions."""
        if isinstance(type_, TupleType):
            return TupleType([self.type(item) for item in type_.fields])
        if not isinstance(type_, TensorType):
            return type_
        return TensorType([self.dim(d) for d in type_.shape], type_.dtype)

    def attrs(self, attrs: Attrs) -> Attrs:
        """Return attributes with 64-bit dimensions."""
        changed = {name: self._value(value) for name, value in attrs.field_values() if _has_variables(value)}
        return attrs.replace(**changed) if changed else attrs

    def _value(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return tuple(self._value(item) for item in value)
        return self.dim(value) if isinstance(value, PrimExpr) else value


def _has_variables(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_has_variables(item) for item in value)
    return isinstance(value, PrimExpr) and not isinstance(value, AnyDim) and bool(free_vars(value))
