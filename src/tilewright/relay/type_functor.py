"""Visitors and mutators of types, by TVM 0.8's names: one method a class of types.

``TypeFunctor`` dispatches, ``TypeVisitor`` visits every part, ``TypeMutator`` rebuilds a type from changed parts.
Types are as deep as a user writes them, not as a network is, so these recurse.
"""

from __future__ import annotations

import re
from typing import Any

from tilewright.ir.node import Node
from tilewright.ir.type import Type
from tilewright.relay.adt import TypeData


def _method_of(cls: type) -> str:
    words = re.findall(r"[A-Z][a-z]*", cls.__name__)
    return "visit_" + "_".join(word.lower() for word in words)


class TypeFunctor:
    """Dispatcher to ``visit_tensor_type``, ``visit_func_type``, ... by the class of the type; these call
    ``default``.
    """

    def visit(self, typ: Type | TypeData) -> Any:
        """Call the method for the class of ``typ``; raise NotImplementedError where there is none."""
        method = getattr(self, _method_of(type(typ)), None)
        return self.default(typ) if method is None else method(typ)

    def default(self, typ: Type | TypeData) -> Any:
        """Handle the types whose methods are not overridden."""
        raise NotImplementedError(f"{type(self).__name__} does not handle {type(typ).__name__}")

    def _by_default(self, typ: Any) -> Any:
        return self.default(typ)

    visit_type_var = visit_incomplete_type = visit_tensor_type = visit_func_type = visit_tuple_type = _by_default
    visit_type_relation = visit_ref_type = visit_global_type_var = visit_type_call = visit_type_data = _by_default


def _is_part(value: Any) -> bool:
    return isinstance(value, (Type, TypeData)) or (isinstance(value, Node) and "inputs" in type(value)._fields)


class TypeVisitor(TypeFunctor):
    """Visitor of all parts of a type."""

    def default(self, typ: Type | TypeData) -> Any:
        for name in type(typ)._fields:
            value = getattr(typ, name)
            for part in value if isinstance(value, tuple) else (value,):
                if _is_part(part):
                    self.visit(part)


class TypeMutator(TypeFunctor):
    """Mutator of types; a type none of whose parts changes stays the same object."""

    def default(self, typ: Type | TypeData) -> Any:
        changes: dict[str, Any] = {}
        for name in type(typ)._fields:
            value = getattr(typ, name)
            if isinstance(value, tuple):
                made: Any = tuple(self.visit(v) if _is_part(v) else v for v in value)
                changed = any(a is not b for a, b in zip(made, value, strict=True))
            else:
                made = self.visit(value) if _is_part(value) else value
                changed = made is not value
            if changed:
                changes[name] = made
        return typ.replace(**changes) if changes else typ
