"""Buffers: typed views of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.node import Node
from tilewright.ir.prim_expr import PrimExpr, Var
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import PointerType, PrimType, as_shape


class Buffer(Node):
    """``shape`` elements of ``dtype`` at ``data + elem_offset``; identity matters.

    Empty ``strides`` mean compact row-major. ``data_alignment`` is in bytes; ``offset_factor`` divides
    ``elem_offset``; ``buffer_type`` "auto_broadcast" gives dimensions of extent 1 stride 0.
    """

    data: Var
    dtype: str
    shape: tuple[PrimExpr, ...]
    strides: tuple[PrimExpr, ...]
    elem_offset: PrimExpr
    name: str
    data_alignment: int
    offset_factor: int
    buffer_type: str = ""

    @property
    def scope(self) -> str:
        """The storage scope: "global" unless the data pointer says otherwise."""
        annotation = self.data.type_annotation
        return (annotation.storage_scope if isinstance(annotation, PointerType) else "") or "global"


def decl_buffer(
    shape: Any,
    dtype: str = "float32",
    name: str = "buffer",
    data: Var | None = None,
    strides: Sequence[Any] | None = None,
    elem_offset: Any = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
) -> Buffer:
    """Declare a buffer, as ``tvm.tir.decl_buffer``.

    ``data_alignment`` of -1 means the runtime's 64 bytes; a non-zero ``offset_factor`` without an
    ``elem_offset`` makes the offset a variable.
    """
    if data is None:
        data = Var(name, PointerType(PrimType("int8" if dtype == "bool" else dtype), scope))
    if elem_offset is None:
        elem_offset = Var(f"{name}_elem_offset", "int32") if offset_factor else as_expr(0)
    return Buffer(
        data,
        dtype,
        as_shape(shape),
        tuple(as_expr(s) for s in strides or ()),
        as_expr(elem_offset),
        name,
        64 if data_alignment <= 0 else data_alignment,
        offset_factor or 1,
        buffer_type,
    )
