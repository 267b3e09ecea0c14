"""``PrimFunc``: a function of TIR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.attrs import DictAttrs
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import BaseFunc
from tilewright.ir.memory import Buffer
from tilewright.ir.type import PrimType, Type
from tilewright.tir.expr import Var
from tilewright.tir.stmt import Stmt


@dataclass(eq=False)
class KeyedBody:
    """The body of a function, under the key by which a cache knows what is made of it.

    Attributes
    ----------
    key : the same for the same body, in every process
    made : what the cache has of it; TIR does not know what that is
    lower : makes the body, which is then kept, when it is first asked for
    """

    key: str
    made: Any
    lower: Callable[[], Stmt]
    _body: Stmt | None = None

    def body(self) -> Stmt:
        """Return the body."""
        if self._body is None:
            self._body = self.lower()
        return self._body


class PrimFunc(BaseFunc):
    """A function of scalars and buffers.

    ``buffer_map`` maps a handle parameter to its buffer; a ``Buffer`` passed as a parameter gets a handle. Attributes
    in use: ``global_symbol`` (the exported name), ``tir.noalias``, ``target``, ``calling_conv``,
    ``from_legacy_te_schedule``, ``tir.is_entry_func``. A ``KeyedBody`` in place of a body is lowered when the body is
    first read, and stays with copies that differ in attributes alone.
    """

    params: tuple[Var, ...]
    body: Stmt
    ret_type: Type
    buffer_map: dict[Var, Buffer]
    attrs: DictAttrs

    def __init__(
        self,
        params: Sequence[Any],
        body: Stmt | KeyedBody,
        ret_type: Type | None = None,
        buffer_map: Mapping[Var, Buffer] | None = None,
        attrs: DictAttrs | Mapping[str, Any] | None = None,
        span: object = None,
    ) -> None:
        if not isinstance(attrs, DictAttrs):
            attrs = DictAttrs(attrs)
        buffers = dict(buffer_map or {})
        variables = tuple(p if isinstance(p, Var) else _parameter(p, buffers) for p in params)
        self._init(variables, body, ret_type or PrimType("void"), buffers, attrs)

    @property
    def keyed_body(self) -> KeyedBody | None:
        """The body with its key, where it has one."""
        held = _held(self)
        return held if isinstance(held, KeyedBody) else None

    def replace(self, **changes: Any) -> PrimFunc:
        """Return a copy with some fields changed; a body with a key stays as it is beside changed attributes."""
        if changes.keys() == {"attrs"}:
            return PrimFunc(self.params, _held(self), self.ret_type, self.buffer_map, changes["attrs"])
        return super().replace(**changes)

    def with_body(self, new_body: Stmt) -> PrimFunc:
        """Copy with another body."""
        return PrimFunc(self.params, new_body, self.ret_type, self.buffer_map, self.attrs)


# The slot of ``body`` holds a statement or a ``KeyedBody``; this property stands before it and gives the statement.
_slot: Any = PrimFunc.__dict__["body"]
_held: Callable[[PrimFunc], Stmt | KeyedBody] = _slot.__get__


def _body(func: PrimFunc) -> Stmt:
    """The body; lowered now, if nobody has read it before."""
    held = _held(func)
    return held.body() if isinstance(held, KeyedBody) else held


PrimFunc.body = property(_body)  # type: ignore[assignment]


def _parameter(param: Any, buffers: dict[Var, Buffer]) -> Var:
    """Return the variable of a parameter that is a buffer, or an object with a variable (``IRBuilder.pointer``)."""
    if isinstance(param, Buffer):
        var = Var(param.name, "handle")
        buffers[var] = param
        return var
    known = param.asobject() if hasattr(param, "asobject") else param
    if not isinstance(known, Var):
        raise TilewrightError(f"a parameter of a PrimFunc is a Var or a Buffer, not {type(param).__name__}")
    return known
