"""PoolAllocations: the large allocations of a function become parts of one buffer that its caller passes.

Before::

    primfn(A: handle)
      allocate(buf, float32, [4096]) body

After::

    primfn(A: handle, workspace: handle)
      let buf = tir.address_of(int8 workspace[0])
      body

For code that runs where nobody allocates: a caller that knows the size plans the buffer together with the tensors of
the network. Allocations that are never live at once share their bytes; iterations of a parallel loop share them too,
so the loop must run in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import dtype as dt
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL
from tilewright.ir.prim_expr import IntImm
from tilewright.tir import op as tir_op
from tilewright.tir.expr import Load, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate, LetStmt, Stmt
from tilewright.tir.visitor import StmtMutator

MAX_STACK_BYTES = 1024
"""Allocations up to this size stay on the stack, where a compiler keeps register tiles in registers."""

ALIGNMENT = 64


@dataclass(frozen=True)
class Pooled:
    """A function, and the bytes of the buffer that it takes as its last parameter; 0 where it takes none."""

    func: PrimFunc
    nbytes: int


class _Pool(StmtMutator):
    """Replaces allocations; those around the statement at hand end at ``top``."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.workspace = Var("workspace", "handle")
        self.top = self.nbytes = 0

    def visit_allocate(self, s: Allocate) -> Stmt:
        """Place a large allocation behind those that are live."""
        size = self._size(s)
        if size <= MAX_STACK_BYTES:
            return super().visit_allocate(s)
        start = self.top
        self.top += -(-size // ALIGNMENT) * ALIGNMENT
        self.nbytes = max(self.nbytes, self.top)
        body = self.visit_stmt(s.body)
        self.top = start
        first = Load("int8", self.workspace, IntImm("int32", start))
        return LetStmt(s.buffer_var, tir_op.address_of(first), body)

    def _size(self, s: Allocate) -> int:
        size = dt.nbytes(s.dtype) * dt.lanes(s.dtype)
        for extent in s.extents:
            if not isinstance(extent, IntImm):
                raise UnsupportedError(
                    f"{self.name}: {s.buffer_var.name} has {extent} elements, a number that is known when it runs; "
                    "code without an allocator needs numbers"
                )
            size *= extent.value
        return size


def pool_allocations(func: PrimFunc) -> Pooled:
    """Return ``func`` with the large allocations in a buffer of its caller.

    Raises
    ------
    UnsupportedError : the size of an allocation is not known
    """
    pool = _Pool(str(GLOBAL_SYMBOL.get(func, "the function")))
    body = pool.visit_stmt(func.body)
    if not pool.nbytes:
        return Pooled(func, 0)
    return Pooled(
        PrimFunc((*func.params, pool.workspace), body, func.ret_type, func.buffer_map, func.attrs), pool.nbytes
    )
