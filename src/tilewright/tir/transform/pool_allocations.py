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

from tilewright.ir import dtype as dt
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL
from tilewright.ir.prim_expr import IntImm
from tilewright.tir import op as tir_op
from tilewright.tir.expr import Load, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import POOL_BYTES
from tilewright.tir.stmt import Allocate, LetStmt, Stmt
from tilewright.tir.visitor import StmtMutator

MAX_STACK_BYTES = 1024
"""Allocations up to this size stay on the stack, where a compiler keeps register tiles in registers."""


class _Pool(StmtMutator):
    """Replaces allocations; those around the statement at hand end at ``top``."""

    def __init__(self, name: str, alignment: int) -> None:
        super().__init__()
        self.name, self.alignment = name, alignment
        self.workspace = Var("workspace", "handle")
        self.top = self.nbytes = 0

    def visit_allocate(self, s: Allocate) -> Stmt:
        """Place a large allocation behind those that are live."""
        size = self._size(s)
        if size <= MAX_STACK_BYTES:
            return super().visit_allocate(s)
        start = self.top
        self.top += -(-size // self.alignment) * self.alignment
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


def pool_allocations(func: PrimFunc, alignment: int = 64) -> PrimFunc:
    """Return ``func`` with the large allocations in a buffer that is its last parameter, unless it needs none.

    Its attribute ``tir.pool_bytes`` is the buffer's size; a function that has it is returned as it is.

    Parameters
    ----------
    func : the function
    alignment : bytes to which the buffer and its parts are aligned, a power of two

    Raises
    ------
    UnsupportedError : the size of an allocation is not known
    """
    if POOL_BYTES.has(func):
        return func
    pool = _Pool(str(GLOBAL_SYMBOL.get(func, "the function")), alignment)
    body = pool.visit_stmt(func.body)
    params = (*func.params, pool.workspace) if pool.nbytes else func.params
    return PrimFunc(params, body, func.ret_type, func.buffer_map, {**func.attrs, POOL_BYTES.key: pool.nbytes})
