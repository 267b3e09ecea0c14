"""LowerWarpMemory: put a warp's memory into registers of its threads, and read others' elements by shuffles.

Before and after, for warps of 32 threads::

    attr [IterVar(threadIdx.x)] "thread_extent" = 32       attr [IterVar(threadIdx.x)] "thread_extent" = 32
    allocate(W: Pointer(warp float32), float32, [64])      allocate(W: Pointer(local float32), float32, [2])
    W[threadIdx.x] = A[threadIdx.x]                        W[0] = A[threadIdx.x]
    W[(threadIdx.x + 32)] = A[(threadIdx.x + 32)]          W[1] = A[(threadIdx.x + 32)]
    B[threadIdx.x] = W[floormod((threadIdx.x + 1), 32)]    B[threadIdx.x] = @tir.tvm_warp_shuffle(mask, W[0], ...)

Each thread holds what it stores: of ``W[m*threadIdx.x + (width*m)*y + x]`` with ``x < m`` the elements ``m*y + x``.
Storing other elements, or reading an element that is in different registers of different threads, is an error.
"""

from __future__ import annotations

from tilewright.arith.analyzer import Analyzer
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL, TARGET
from tilewright.ir.prim_expr import IntImm, PrimExpr, Ramp, Var
from tilewright.ir.transform import Pass
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir.expr import Call, Load
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate, AttrStmt, Stmt, Store
from tilewright.tir.transform.common import ScopedMutator, function_pass
from tilewright.tir.transform.threads import KernelMutator, ThreadAxes, storage_scope
from tilewright.tir.visitor import StmtVisitor, stmt_vars


class _Stores(StmtVisitor):
    """The indices that are stored to in one buffer."""

    def __init__(self, var: Var) -> None:
        super().__init__()
        self.var = var
        self.found: list[PrimExpr] = []

    def visit_store(self, s: Store) -> None:
        if s.buffer_var is self.var:
            self.found.append(s.index.base if isinstance(s.index, Ramp) else s.index)


class _Layout:
    """Layout of a buffer over a warp: which thread holds an element, in which register."""

    def __init__(self, var: Var, new: Var, neighbours: int, width: int) -> None:
        self.var = var
        self.new = new
        self.neighbours = neighbours
        self.width = width

    def owner(self, index: PrimExpr) -> PrimExpr:
        """The lane."""
        return ops.floormod(ops.floordiv(index, self.neighbours), self.width)

    def register(self, index: PrimExpr) -> PrimExpr:
        """The element of the lane's own buffer."""
        row = ops.floordiv(index, self.neighbours * self.width)
        return ops.add(ops.mul(row, self.neighbours), ops.floormod(index, self.neighbours))


