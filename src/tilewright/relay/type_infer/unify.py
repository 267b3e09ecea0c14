"""Unification of types: holes (``IncompleteType``) are bound to types until two types agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.prim_expr import Any, IntImm, PrimExpr
from tilewright.ir.type import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)
from tilewright.relay.type_infer.describe import describe, describe_dim


class Unifier:
    """Bindings of holes. ``unify(a, b)`` makes two types agree; ``resolve(t)`` replaces the holes that are bound."""

    def __init__(self) -> None:
        self.bindings: dict[IncompleteType, Type] = {}

    def find(self, type_: Type) -> Type:
        """``type_`` itself, or what the hole that it is stands for so far."""
        while isinstance(type_, IncompleteType) and type_ in self.bindings:
            type_ = self.bindings[type_]
        return type_

    def resolve(self, type_: Type) -> Type:
        """``type_`` with every bound hole replaced; the same object when there is none in it."""
        if isinstance(type_, TensorType):
            return type_
        type_ = self.find(type_)
        match type_:
            case TupleType():
                fields = self._resolve_all(type_.fields)
                return type_ if fields is type_.fields else TupleType(fields, type_.span)
            case FuncType():
                args, ret = self._resolve_all(type_.arg_types), self.resolve(type_.ret_type)
                if args is type_.arg_types and ret is type_.ret_type:
                    return type_
                return FuncType(args, ret, type_.type_params, type_.type_constraints, type_.span)
            case RefType():
                value = self.resolve(type_.value)
                return type_ if value is type_.value else RefType(value, type_.span)
            case TypeCall():
                func, args = self.resolve(type_.func), self._resolve_all(type_.args)
                return type_ if func is type_.func and args is type_.args else TypeCall(func, args, type_.span)
        return type_

    def _resolve_all(self, types: tuple[Type, ...]) -> tuple[Type, ...]:
        resolved = tuple([self.resolve(t) for t in types])
        return types if all(a is b for a, b in zip(types, resolved, strict=True)) else resolved

    def unify(self, a: Type, b: Type) -> Type:
        """The type that both are; binds holes. A dimension that one side does not know stays unknown.

        Raises:
            TypeInferenceError: the types cannot be the same.
        """
        a, b = self.find(a), self.find(b)
        if a is b:
            return a
        if isinstance(a, IncompleteType):
            return self._bind(a, b)
        if isinstance(b, IncompleteType):
            return self._bind(b, a)
        merged = self._unify_structures(a, b)
        if merged is None:
            raise TypeInferenceError(f"{describe(self.resolve(a))} is not {describe(self.resolve(b))}")
        return merged

    def _bind(self, hole: IncompleteType, type_: Type) -> Type:
        if _occurs(hole, self.resolve(type_)):
            raise TypeInferenceError(f"a type would contain itself: {describe(self.resolve(type_))}")
        self.bindings[hole] = type_
        return type_

    def _unify_structures(self, a: Type, b: Type) -> Type | None:
        match a, b:
            case TensorType(), TensorType():
                return _unify_tensors(a, b)
            case TupleType(), TupleType():
                fields = self._unify_all(a.fields, b.fields)
                return None if fields is None else TupleType(fields)
            case FuncType(), FuncType():
                return self._unify_functions(a, b)
            case RefType(), RefType():
                return RefType(self.unify(a.value, b.value))
            case TypeCall(), TypeCall():
                args = self._unify_all(a.args, b.args)
                return None if args is None or not self._same_head(a.func, b.func) else TypeCall(a.func, args)
            case TypeCall(args=()), GlobalTypeVar():
                return a if self._same_head(a.func, b) else None
            case GlobalTypeVar(), TypeCall(args=()):
                return b if self._same_head(a, b.func) else None
        return a if a == b else None

    def _same_head(self, a: Type, b: Type) -> bool:
        return self.find(a) == self.find(b)

    def _unify_all(self, a: Sequence[Type], b: Sequence[Type]) -> list[Type] | None:
        return [self.unify(x, y) for x, y in zip(a, b, strict=True)] if len(a) == len(b) else None

    def _unify_functions(self, a: FuncType, b: FuncType) -> Type | None:
        if len(a.type_params) != len(b.type_params):
            return None
        if a.type_params:
            renamed = substitute_type_vars(b, dict(zip(b.type_params, a.type_params, strict=True)))
            assert isinstance(renamed, FuncType)
            b = renamed
        args = self._unify_all(a.arg_types, b.arg_types)
        if args is None:
            return None
        return FuncType(args, self.unify(a.ret_type, b.ret_type), a.type_params, a.type_constraints)


def unify_dims(a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    """The dimension that both are, ``Any`` when one is unknown, None when they differ."""
    if a is b:
        return a
    if isinstance(a, Any):
        return a
    if isinstance(b, Any):
        return b
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a if a.value == b.value else None
    return None


def _unify_tensors(a: TensorType, b: TensorType) -> TensorType | None:
    if a.dtype != b.dtype or len(a.shape) != len(b.shape):
        return None
    if a.shape == b.shape:
        return a
    dims = [unify_dims(x, y) for x, y in zip(a.shape, b.shape, strict=True)]
    known = [d for d in dims if d is not None]
    return TensorType(known, a.dtype) if len(known) == len(dims) else None


def _occurs(hole: IncompleteType, type_: Type) -> bool:
    match type_:
        case IncompleteType():
            return type_ is hole
        case TupleType():
            return any(_occurs(hole, t) for t in type_.fields)
        case FuncType():
            return any(_occurs(hole, t) for t in (*type_.arg_types, type_.ret_type))
        case RefType():
            return _occurs(hole, type_.value)
        case TypeCall():
            return any(_occurs(hole, t) for t in type_.args)
    return False


def is_complete(type_: Type) -> bool:
    """Whether no hole is left in a resolved type."""
    match type_:
        case TensorType():
            return True
        case IncompleteType():
            return False
        case TupleType():
            return all(map(is_complete, type_.fields))
        case FuncType():
            return is_complete(type_.ret_type) and all(map(is_complete, type_.arg_types))
        case RefType():
            return is_complete(type_.value)
        case TypeCall():
            return all(map(is_complete, type_.args))
    return True


def same_type(a: Type | None, b: Type | None) -> bool:
    """Whether two types are structurally equal; ``Any`` dimensions equal each other, holes only themselves."""
    if a is b:
        return True
    match a, b:
        case TensorType(), TensorType():
            return a.dtype == b.dtype and len(a.shape) == len(b.shape) and all(map(_same_dim, a.shape, b.shape))
        case TupleType(), TupleType():
            return _same_types(a.fields, b.fields)
        case FuncType(), FuncType():
            if len(a.type_params) != len(b.type_params):
                return False
            if a.type_params:
                b = substitute_type_vars(b, dict(zip(b.type_params, a.type_params, strict=True)))
                assert isinstance(b, FuncType)
            return same_type(a.ret_type, b.ret_type) and _same_types(a.arg_types, b.arg_types)
        case RefType(), RefType():
            return same_type(a.value, b.value)
        case TypeCall(), TypeCall():
            return same_type(a.func, b.func) and _same_types(a.args, b.args)
        case GlobalTypeVar(), GlobalTypeVar():
            return a.name_hint == b.name_hint
    return False


def _same_types(a: Sequence[Type], b: Sequence[Type]) -> bool:
    return len(a) == len(b) and all(map(same_type, a, b))


def _same_dim(a: PrimExpr, b: PrimExpr) -> bool:
    return a is b or (describe_dim(a) == describe_dim(b) and type(a) is type(b) and isinstance(a, (Any, IntImm)))


def substitute_type_vars(type_: Type, mapping: Mapping[TypeVar, Type]) -> Type:
    """``type_`` with type variables replaced."""
    match type_:
        case TypeVar():
            return mapping.get(type_, type_)
        case TupleType():
            return TupleType([substitute_type_vars(t, mapping) for t in type_.fields])
        case FuncType():
            args = [substitute_type_vars(t, mapping) for t in type_.arg_types]
            ret = substitute_type_vars(type_.ret_type, mapping)
            kept = [v for v in type_.type_params if v not in mapping]
            return FuncType(args, ret, kept, type_.type_constraints)
        case RefType():
            return RefType(substitute_type_vars(type_.value, mapping))
        case TypeCall():
            args = [substitute_type_vars(t, mapping) for t in type_.args]
            return TypeCall(substitute_type_vars(type_.func, mapping), args)
    return type_


def instantiate(type_: FuncType, type_args: Sequence[Type] = ()) -> FuncType:
    """A polymorphic function type at ``type_args``, or at fresh holes when none are given."""
    if not type_.type_params:
        return type_
    if type_args and len(type_args) != len(type_.type_params):
        raise TypeInferenceError(
            f"{describe(type_)} takes {len(type_.type_params)} type arguments, got {len(type_args)}"
        )
    values = list(type_args) or [IncompleteType(v.kind) for v in type_.type_params]
    result = substitute_type_vars(type_, dict(zip(type_.type_params, values, strict=True)))
    assert isinstance(result, FuncType)
    return result
