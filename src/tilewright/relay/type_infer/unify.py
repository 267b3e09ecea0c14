"""Unification of types: holes (``IncompleteType``) are bound to types until two types agree.

Types nest as deep as programs do (a tuple in a tuple, a function that returns a function), so nothing here recurses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.prim_expr import Any, IntImm, PrimExpr
from tilewright.ir.trampoline import Steps, run
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
from tilewright.relay.type_infer.dimensions import note_equal


def type_parts(type_: Type) -> tuple[Type, ...]:
    """Return the types that ``type_`` directly consists of."""
    match type_:
        case TupleType():
            return type_.fields
        case FuncType():
            return (*type_.arg_types, type_.ret_type)
        case RefType():
            return (type_.value,)
        case TypeCall():
            return (type_.func, *type_.args)
    return ()


def with_parts(type_: Type, parts: Sequence[Type]) -> Type:
    """Return ``type_`` with other parts; itself when they are the same."""
    if all(a is b for a, b in zip(type_parts(type_), parts, strict=True)):
        return type_
    match type_:
        case TupleType():
            return TupleType(parts, type_.span)
        case FuncType():
            return FuncType(parts[:-1], parts[-1], type_.type_params, type_.type_constraints, type_.span)
        case RefType():
            return RefType(parts[0], type_.span)
        case TypeCall():
            return TypeCall(parts[0], parts[1:], type_.span)
    return type_


def walk_type(type_: Type) -> Iterator[Type]:
    """Yield ``type_`` and all types in it, each object once."""
    stack, seen = [type_], {id(type_)}
    while stack:
        item = stack.pop()
        yield item
        for part in type_parts(item):
            if id(part) not in seen:
                seen.add(id(part))
                stack.append(part)


class Unifier:
    """Bindings of holes. ``unify(a, b)`` makes two types agree; ``resolve(t)`` replaces the holes that are bound."""

    def __init__(self) -> None:
        self.bindings: dict[IncompleteType, Type] = {}
        self._complete: dict[int, Type] = {}  # types without holes, by identity: they need no second look

    def find(self, type_: Type) -> Type:
        """Return ``type_`` itself, or the binding of the hole that it is."""
        while isinstance(type_, IncompleteType) and type_ in self.bindings:
            type_ = self.bindings[type_]
        return type_

    def resolve(self, type_: Type) -> Type:
        """Return ``type_`` with every bound hole replaced; the same object when there is none in it."""
        return type_ if self._is_resolved(type_) else run(self._resolve(type_))

    def _is_resolved(self, type_: Type) -> bool:
        return isinstance(type_, TensorType) or id(type_) in self._complete

    def _resolve(self, type_: Type) -> Steps[Type]:
        type_ = self.find(type_)
        if self._is_resolved(type_):
            return type_
        parts = []
        for part in type_parts(type_):
            parts.append(part if self._is_resolved(part) else (yield self._resolve(part)))
        result = with_parts(type_, parts)
        if not isinstance(result, IncompleteType) and all(map(self._is_resolved, parts)):
            self._complete[id(result)] = result
        return result

    def unify(self, a: Type, b: Type) -> Type:
        """Return the type that both are, binding holes. A dimension that is unknown on one side stays unknown.

        Raises:
            TypeInferenceError: the types cannot be the same.
        """
        return a if a is b else run(self._unify(a, b))

    def _unify(self, a: Type, b: Type) -> Steps[Type]:
        a, b = self.find(a), self.find(b)
        if a is b:
            return a
        if isinstance(a, IncompleteType):
            return self._bind(a, b)
        if isinstance(b, IncompleteType):
            return self._bind(b, a)
        merged = yield self._unify_structures(a, b)
        if merged is None:
            raise TypeInferenceError(f"{describe(self.resolve(a))} is not {describe(self.resolve(b))}")
        result: Type = merged
        return result

    def _bind(self, hole: IncompleteType, type_: Type) -> Type:
        resolved = self.resolve(type_)
        if not self._is_resolved(resolved) and any(t is hole for t in walk_type(resolved)):
            raise TypeInferenceError(f"a type would contain itself: {describe(resolved)}")
        self.bindings[hole] = type_
        return type_

    def _unify_structures(self, a: Type, b: Type) -> Steps[Type | None]:
        match a, b:
            case TensorType(), TensorType():
                return _unify_tensors(a, b)
            case TypeCall(args=()), GlobalTypeVar():
                return a if self.find(a.func) == b else None
            case GlobalTypeVar(), TypeCall(args=()):
                return b if self.find(b.func) == a else None
            case FuncType(), FuncType():
                count = min(len(a.type_params), len(b.type_params))
                a, b = _with_params(a, count), _with_params(b, count)
                b = _renamed(b, a)
            case TypeCall(), TypeCall():
                if self.find(a.func) != self.find(b.func):
                    return None
        parts_a, parts_b = type_parts(a), type_parts(b)
        if not parts_a or not parts_b or type(a) is not type(b) or len(parts_a) != len(parts_b):
            return a if a == b else None
        parts = []
        for x, y in zip(parts_a, parts_b, strict=True):
            parts.append(x if x is y else (yield self._unify(x, y)))
        return with_parts(a, parts)


def _with_params(type_: FuncType, count: int) -> FuncType:
    """Return ``type_`` with holes for all but its first ``count`` type parameters, as a less polymorphic function."""
    extra = type_.type_params[count:]
    result = substitute_type_vars(type_, {v: IncompleteType(v.kind) for v in extra}) if extra else type_
    assert isinstance(result, FuncType)
    return result


def _renamed(b: FuncType, a: FuncType) -> FuncType:
    """Return ``b`` with the type parameters of ``a``."""
    if not a.type_params:
        return b
    result = substitute_type_vars(b, dict(zip(b.type_params, a.type_params, strict=True)))
    assert isinstance(result, FuncType)
    return result


def unify_dims(a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    """Return the dimension that both are, ``Any`` when one is unknown, None when they differ."""
    if a is b:
        return a
    if isinstance(a, Any):
        return a
    if isinstance(b, Any):
        return b
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a if a.value == b.value else None
    if note_equal(a, b):
        return a if isinstance(a, IntImm) else b
    return None


def assert_equal_dims(a: object, b: object, what: str) -> bool:
    """Require two dimensions to be equal; return False while that is undecided.

    Raises:
        TypeInferenceError: they differ.
    """
    if a is b or isinstance(a, Any) or isinstance(b, Any):
        return True
    if isinstance(a, (int, IntImm)) and isinstance(b, (int, IntImm)):
        if int(a) != int(b):
            raise TypeInferenceError(f"{what}: expected {int(a)}, found {int(b)}")
        return True
    return note_equal(a, b)


def _unify_tensors(a: TensorType, b: TensorType) -> TensorType | None:
    if a.dtype != b.dtype or len(a.shape) != len(b.shape):
        return None
    if a.shape == b.shape:
        return a
    dims = [unify_dims(x, y) for x, y in zip(a.shape, b.shape, strict=True)]
    known = [d for d in dims if d is not None]
    return TensorType(known, a.dtype) if len(known) == len(dims) else None


def is_complete(type_: Type) -> bool:
    """Return whether a resolved type has no holes."""
    return isinstance(type_, TensorType) or not any(isinstance(t, IncompleteType) for t in walk_type(type_))


def _bare(type_: Type | None) -> Type | None:
    """Return a data type without parameters by its name, which is the same as its name applied to nothing."""
    return type_.func if isinstance(type_, TypeCall) and not type_.args else type_


def same_type(a: Type | None, b: Type | None) -> bool:
    """Return whether two types are structurally equal; ``Any`` dimensions equal each other, holes only themselves."""
    stack: list[tuple[Type | None, Type | None]] = [(a, b)]
    seen: set[tuple[int, int]] = set()
    alive: list[Type] = []  # types made on the way, so that no identity in ``seen`` is reused
    while stack:
        x, y = map(_bare, stack.pop())
        if x is y or (id(x), id(y)) in seen:
            continue
        seen.add((id(x), id(y)))
        if isinstance(x, TensorType) and isinstance(y, TensorType):
            if x.dtype != y.dtype or len(x.shape) != len(y.shape) or not all(map(_same_dim, x.shape, y.shape)):
                return False
            continue
        if isinstance(x, GlobalTypeVar) and isinstance(y, GlobalTypeVar) and x.name_hint == y.name_hint:
            continue
        if x is None or y is None or type(x) is not type(y):
            return False
        if isinstance(x, FuncType) and isinstance(y, FuncType):
            if len(x.type_params) != len(y.type_params):
                return False
            y = _renamed(y, x)
            alive.append(y)
        parts_x, parts_y = type_parts(x), type_parts(y)
        if len(parts_x) != len(parts_y) or not (parts_x or isinstance(x, TupleType)):
            return False
        stack.extend(zip(parts_x, parts_y, strict=True))
    return True


def _same_dim(a: PrimExpr, b: PrimExpr) -> bool:
    return a is b or (describe_dim(a) == describe_dim(b) and type(a) is type(b) and isinstance(a, (Any, IntImm)))


def substitute_type_vars(type_: Type, mapping: Mapping[TypeVar, Type]) -> Type:
    """Return ``type_`` with type variables replaced."""
    done: dict[int, Type] = {}

    def substitute(item: Type) -> Steps[Type]:
        if isinstance(item, TypeVar):
            return mapping.get(item, item)
        if id(item) in done:
            return done[id(item)]
        parts = []
        for part in type_parts(item):
            parts.append((yield substitute(part)))
        result = with_parts(item, parts)
        if isinstance(result, FuncType) and any(v in mapping for v in result.type_params):
            kept = [v for v in result.type_params if v not in mapping]
            result = FuncType(result.arg_types, result.ret_type, kept, result.type_constraints, result.span)
        done[id(item)] = result
        return result

    return run(substitute(type_))


def instantiate(type_: FuncType, type_args: Sequence[Type] = ()) -> FuncType:
    """Return a polymorphic function type at ``type_args``, or by default at fresh holes."""
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
