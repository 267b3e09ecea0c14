"""MergeDynamicSharedMemoryAllocations: the dynamic shared memory of a kernel becomes one allocation.

Before and after::

    attr [IterVar(threadIdx.x)] "thread_extent" = n           attr [IterVar(threadIdx.x)] "thread_extent" = n
    allocate(A: Pointer(shared.dyn float32), [n])             allocate(buf_dyn_shmem: ..., [(n*4 + 15)//16*16 + n*2])
    allocate(B: Pointer(shared.dyn float16), [n])             (float32*)buf_dyn_shmem[threadIdx.x] = 1f32
    A[threadIdx.x] = 1f32                                     (float16*)buf_dyn_shmem[threadIdx.x + (n*4 + 15)//16*8]
    B[threadIdx.x] = 1f16                                       = 1f16

A launch can bring one block of dynamic shared memory, whose size is known only then. Each part begins at a multiple of
16 bytes. ``ThreadSync`` comes before: parts of different buffers are never the same memory.
"""

from __future__ import annotations

from tilewright.arith.analyzer import Analyzer
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import PrimExpr, Ramp, Var
from tilewright.ir.transform import Pass
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir.expr import Call, Load
from tilewright.tir.stmt import Allocate, AttrStmt, Stmt, Store
from tilewright.tir.transform.common import body_pass
from tilewright.tir.transform.threads import KernelMutator, is_call, is_thread_scope, storage_scope
from tilewright.tir.visitor import StmtExprMutator, StmtVisitor

_ALIGNMENT = 16


class _Allocations(StmtVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Var, Allocate] = {}

    def visit_allocate(self, s: Allocate) -> None:
        if storage_scope(s.buffer_var) == "shared.dyn":
            self.found[s.buffer_var] = s
        super().visit_allocate(s)


class _Merge(StmtExprMutator):
    """Accesses of the parts become accesses of the whole."""

    def __init__(self, whole: Var, offsets: dict[Var, PrimExpr]) -> None:
        super().__init__()
        self.whole = whole
        self.offsets = offsets  # in bytes
        self.analyzer = Analyzer()

    def _moved(self, var: Var, index: PrimExpr, dtype: str) -> PrimExpr:
        step = self.analyzer.simplify(ops.floordiv(self.offsets[var], dt.nbytes(dt.element(dtype))))
        if isinstance(index, Ramp):
            return Ramp(ops.add(index.base, step), index.stride, index.lanes)
        return ops.add(index, step)

    def visit_allocate(self, s: Allocate) -> Stmt:
        return self.visit_stmt(s.body) if s.buffer_var in self.offsets else super().visit_allocate(s)

    def visit_load(self, e: Load) -> PrimExpr:
        new = super().visit_load(e)
        if e.buffer_var not in self.offsets:
            return new
        assert isinstance(new, Load)
        return Load(new.dtype, self.whole, self._moved(e.buffer_var, new.index, new.dtype), new.predicate)

    def visit_store(self, s: Store) -> Stmt:
        new = super().visit_store(s)
        if s.buffer_var not in self.offsets:
            return new
        assert isinstance(new, Store)
        return Store(self.whole, new.value, self._moved(s.buffer_var, new.index, new.value.dtype), new.predicate)

    def visit_call(self, e: Call) -> PrimExpr:
        if not is_call(e, "tvm_access_ptr") or e.args[1] not in self.offsets:
            return super().visit_call(e)
        kind, data, offset, extent, mask = e.args
        assert isinstance(data, Var)
        place = self._moved(data, self.visit_expr(offset), kind.dtype)
        return Call(e.dtype, e.op, (kind, self.whole, place, self.visit_expr(extent), mask))


class _Kernels(KernelMutator):
    def visit_kernel(self, s: AttrStmt) -> Stmt:
        allocations = _Allocations()
        allocations.visit_stmt(s)
        if len(allocations.found) < 2:
            return s
        analyzer = Analyzer()
        offsets: dict[Var, PrimExpr] = {}
        end: PrimExpr = ops.const(0)
        for var, alloc in allocations.found.items():
            offsets[var] = analyzer.simplify(ops.mul(ops.floordiv(end + (_ALIGNMENT - 1), _ALIGNMENT), _ALIGNMENT))
            size: PrimExpr = ops.const(dt.nbytes(dt.element(alloc.dtype)) * dt.lanes(alloc.dtype))
            for extent in alloc.extents:
                size = ops.mul(size, extent)
            end = ops.add(offsets[var], size)
        whole = Var("buf_dyn_shmem", PointerType(PrimType("uint8"), "shared.dyn"))
        body = _Merge(whole, offsets).visit_stmt(s)
        return _below_axes(body, whole, analyzer.simplify(end))


def _below_axes(s: Stmt, whole: Var, size: PrimExpr) -> Stmt:
    if isinstance(s, AttrStmt) and is_thread_scope(s):
        return s.replace(body=_below_axes(s.body, whole, size))
    return Allocate(whole, "uint8", [size], ops.const(True), s)


def merge_dynamic_shared_memory_allocations(stmt: Stmt) -> Stmt:
    """Merge the dynamic shared memory of each kernel of ``stmt``."""
    return _Kernels().visit_stmt(stmt)


def MergeDynamicSharedMemoryAllocations() -> Pass:
    """Merge the dynamic shared memory allocations of a kernel into one."""
    return body_pass("MergeDynamicSharedMemoryAllocations", merge_dynamic_shared_memory_allocations)
