"""StorageFlatten: turn accesses of buffers with many dimensions into loads and stores of flat memory.

Before and after, with ``B`` realised for rows 4 to 7 only::

    realize(B, [[4:8], [0:16]]) {             allocate(B: Pointer(global float32), float32, [64]), ...
      for (i: int32, 4, 8) {                  for (i: int32, 4, 8) {
        for (j: int32, 0, 16) {                 for (j: int32, 0, 16) {
          B[i, j] = A[i, j]                       B[(((i*16) + j) - 64)] = (float32*)A_2[((i*16) + j)]
        }                                       }
      }                                       }
    }

``bool`` lives in memory as ``int8``. Attributes on the way: ``buffer_dim_align`` pads strides, ``buffer_bind_scope``
makes one buffer a window of another, ``Prefetch`` becomes prefetch instructions, one for each cache line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.memory import Buffer
from tilewright.ir.prim_expr import Broadcast, Call, IntImm, PrimExpr, Ramp, Var
from tilewright.ir.transform import Pass
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir.expr import BufferLoad, Load, Range
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    Allocate,
    AttrStmt,
    BufferRealize,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    Prefetch,
    Stmt,
    Store,
)  # fmt: skip
from tilewright.tir.transform.common import ScopedMutator, function_pass

_TRUE = IntImm("bool", 1)


@dataclass(frozen=True)
class _Storage:
    """Memory of a buffer: ``data[offset + sum((index - low) * stride)]`` in elements of ``dtype``."""

    data: Var
    dtype: str
    lows: tuple[PrimExpr, ...]
    strides: tuple[PrimExpr, ...]
    offset: PrimExpr


def compact_strides(extents: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """Row-major strides of a dense tensor."""
    strides: list[PrimExpr] = []
    stride: PrimExpr | None = None
    for extent in reversed(extents):
        strides.append(ops.const(1, extent.dtype) if stride is None else stride)
        stride = extent if stride is None else ops.mul(extent, stride)
    return tuple(reversed(strides))


def _memory_dtype(dtype: str) -> str:
    return dt.make("int", 8, dt.lanes(dtype)) if dt.is_bool(dtype) else dtype


class _Flatten(ScopedMutator):
    def __init__(self, func: PrimFunc, cache_line_size: int) -> None:
        super().__init__()
        self.cache_line_size = cache_line_size
        self.storage: dict[Buffer, _Storage] = {}
        self.variables: dict[Var, PrimExpr] = {}
        self.alignment: dict[Buffer, dict[int, tuple[int, int]]] = {}
        for buffer in func.buffer_map.values():
            self.storage[buffer] = _Storage(
                buffer.data, buffer.dtype, (), buffer.strides or compact_strides(buffer.shape), buffer.elem_offset
            )

    def visit_var(self, e: Var) -> PrimExpr:
        return self.variables.get(e, e)

    def _find(self, buffer: Buffer) -> _Storage:
        found = self.storage.get(buffer)
        if found is None:
            raise TilewrightError(
                f"buffer {buffer.name} is accessed where it is neither a parameter nor realised; "
                "give it to lower() as an argument"
            )
        return found

    def _index(self, storage: _Storage, buffer: Buffer, indices: Sequence[PrimExpr]) -> PrimExpr:
        total = storage.offset
        if len(indices) != len(storage.strides):
            raise TilewrightError(
                f"buffer {buffer.name} of {len(storage.strides)} dimensions is accessed with {len(indices)} indices"
            )
        for i, (index, stride) in enumerate(zip(indices, storage.strides, strict=True)):
            if storage.lows:
                index = ops.sub(index, storage.lows[i])
            total = ops.add(total, ops.mul(index, stride))
        lanes = dt.lanes(storage.dtype)
        if lanes > 1:
            total = Ramp(ops.mul(total, lanes), ops.const(1, total.dtype), lanes)
        return self.analyzer.simplify(total)

    def visit_buffer_load(self, e: BufferLoad) -> PrimExpr:
        storage = self._find(e.buffer)
        index = self._index(storage, e.buffer, self.visit_exprs(e.indices))
        load = Load(_memory_dtype(e.dtype), storage.data, index)
        return ops.cast(e.dtype, load) if dt.is_bool(e.dtype) else load

    def visit_load(self, e: Load) -> PrimExpr:
        new = super().visit_load(e)
        target = self.variables.get(e.buffer_var)
        return new if target is None else new.replace(buffer_var=target)

    def visit_buffer_store(self, s: BufferStore) -> Stmt:
        storage = self._find(s.buffer)
        value = self.visit_expr(s.value)
        if dt.is_bool(value.dtype):
            value = ops.cast(_memory_dtype(value.dtype), value)
        index = self._index(storage, s.buffer, self.visit_exprs(s.indices))
        lanes = dt.lanes(index.dtype)
        if dt.lanes(value.dtype) < lanes:
            value = Broadcast(value, lanes)
        return Store(storage.data, value, index)

    def visit_store(self, s: Store) -> Stmt:
        new = super().visit_store(s)
        target = self.variables.get(s.buffer_var)
        return new if target is None else new.replace(buffer_var=target)

    def visit_buffer_realize(self, s: BufferRealize) -> Stmt:
        if s.buffer in self.storage:  # a parameter: memory is there already
            return self.visit_stmt(s.body)
        bounds = [self.visit_range(r) for r in s.bounds]
        extents = [self.analyzer.simplify(r.extent) for r in bounds]
        lows = tuple([self.analyzer.simplify(r.min) for r in bounds])
        strides = self._aligned_strides(s.buffer, extents)
        data = self._allocated_var(s.buffer)
        self.storage[s.buffer] = _Storage(data, s.buffer.dtype, lows, strides, ops.const(0, _index_dtype(extents)))
        self.variables[s.buffer.data] = data
        for stride, own in zip(strides, s.buffer.strides, strict=False):
            if isinstance(own, Var):
                self.variables[own] = stride
        if isinstance(s.buffer.elem_offset, Var):
            self.variables[s.buffer.elem_offset] = ops.const(0, s.buffer.elem_offset.dtype)
        self.forget_results()
        body = self.visit_stmt(s.body)
        size = self.analyzer.simplify(ops.mul(strides[0], extents[0])) if extents else ops.const(1, "int32")
        return Allocate(data, _memory_dtype(s.buffer.dtype), [size], self.visit_expr(s.condition), body)

    def _allocated_var(self, buffer: Buffer) -> Var:
        dtype = _memory_dtype(buffer.dtype)
        annotation = buffer.data.type_annotation
        wanted = PointerType(PrimType(dtype), buffer.scope())
        if isinstance(annotation, PointerType) and annotation.storage_scope == buffer.scope:
            return buffer.data
        return Var(buffer.data.name, wanted)

    def _aligned_strides(self, buffer: Buffer, extents: list[PrimExpr]) -> tuple[PrimExpr, ...]:
        alignment = self.alignment.get(buffer)
        if alignment is None:
            return compact_strides(extents)
        strides: list[PrimExpr] = []
        stride: PrimExpr = ops.const(1, _index_dtype(extents))
        for dim in range(len(extents) - 1, -1, -1):
            if dim in alignment:
                factor, offset = alignment[dim]
                stride = stride + ops.floormod(factor + offset - ops.floormod(stride, factor), factor)
                stride = self.analyzer.simplify(stride)
            strides.append(stride)
            stride = self.analyzer.simplify(ops.mul(stride, extents[dim]))
        return tuple(reversed(strides))

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key == "buffer_dim_align":
            dim, factor, offset = [int(a) for a in s.value.args]  # type: ignore[attr-defined]
            self.alignment.setdefault(_as_buffer(s.node), {})[dim] = (factor, offset)
            return self.visit_stmt(s.body)
        if s.attr_key == "realize_scope":
            return self.visit_stmt(s.body)
        if s.attr_key == "buffer_bind_scope":
            return self._bind_window(s)
        if isinstance(s.node, Buffer):
            body = self.visit_stmt(s.body)
            inner = self.storage.get(s.node)
            return AttrStmt(inner.data if inner else s.node.data, s.attr_key, self.visit_expr(s.value), body)
        if isinstance(s.node, Var) and s.node in self.variables:
            s = s.replace(node=self.variables[s.node])
        return super().visit_attr(s)

    def _bind_window(self, s: AttrStmt) -> Stmt:
        """Bind the buffer of ``[window, target] "buffer_bind_scope" = tvm_tuple(begin0, extent0, ...)``."""
        window, target = s.node
        storage = self._find(target)
        region = [self.visit_expr(a) for a in s.value.args]  # type: ignore[attr-defined]
        begins, extents = region[0::2], region[1::2]
        rank = len(window.shape)
        skipped = len(begins) - rank
        if skipped < 0:
            raise TilewrightError(
                f"buffer {window.name} of {rank} dimensions is bound to {target.name} of {len(begins)}"
            )
        strides = storage.strides[skipped:]
        flat = replace(storage, dtype=dt.element(storage.dtype))
        offset = self._index(flat, target, begins)
        self.variables[window.data] = storage.data
        values = [(window.elem_offset, offset), *zip(window.shape, extents[skipped:], strict=True)]
        values += list(zip(window.strides, strides, strict=False))
        for own, value in values:
            self._bind_value(window, own, value)
        own_strides = window.strides or compact_strides(window.shape)
        self.forget_results()
        self.storage[window] = _Storage(
            storage.data, window.dtype, (), tuple([self.visit_expr(x) for x in own_strides]), offset
        )
        if not window.strides and not self._is_compact(extents[skipped:], strides):
            raise TilewrightError(
                f"buffer {window.name} needs compact memory, but it is a strided window of {target.name}; "
                "declare it with strides"
            )
        return self.visit_stmt(s.body)

    def _bind_value(self, window: Buffer, own: PrimExpr, value: PrimExpr) -> None:
        if isinstance(own, Var):
            self.variables[own] = ops.cast(own.dtype, value)
        elif self.analyzer.can_prove(ops.not_equal(own, value)):
            raise TilewrightError(f"buffer {window.name} asks for {own}, the window it is bound to has {value}")

    def _is_compact(self, extents: Sequence[PrimExpr], strides: Sequence[PrimExpr]) -> bool:
        wanted = compact_strides(extents)
        return all(
            ops.is_const_int(e, 1) or self.analyzer.can_prove_equal(a, b)
            for e, a, b in zip(extents, wanted, strides, strict=True)
        )

    def visit_prefetch(self, s: Prefetch) -> Stmt:
        storage = self._find(s.buffer)
        bounds = [self.visit_range(r) for r in s.bounds]
        inner = self._whole_inner_dimensions(s.buffer, bounds)
        loop_vars = [Var(f"prefetch.{s.buffer.name}.{i}", r.extent.dtype) for i, r in enumerate(bounds)]
        step = max(1, self.cache_line_size // dt.nbytes(s.buffer.dtype))
        indices = [ops.add(r.min, v) for r, v in zip(bounds[:inner], loop_vars, strict=False)]
        rest = bounds[inner:]
        count = ops.const(1, "int32")
        for r in rest:
            count = ops.mul(count, r.extent)
        line = Var(f"prefetch.{s.buffer.name}.line", count.dtype)
        base = self._index(storage, s.buffer, indices + [r.min for r in rest])
        address = Call("handle", "tir.address_of", (Load(s.buffer.dtype, storage.data, base + line * step),))
        body: Stmt = Evaluate(Call("handle", "tir.prefetch", (address, 0, s.locality, 1)))
        lines = self.analyzer.simplify(ops.floordiv(ops.add(count, step - 1), step))
        body = For(line, 0, lines, ForKind.SERIAL, body)
        for var, r in reversed(list(zip(loop_vars[:inner], bounds[:inner], strict=True))):
            body = For(var, 0, r.extent, ForKind.SERIAL, body)
        return body

    def _whole_inner_dimensions(self, buffer: Buffer, bounds: Sequence[Range]) -> int:
        """The first dimension from which on the region is contiguous."""
        first = len(bounds) - 1
        while first > 0 and self.analyzer.can_prove_equal(bounds[first].extent, buffer.shape[first]):
            first -= 1
        return first


def _index_dtype(extents: Sequence[PrimExpr]) -> str:
    return extents[0].dtype if extents else "int32"


def _as_buffer(node: Any) -> Buffer:
    if not isinstance(node, Buffer):
        raise TilewrightError(f"buffer_dim_align is about a buffer, got {node}")
    return node


def storage_flatten(func: PrimFunc, cache_line_size: int = 64) -> PrimFunc:
    """Flatten all buffers of ``func``; ``cache_line_size`` in bytes spaces prefetches."""
    flatten = _Flatten(func, cache_line_size)
    for buffer in func.buffer_map.values():
        for dim in buffer.shape:
            if isinstance(dim, Var):
                flatten.analyzer.context.var_bounds[dim] = (0, dt.int_range(dim.dtype)[1])
    body = flatten.visit_stmt(func.body)
    return func if body is func.body else func.with_body(body)


def StorageFlatten(cache_line_size: int = 64, create_bound_attribute: bool = False) -> Pass:
    """Flatten buffers to pointers, and indices to offsets."""
    return function_pass("StorageFlatten", lambda func: storage_flatten(func, cache_line_size))
