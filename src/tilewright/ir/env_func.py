"""Functions that IR names instead of holding: ``tvm.ir.EnvFunc``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tilewright.ir.node import InternedNode
from tilewright.ir.op import Op
from tilewright.runtime.registry import get_global_func

_RELATIONS = "tvm.relay.type_relation."


class EnvFunc(InternedNode):
    """A function identified by its global name, which is all that JSON holds."""

    name: str

    def __new__(cls, name: str) -> Self:
        return cls._of(name)

    @staticmethod
    def get(name: str) -> EnvFunc:
        """The function ``name``: a registered global one, or ``tvm.relay.type_relation.Broadcast`` and the like.

        Raises:
            ValueError: there is none of that name.
        """
        _find(name)
        return EnvFunc(name)

    @property
    def func(self) -> Callable[..., Any]:
        """The registered function. A type relation takes (types, attrs, solver) and returns the result's type."""
        return _find(self.name)

    def __call__(self, *args: Any) -> Any:
        return self.func(*args)


def _find(name: str) -> Callable[..., Any]:
    relation = Op.type_relations.get(name.removeprefix(_RELATIONS)) if name.startswith(_RELATIONS) else None
    found = relation or get_global_func(name, allow_missing=True)
    if found is None:
        raise ValueError(
            f"there is no global function {name!r}; register it with tvm.register_func, or name a type relation: "
            + ", ".join(_RELATIONS + known for known in sorted(Op.type_relations))
        )
    return found
