"""Immutable, slotted nodes: the base of every IR level.

A node class declares its fields as annotations; the metaclass turns them into slots and writes the
constructor, so that a class body reads as the node's grammar (``cls._fields`` lists them)::

    class Select(PrimExpr):
        condition: PrimExpr
        true_value: PrimExpr
        false_value: PrimExpr

A field may have a default (``span: Span | None = None``). Fields of base classes come first; one that is
declared again keeps its place and takes the new default. A class that has to normalise its arguments defines
``__init__`` and ends it with ``self._init(...)``, passing every field in order. Names that start with an underscore
are private state, not fields; they are declared in ``__slots__``.

Nodes compare by identity. ``InternedNode`` (scalar expressions) is hash-consed: constructing an equal node twice
returns the same object, so identity *is* equality and a memo table is a plain dictionary. Their classes have
``__new__`` and ``cls._of(...)`` in place of ``__init__`` and ``self._init(...)``.
"""

from __future__ import annotations

import struct
import weakref
from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NoReturn, Self, dataclass_transform

_MISSING = object()


def _is_field(name: str, annotation: object) -> bool:
    return not name.startswith("_") and "ClassVar" not in str(annotation)


def _make_init(cls: type, fields: tuple[str, ...], defaults: dict[str, Any]) -> Callable[..., None]:
    """Compile ``__init__`` once per class: it writes straight through the slot descriptors."""
    scope: dict[str, Any] = {}
    params, body = [], []
    for name in fields:
        scope[f"set_{name}"] = getattr(cls, name).__set__
        if name in defaults:
            scope[f"default_{name}"] = defaults[name]
            params.append(f"{name}=default_{name}")
        else:
            params.append(name)
        body.append(f"    set_{name}(self, {name})")
    source = f"def __init__(self{''.join(', ' + p for p in params)}):\n" + ("\n".join(body) or "    pass")
    exec(source, scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


@dataclass_transform(frozen_default=True, eq_default=False)
class NodeMeta(type):
    """Turns the annotations of a class body into slots, a constructor and ``cls._fields``."""

    _fields: tuple[str, ...]
    _defaults: dict[str, Any]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> NodeMeta:
        own = [n for n, a in namespace.get("__annotations__", {}).items() if _is_field(n, a)]
        inherited: list[str] = []
        defaults: dict[str, Any] = {}
        for base in bases:
            if isinstance(base, NodeMeta):
                inherited += [f for f in base._fields if f not in inherited]
                defaults.update(base._defaults)
        for field in own:
            value = namespace.pop(field, _MISSING)
            if value is not _MISSING:
                defaults[field] = value
        new = tuple(f for f in own if f not in inherited)
        namespace["__slots__"] = new + tuple(namespace.get("__slots__", ()))
        cls = super().__new__(mcs, name, bases, namespace, **kwargs)
        cls._fields = tuple(inherited) + new
        cls._defaults = defaults
        init = _make_init(cls, cls._fields, defaults)
        cls._init = init  # type: ignore[attr-defined]
        if own and "__init__" not in namespace:
            cls.__init__ = init  # type: ignore[misc]
        return cls


_PRINTERS: dict[type, Callable[[Any], str]] = {}


_SHORT_PRINTERS: dict[type, Callable[[Any], str]] = {}


def register_printer(
    cls: type, printer: Callable[[Any], str], short_printer: Callable[[Any], str] | None = None
) -> None:
    """Make ``printer`` the text of ``str(node)`` for ``cls`` and its subclasses.

    ``repr(node)`` and ``f"{node}"`` use ``short_printer``, if passed: messages stay short.
    """
    _PRINTERS[cls] = printer
    if short_printer is not None:
        _SHORT_PRINTERS[cls] = short_printer


class Node(metaclass=NodeMeta):
    """Base of all IR nodes: immutable, slotted, compared by identity."""

    __slots__ = ("__weakref__",)
    _fields: ClassVar[tuple[str, ...]]
    _defaults: ClassVar[dict[str, Any]]
    _init: ClassVar[Callable[..., None]]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"{type(self).__name__} is immutable; build a new one with replace({name}=...) instead of assigning"
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def replace(self, **changes: Any) -> Self:
        """Return a copy of this node with some fields changed."""
        values = {name: getattr(self, name) for name in type(self)._fields}
        unknown = changes.keys() - values.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        return type(self)(**(values | changes))

    def same_as(self, other: object) -> bool:
        """Return whether ``other`` is this very node."""
        return self is other

    def field_values(self) -> Iterator[tuple[str, Any]]:
        """The fields as (name, value), in declaration order."""
        for name in type(self)._fields:
            yield name, getattr(self, name)

    def __str__(self) -> str:
        for cls in type(self).__mro__:
            if printer := _PRINTERS.get(cls):
                return printer(self)
        inner = ", ".join(f"{n}={v!r}" for n, v in self.field_values() if n != "span")
        return f"{type(self).__name__}({inner})"

    def __repr__(self) -> str:
        for cls in type(self).__mro__:
            if printer := _SHORT_PRINTERS.get(cls):
                return printer(self)
        return str(self)

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def astext(self, show_meta_data: bool = True, annotate: Callable[[Any], str] | None = None) -> str:
        """Return the node as text; nodes with metadata or annotations override this with the same parameters."""
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return node_of_fields, (type(self), tuple(value for _, value in self.field_values()))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class BaseExpr(Node):
    """Base of the expressions of all levels: Relay's and scalar ones."""

    __slots__ = ()


class _Reference(weakref.ref[Any]):
    """A weak reference to an interned node, which knows the node's key."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_REFERENCES: dict[tuple[Any, ...], _Reference] = {}


def _forget(reference: _Reference, remove: Any = _remove_dead_weakref, table: Any = _REFERENCES) -> None:
    """Remove a dead node from the table, unless another one has replaced it.

    It uses its defaults only: at interpreter exit, nodes die after this module's names.
    """
    remove(table, reference.key)


def _interned(key: tuple[Any, ...], node: Any) -> Any:
    """The one node of ``key``: ``node``, unless another thread was faster. Each step on the table is atomic."""
    reference = _Reference(node, _forget)
    reference.key = key
    while True:
        first = _REFERENCES.setdefault(key, reference)
        if first is reference:
            return node
        found = first()
        if found is not None:
            return found
        _forget(first)


def _float_bits(value: float) -> bytes:
    """Return the bits of a float as a key: -0.0 differs from 0.0, and a NaN equals itself."""
    return struct.pack("<d", value)


def _make_of(cls: type, fields: tuple[str, ...], unique: bool, floats: set[str]) -> Callable[..., Any]:
    """Compile ``cls._of``, which returns the node of some fields, once per class: no function runs more often."""
    scope: dict[str, Any] = {"cls": cls, "known": _REFERENCES.get, "interned": _interned, "new": object.__new__}
    scope["float_bits"] = _float_bits
    key = ", ".join(["cls", *(f"float_bits({name})" if name in floats else name for name in fields)])
    look_up = [f"key = ({key},)", "reference = known(key)", "if reference is not None:", "    node = reference()"]
    look_up += ["    if node is not None:", "        return node"]
    make = ["node = new(cls)", *(f"set_{name}(node, {name})" for name in fields)]
    scope |= {f"set_{name}": getattr(cls, name).__set__ for name in fields}
    body = [*make, "return node"] if unique else [*look_up, *make, "return interned(key, node)"]
    exec("\n    ".join([f"def _of({', '.join(fields)}):", *body]), scope)
    made: Callable[..., Any] = scope["_of"]
    made.__qualname__ = f"{cls.__qualname__}._of"
    return made


def _make_new(fields: tuple[str, ...], defaults: dict[str, Any]) -> Callable[..., Any]:
    """Compile ``__new__`` of a class that takes its fields without conversion."""
    params = [f"{name}=default[{name!r}]" if name in defaults else name for name in fields]
    scope: dict[str, Any] = {"default": defaults}
    exec(f"def __new__(cls, {', '.join(params)}):\n    return cls._of({', '.join(fields)})", scope)
    made: Callable[..., Any] = scope["__new__"]
    return made


class InternMeta(NodeMeta):
    """Hash-conses: two constructions with identical fields return one object."""

    _unique: bool
    _floats: set[str]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> InternMeta:
        if "__init__" in namespace:
            raise TypeError(f"{name} is interned: it has __new__, which ends with cls._of(...), in place of __init__")
        annotations = namespace.get("__annotations__", {})
        cls = super().__new__(mcs, name, bases, namespace, **kwargs)
        assert isinstance(cls, InternMeta)
        cls.__init__ = object.__init__  # type: ignore[misc]  # all is done when there is an object
        cls._floats = {field for field, annotation in annotations.items() if annotation == "float"}  # type: ignore[misc]
        cls._floats.update(*(getattr(base, "_floats", ()) for base in bases))
        cls._of = staticmethod(_make_of(cls, cls._fields, cls._unique, cls._floats))  # type: ignore[attr-defined]
        if "__new__" not in namespace and any(_is_field(*item) for item in annotations.items()):
            cls.__new__ = _make_new(cls._fields, cls._defaults)  # type: ignore[method-assign]
        return cls


class InternedNode(Node, metaclass=InternMeta):
    """A hash-consed node. Its fields must be hashable (nodes, tuples, numbers, strings).

    A class that has to normalise its arguments defines ``__new__`` and ends it with ``return cls._of(...)``, giving
    every field in order. One whose every construction is a new thing, such as a variable, sets ``_unique``.
    """

    _unique: ClassVar[bool] = False

    @classmethod
    def _of(cls, *values: Any) -> Self:
        """The node that has these fields, in order; the metaclass writes one for each class."""
        raise NotImplementedError


def node_of_fields(cls: type[Node], values: Iterable[Any]) -> Any:
    """Create a node from its fields in the order of ``cls._fields``; the caller guarantees that they fit."""
    if isinstance(cls, InternMeta):
        return cls._of(*values)  # type: ignore[attr-defined]
    node: Any = object.__new__(cls)
    node._init(*values)
    return node
