"""``PrimFunc``: a function of TIR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.attrs import DictAttrs
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import BaseFunc
from tilewright.ir.memory import Buffer
from tilewright.ir.type import PrimType, Type
from tilewright.tir.expr import Var
from tilewright.tir.stmt import Stmt


class PrimFunc(BaseFunc):
    """A function of scalars and buffers.

    ``buffer_map`` maps a handle parameter to its buffer; a ``Buffer`` passed as a parameter gets a handle. Attributes
    in use: ``global_symbol`` (the exported name), ``tir.noalias``, ``target``, ``calling_conv``,
    ``from_legacy_te_schedule``, ``tir.is_entry_func``.
    """

    params: tuple[Var, ...]
    body: Stmt
    ret_type: Type
    buffer_map: dict[Var, Buffer]
    attrs: DictAttrs

    def __init__(
        self,
        params: Sequence[Any],
        body: Stmt,
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

    def with_body(self, new_body: Stmt) -> PrimFunc:
        """Copy with another body."""
        return PrimFunc(self.params, new_body, self.ret_type, self.buffer_map, self.attrs)


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