class _Lower(ScopedMutator):
    """The accesses of warp memory in a kernel."""

    def __init__(self, axes: ThreadAxes, warp: int, name: str) -> None:
        super().__init__(Analyzer())
        self.axes = axes
        self.warp = warp
        self.name = name
        self.lanes = [v for v, tag in axes.tags.items() if tag == "threadIdx.x"]
        self.layouts: dict[Var, _Layout] = {}

    def _width(self) -> int:
        extent = self.axes.extent("threadIdx.x")
        if extent is None:
            raise TilewrightError(f"{self.name}: memory of warps needs a constant extent of threadIdx.x")
        if extent % self.warp and self.warp % extent:
            raise TilewrightError(
                f"{self.name}: memory of warps needs whole warps of {self.warp} threads, or a number that divides it; "
                f"threadIdx.x has {extent}"
            )
        return min(extent, self.warp)

    def visit_allocate(self, s: Allocate) -> Stmt:
        if storage_scope(s.buffer_var) != "warp":
            return super().visit_allocate(s)
        width = self._width()
        stores = _Stores(s.buffer_var)
        stores.visit_stmt(s.body)
        size = 1
        for extent in s.extents:
            if not isinstance(extent, IntImm):
                raise TilewrightError(
                    f"{self.name}: the size of {s.buffer_var.name}, memory of a warp, is not constant"
                )
            size *= extent.value
        neighbours = self._neighbours(s.buffer_var, stores.found) or size // width
        if not neighbours or size < width * neighbours:
            raise TilewrightError(
                f"{self.name}: {s.buffer_var.name}, memory of a warp, has {size} elements, which is fewer than its "
                f"{width} threads hold; Divide by zero is all that {size} // ({width} * {neighbours}) can give"
            )
        new = Var(s.buffer_var.name, PointerType(PrimType(s.dtype), "local"))
        self.layouts[s.buffer_var] = _Layout(s.buffer_var, new, neighbours, width)
        count = -(-size // (width * neighbours)) * neighbours
        return Allocate(new, s.dtype, [ops.const(count)], s.condition, self.visit_stmt(s.body), s.annotations)

    def _neighbours(self, var: Var, indices: list[PrimExpr]) -> int:
        """Return how many elements in a row one thread stores: the factor of threadIdx.x."""
        found: set[int] = set()
        for index in indices:
            terms, _ = self.analyzer.simplifier.difference(index, ops.const(0, index.dtype))
            found |= {factor for atom, factor in terms.items() if atom in self.lanes}
        if len(found) > 1 or any(f < 1 for f in found):
            raise TilewrightError(
                f"{self.name}: stores to {var.name} go by {sorted(found)} elements from thread to thread"
            )
        return next(iter(found), 0)

    def _is_own(self, layout: _Layout, index: PrimExpr) -> bool:
        own = ops.floormod(self.lanes[0], layout.width)
        lane = self.analyzer.simplify(layout.owner(index))
        return any(self.analyzer.can_prove_equal(lane, each) for each in (own, *self.lanes[:1]))

    def visit_store(self, s: Store) -> Stmt:
        new = super().visit_store(s)
        layout = self.layouts.get(s.buffer_var)
        if layout is None:
            return new
        assert isinstance(new, Store)
        first = new.index.base if isinstance(new.index, Ramp) else new.index
        if not self._is_own(layout, first):
            raise TilewrightError(
                f"{self.name}: {s.buffer_var.name}[{s.index}] is stored by other threads than the {layout.neighbours} "
                "elements of each thread in a row; let threadIdx.x store what it is the index of"
            )
        return Store(layout.new, new.value, self._register(layout, new.index), new.predicate)

    def _register(self, layout: _Layout, index: PrimExpr) -> PrimExpr:
        if isinstance(index, Ramp):
            if layout.neighbours % index.lanes or not ops.is_const_int(index.stride, 1):
                raise TilewrightError(f"{self.name}: a vector of {layout.var.name} lies in several threads")
            return Ramp(self.analyzer.simplify(layout.register(index.base)), index.stride, index.lanes)
        return self.analyzer.simplify(layout.register(index))

    def visit_load(self, e: Load) -> PrimExpr:
        new = super().visit_load(e)
        layout = self.layouts.get(e.buffer_var)
        if layout is None:
            return new
        assert isinstance(new, Load)
        first = new.index.base if isinstance(new.index, Ramp) else new.index
        place = self._register(layout, new.index)
        held = Load(e.dtype, layout.new, place, new.predicate)
        if self._is_own(layout, first):
            return held
        if any(v in self.lanes for v in stmt_vars(place)):
            raise TilewrightError(
                f"{self.name}: {e.buffer_var.name}[{e.index}] lies in register {place}, which differs between "
                "threads; a shuffle takes the same register of all"
            )
        if dt.lanes(e.dtype) > 1:
            raise TilewrightError(f"{self.name}: a vector of {layout.var.name} is read from another thread")
        lane = self.analyzer.simplify(layout.owner(first))
        mask = Call("uint32", "tir.tvm_warp_activemask", ())
        return Call(e.dtype, "tir.tvm_warp_shuffle", (mask, held, lane, layout.width, self.warp))


class _Kernels(KernelMutator):
    def __init__(self, warp: int, name: str) -> None:
        super().__init__()
        self.warp = warp
        self.name = name

    def visit_kernel(self, s: AttrStmt) -> Stmt:
        return _Lower(ThreadAxes(s), self.warp, self.name).visit_stmt(s)


def lower_warp_memory(func: PrimFunc) -> PrimFunc:
    """Turn the warp memory of a function's kernels into registers.

    Raises
    ------
    TilewrightError : the function has no target, or stores and reads that do not fit (see the head of this file)
    """
    target = TARGET.get(func)
    if target is None:
        raise TilewrightError("LowerWarpMemory needs functions with the attribute target")
    warp = max(int(target.attrs.get("thread_warp_size", 1)), 1)
    body = _Kernels(warp, GLOBAL_SYMBOL.get(func, "main")).visit_stmt(func.body)
    return func if body is func.body else func.with_body(body)


def LowerWarpMemory() -> Pass:
    """Put a warp's memory into registers of its threads, and read others' elements by shuffles."""
    return function_pass("LowerWarpMemory", lower_warp_memory)
