"""Memory in expressions: buffers, and reads of memory or of tensors.

Grammar (added to that of ``ir.prim_expr``)::

    e ::= Load(dtype, buffer_var, index, predicate)      from flat memory; a vector when the index is one
        | BufferLoad(buffer, e*)                         before storage is flattened
        | ProducerLoad(producer, e*)                     element of a te.Tensor
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any as AnyType
from typing import ClassVar, Self

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.node import Node
from tilewright.ir.prim_expr import Call, PrimExpr, Ramp, Var
from tilewright.ir.type import PointerType, PrimType, as_shape


class StorageScope(str):
    """The name of a kind of memory. Called, it is its text: programs for TVM 0.8 write ``buffer.scope()``."""

    __slots__ = ()

    def __call__(self) -> str:
        return str(self)


class Buffer(Node):
    """``shape`` elements of ``dtype`` at ``data + elem_offset``; identity matters.

    Empty ``strides`` mean compact row-major. ``data_alignment`` is in bytes; ``offset_factor`` divides
    ``elem_offset``; with ``buffer_type`` "auto_broadcast", dimensions of extent 1 have stride 0.
    """

    READ: ClassVar[int] = 1
    WRITE: ClassVar[int] = 2

    data: Var
    dtype: str
    shape: tuple[PrimExpr, ...]
    strides: tuple[PrimExpr, ...]
    elem_offset: PrimExpr
    name: str
    data_alignment: int
    offset_factor: int
    buffer_type: str = ""

    make_store: ClassVar[Callable[..., AnyType]]  # set by tir.stmt, which defines BufferStore

    @property
    def scope(self) -> StorageScope:
        """The storage scope of the data pointer; "global" by default. ``scope()`` is the same, as in TVM 0.8."""
        annotation = self.data.type_annotation
        return StorageScope((annotation.storage_scope if isinstance(annotation, PointerType) else "") or "global")

    def access_ptr(
        self, access_mask: str | int, ptr_type: str = "handle", content_lanes: int = 1, offset: AnyType = 0
    ) -> PrimExpr:
        """Return the address of the element at ``offset``, for intrinsics and external functions.

        Parameters
        ----------
        access_mask : "r", "w" or "rw": what is done through the pointer
        content_lanes : lanes of the vectors that the pointer is to
        offset : in elements
        """
        if isinstance(access_mask, str):
            access_mask = sum({"r": self.READ, "w": self.WRITE}[letter] for letter in set(access_mask))
        extent = ops.as_expr(1)
        for d in self.shape:
            extent = extent * d
        if self.strides:
            extent = self.strides[0] * self.shape[0]
        start, extent = self.elem_offset + offset, extent - offset
        if content_lanes > 1:
            start, extent = ops.floordiv(start, content_lanes), ops.floordiv(extent, content_lanes)
        element = "int8" if self.dtype == "bool" else self.dtype
        pointee = ops.const(0, dt.with_lanes(element, content_lanes))
        return Call("handle", "tir.tvm_access_ptr", (pointee, self.data, start, extent, access_mask))

    def _vector_index(self, begin: Sequence[AnyType], count: int) -> list[AnyType]:
        indices = list(begin) if isinstance(begin, (list, tuple)) else [begin]
        if count > 1:
            indices[-1] = Ramp(ops.as_expr(indices[-1]), ops.as_expr(1), count)
        return indices

    def vload(self, begin: Sequence[AnyType], dtype: str | None = None) -> PrimExpr:
        """Load the element at ``begin``, or with a vector ``dtype`` elements from there along the last dimension."""
        count = dt.lanes(dtype or self.dtype) // dt.lanes(self.dtype)
        return BufferLoad(self, self._vector_index(begin, count))

    def vstore(self, begin: Sequence[AnyType], value: AnyType) -> AnyType:
        """Build the statement that stores ``value``, a scalar or a vector, at ``begin``."""
        value = ops.as_expr(value)
        return Buffer.make_store(self, value, self._vector_index(begin, dt.lanes(value.dtype) // dt.lanes(self.dtype)))


class Load(PrimExpr):
    """``buffer_var[index]`` in elements of ``dtype``; a ``Ramp`` index loads a vector."""

    buffer_var: Var
    index: PrimExpr
    predicate: PrimExpr

    def __new__(
        cls, dtype: str, buffer_var: AnyType, index: PrimExpr, predicate: PrimExpr | None = None, span: object = None
    ) -> Self:
        if not isinstance(buffer_var, Var):
            buffer_var = ops.as_expr(buffer_var)  # what ir_builder gives knows its pointer
        index = ops.as_expr(index)
        if predicate is None:
            predicate = ops.const(True, dt.make("bool", 1, dt.lanes(index.dtype)))
        return cls._of(dtype, buffer_var, index, predicate)


class BufferLoad(PrimExpr):
    """``buffer[indices]``"""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]

    def __new__(cls, buffer: Buffer, indices: Sequence[AnyType], span: object = None) -> Self:
        indices = tuple(ops.as_expr(i) for i in indices)
        lanes = dt.lanes(indices[-1].dtype) if indices else 1
        dtype = buffer.dtype if lanes == 1 else dt.with_lanes(buffer.dtype, lanes * dt.lanes(buffer.dtype))
        return cls._of(dtype, buffer, indices)


class ProducerLoad(PrimExpr):
    """Element ``indices`` of a tensor (``te.Tensor``)."""

    producer: AnyType
    indices: tuple[PrimExpr, ...]

    def __new__(cls, producer: AnyType, indices: Sequence[AnyType], span: object = None) -> Self:
        return cls._of(producer.dtype, producer, tuple(ops.as_expr(i) for i in indices))


def decl_buffer(
    shape: AnyType,
    dtype: str = "float32",
    name: str = "buffer",
    data: Var | None = None,
    strides: Sequence[AnyType] | None = None,
    elem_offset: AnyType = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
) -> Buffer:
    """Declare a buffer, as ``tvm.tir.decl_buffer``.

    ``data_alignment`` of -1 means the runtime's 64 bytes; a non-zero ``offset_factor`` without an
    ``elem_offset`` makes the offset a variable. With ``buffer_type`` "auto_broadcast" and no ``strides``, they are
    variables: what the function is called with says which are 0.
    """
    dtype = dt.in_full(dtype)
    shape = as_shape(shape)
    if buffer_type == "auto_broadcast" and not strides:
        strides = [Var("stride", d.dtype) for d in shape]
    if data is None:
        data = Var(name, PointerType(PrimType("int8" if dtype == "bool" else dtype), scope))
    if elem_offset is None:
        elem_offset = Var(f"{name}_elem_offset", "int32") if offset_factor else ops.as_expr(0)
    return Buffer(
        data,
        dtype,
        shape,
        tuple(ops.as_expr(s) for s in strides or ()),
        ops.as_expr(elem_offset),
        name,
        64 if data_alignment <= 0 else data_alignment,
        offset_factor or 1,
        buffer_type,
    )
