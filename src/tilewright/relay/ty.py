"""Types under TVM's module name; they live in ``ir.type`` and ``relay.adt``."""

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

__all__ = [
    "Any", "FuncType", "GlobalTypeVar", "IncompleteType", "RefType", "TensorType", "TupleType", "Type", "TypeCall",
    "TypeConstraint", "TypeData", "TypeKind", "TypeRelation", "TypeVar", "scalar_type",
]  # fmt: skip
