"""Types of Relay and TIR.

Grammar::

    t ::= TensorType(shape, dtype)             shape: tuple of PrimExpr (IntImm int32 where known, Any where not)
        | TupleType(t*) | FuncType(params, ret, type vars, constraints)
        | RefType(t)                           a mutable cell
        | TypeVar(name, kind) | GlobalTypeVar(name, kind) | TypeCall(t, t*)     ADTs and polymorphism
        | IncompleteType()                     a hole that inference fills
        | PrimType(dtype) | PointerType(t, storage scope)                       TIR
    constraint ::= TypeRelation(function, t*, inputs, attributes)
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from functools import lru_cache
from typing import Any as AnyType

import numpy as np

from tilewright.ir.dtype import in_full
from tilewright.ir.node import Node
from tilewright.ir.prim_expr import Any, IntImm, PrimExpr
from tilewright.ir.prim_ops import as_expr, whole
from tilewright.ir.span import Span
from tilewright.ir.structural import Shortcut, hash_of_parts, register_shortcut, structural_equal, structural_hash


class TypeKind(enum.IntEnum):
    """Kinds of type variables."""

    Type = 0
    ShapeVar = 1
    BaseType = 2
    Constraint = 4
    AdtHandle = 5
    TypeData = 6


class Type(Node):
    """Base of all types. ``==`` is structural equality."""

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Type) and structural_equal(self, other)

    def __hash__(self) -> int:
        return structural_hash(self)


def as_shape(shape: AnyType) -> tuple[PrimExpr, ...]:
    """Normalise a shape: a number or a sequence of numbers and expressions, to a tuple of expressions."""
    if isinstance(shape, (int, float, np.number, PrimExpr)):
        shape = (shape,)
    return tuple(as_expr(whole(d)) for d in shape)


class TensorType(Type):
    """A tensor of ``shape`` and ``dtype``; rank 0 is a scalar."""

    shape: tuple[PrimExpr, ...]
    dtype: str
    span: Span | None = None

    def __init__(self, shape: Sequence[AnyType], dtype: str = "float32", span: Span | None = None) -> None:
        self._init(as_shape(shape), in_full(str(dtype)), span)

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape as ints; raises TypeError when a dimension is not known."""
        for d in self.shape:
            if not isinstance(d, IntImm):
                raise TypeError(f"the shape {self} has a dimension that is not known while compiling")
        return tuple(int(d) for d in self.shape)  # type: ignore[call-overload]

    @property
    def is_dynamic(self) -> bool:
        """Return whether some dimension is not known while compiling."""
        return any(isinstance(d, Any) or not isinstance(d, IntImm) for d in self.shape)


def _tensors_equal(a: TensorType, b: TensorType) -> bool | None:
    return a.dtype == b.dtype if a.dtype != b.dtype or a.shape == b.shape else None


def _tensor_hash(type_: TensorType) -> int | None:
    if not all(isinstance(d, IntImm) and d.dtype == "int32" for d in type_.shape):
        return None
    return _known_tensor_hash(type_.dtype, tuple(int(d) for d in type_.shape))  # type: ignore[call-overload]


@lru_cache(maxsize=4096)
def _known_tensor_hash(dtype: str, shape: tuple[int, ...]) -> int:
    return hash_of_parts(TensorType(shape, dtype))


register_shortcut(TensorType, Shortcut(_tensors_equal, _tensor_hash))


class TupleType(Type):
    """A tuple of types."""

    fields: tuple[Type, ...]
    span: Span | None = None

    def __init__(self, fields: Sequence[Type], span: Span | None = None) -> None:
        self._init(tuple(fields), span)


class TypeVar(Type):
    """A type variable of a polymorphic function or ADT; identity matters."""

    name_hint: str
    kind: TypeKind = TypeKind.Type
    span: Span | None = None

    @property
    def name(self) -> str:
        """The variable's name hint."""
        return self.name_hint

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = Node.__hash__


class GlobalTypeVar(Type):
    """The name of an algebraic data type."""

    name_hint: str
    kind: TypeKind = TypeKind.AdtHandle
    span: Span | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, GlobalTypeVar) and other.name_hint == self.name_hint)

    def __hash__(self) -> int:
        return hash(self.name_hint)

    def __call__(self, *args: Type) -> TypeCall:
        return TypeCall(self, args)


class TypeCall(Type):
    """Application of a type constructor: ``List[int32]``."""

    func: Type
    args: tuple[Type, ...]
    span: Span | None = None

    def __init__(self, func: Type, args: Sequence[Type], span: Span | None = None) -> None:
        self._init(func, tuple(args), span)


class FuncType(Type):
    """``fn(arg types) -> ret_type``, polymorphic in ``type_params``."""

    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...] = ()
    type_constraints: tuple[Type, ...] = ()
    span: Span | None = None

    def __init__(
        self,
        arg_types: Sequence[Type],
        ret_type: Type,
        type_params: Sequence[TypeVar] | None = None,
        type_constraints: Sequence[Type] | None = None,
        span: Span | None = None,
    ) -> None:
        self._init(tuple(arg_types), ret_type, tuple(type_params or ()), tuple(type_constraints or ()), span)


class RefType(Type):
    """A mutable cell that holds ``value``."""

    value: Type
    span: Span | None = None


RelayRefType = RefType


class IncompleteType(Type):
    """A hole that type inference fills; identity matters."""

    kind: TypeKind = TypeKind.Type
    span: Span | None = None

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = Node.__hash__


class TypeConstraint(Type):
    """A relation between types: a constraint of a function's type."""


class TypeRelation(TypeConstraint):
    """``func`` holds between ``args``: the first ``num_inputs`` of them determine the others, under ``attrs``."""

    func: AnyType
    args: tuple[Type, ...]
    num_inputs: int
    attrs: AnyType = None
    span: Span | None = None

    def __init__(
        self, func: AnyType, args: Sequence[Type], num_inputs: int, attrs: AnyType = None, span: Span | None = None
    ) -> None:
        self._init(func, tuple(args), int(num_inputs), attrs, span)


class PrimType(Type):
    """A scalar of TIR."""

    dtype: str

    def dtype_of_value(self) -> str:
        """The dtype of a variable of this type."""
        return self.dtype


class PointerType(Type):
    """Address of elements of ``element_type`` in memory of ``storage_scope``."""

    element_type: Type
    storage_scope: str = ""

    @property
    def memory(self) -> str:
        """The scope by name; "global" by default."""
        return self.storage_scope or "global"

    def dtype_of_value(self) -> str:
        """The dtype of a variable of this type."""
        return "handle"


def flat_types(type_: Type | None) -> list[AnyType]:
    """Return the types in nested tuples, in order; ``[type_]`` for any other type."""
    return [t for field in type_.fields for t in flat_types(field)] if isinstance(type_, TupleType) else [type_]


def tensors_of(type_: Type) -> list[TensorType]:
    """Return the tensors of a type, tuples flattened; parts of other types are left out."""
    return [t for t in flat_types(type_) if isinstance(t, TensorType)]


def known_tensors(type_: Type | None) -> list[TensorType] | None:
    """Return the tensors of a type; None where one has an unknown dimension, or a part is no tensor."""
    types = flat_types(type_)
    return types if all(isinstance(t, TensorType) and not t.is_dynamic for t in types) else None


def is_dynamic(type_: Type) -> bool:
    """Return whether a tensor in ``type_`` has an unknown dimension."""
    return any(tensor.is_dynamic for tensor in tensors_of(type_))


def scalar_type(dtype: str) -> TensorType:
    """The rank-0 tensor type of ``dtype``."""
    return TensorType((), dtype)
