"""``tvm.ir.container``: sequences of nodes are tuples, mappings dictionaries; how ``convert`` makes them."""

from __future__ import annotations

from collections.abc import ItemsView
from typing import Any

import numpy as np

from tilewright.ir import prim_ops as ops
from tilewright.runtime import registry


class _AnyOfTheKind(type):
    """Makes ``isinstance(x, Array)`` hold for every tuple, and ``isinstance(x, Map)`` for every dictionary."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__mro__[1])


class Array(tuple[Any, ...], metaclass=_AnyOfTheKind):
    """A sequence of nodes: a tuple with TVM's type name."""

    __slots__ = ()
    type_key = "Array"


class _Items(ItemsView[Any, Any]):
    """Pairs of key and value that are also counted: ``items()[0]``."""

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return list(self)[index]


class Map(dict[Any, Any], metaclass=_AnyOfTheKind):
    """A mapping of nodes, or of strings to them: a dictionary with TVM's type name."""

    __slots__ = ()
    type_key = "Map"

    def items(self) -> Any:
        """The pairs of key and value, in insertion order; ``items()[i]`` is one of them."""
        return _Items(self)


def _node(value: Any) -> Any:
    """A Python value as a node: numbers as literals, lists as ``Array``, dictionaries as ``Map``."""
    if isinstance(value, (bool, np.bool_)):
        return ops.const(bool(value), "bool")
    if isinstance(value, np.generic):
        return ops.const(value.item(), str(value.dtype))
    if isinstance(value, (int, float)):
        return ops.const(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return Array(registry.convert(v) for v in value)
    if isinstance(value, dict):
        return Map((k, registry.convert(v)) for k, v in value.items())
    return value


registry.set_node_maker(_node)

__all__ = ["Array", "Map"]
