"""TVM's module name of types, which are in ``ir.type`` and ``relay.adt``."""

from tilewright.ir.prim_expr import Any
from tilewright.ir.type import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeConstraint,
    TypeKind,
    TypeRelation,
    TypeVar,
    scalar_type,
)
from tilewright.relay.adt import TypeData


def ShapeVar(name: str) -> TypeVar:
    """A variable that stands for a shape."""
    return TypeVar(name, TypeKind.ShapeVar)


def is_dynamic(tensor_type: TensorType) -> bool:
    """Return whether a dimension is unknown at compile time."""
    return tensor_type.is_dynamic


__all__ = [
    "Any", "FuncType", "GlobalTypeVar", "IncompleteType", "RefType", "ShapeVar", "TensorType", "TupleType", "Type",
    "TypeCall", "TypeConstraint", "TypeData", "TypeKind", "TypeRelation", "TypeVar", "is_dynamic", "scalar_type",
]  # fmt: skip
