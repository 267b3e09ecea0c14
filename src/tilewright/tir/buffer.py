"""Buffers: typed views of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.dtype import lanes, with_lanes
from tilewright.ir.node import Node
from tilewright.ir.prim_expr import PrimExpr, Ramp, Var
from tilewright.ir.prim_ops import as_expr, floordiv
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

    def access_ptr(
        self, access_mask: str | int, ptr_type: str = "handle", content_lanes: int = 1, offset: Any = 0
    ) -> PrimExpr:
        """Address of the element at ``offset``, as an intrinsic or outside function takes it.

        Parameters
        ----------
        access_mask : "r", "w" or "rw": what is done through the pointer
        content_lanes : lanes of the vectors that the pointer is to
        offset : in elements
        """
        from tilewright.tir.op import tvm_access_ptr

        if isinstance(access_mask, str):
            access_mask = sum({"r": 1, "w": 2}[letter] for letter in set(access_mask))
        extent = as_expr(1)
        for d in self.shape:
            extent = extent * d
        if self.strides:
            extent = self.strides[0] * self.shape[0]
        start, extent = self.elem_offset + offset, extent - offset
        if content_lanes > 1:
            start, extent = floordiv(start, content_lanes), floordiv(extent, content_lanes)
        element = "int8" if self.dtype == "bool" else self.dtype
        return tvm_access_ptr(with_lanes(element, content_lanes), self.data, start, extent, access_mask)

    def _vector_index(self, begin: Sequence[Any], count: int) -> list[Any]:
        indices = list(begin) if isinstance(begin, (list, tuple)) else [begin]
        if count > 1:
            indices[-1] = Ramp(as_expr(indices[-1]), as_expr(1), count)
        return indices

    def vload(self, begin: Sequence[Any], dtype: str | None = None) -> PrimExpr:
        """The element at ``begin``, or with a vector ``dtype`` the elements from there along the last dimension."""
        from tilewright.tir.expr import BufferLoad

        count = lanes(dtype or self.dtype) // lanes(self.dtype)
        return BufferLoad(self, self._vector_index(begin, count))

    def vstore(self, begin: Sequence[Any], value: Any) -> Any:
        """The statement that stores ``value``, a scalar or a vector, at ``begin``."""
        from tilewright.tir.stmt import BufferStore

        value = as_expr(value)
        return BufferStore(self, value, self._vector_index(begin, lanes(value.dtype) // lanes(self.dtype)))


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
