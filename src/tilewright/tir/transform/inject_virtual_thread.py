"""InjectVirtualThread: repeat the statements that depend on a virtual thread for each of its indices.

Before and after::

    attr [IterVar(vthread: int32, [0:2], "ThreadIndex", "vthread")] "virtual_thread" = 2;
    allocate(B: Pointer(float32), float32, [1]), ...          allocate(B: Pointer(float32), float32, [2, 1]), ...
    allocate(D: Pointer(shared float32), float32, [8]), ...   allocate(D: Pointer(shared float32), float32, [8]), ...
    for (k: int32, 0, 8) {                                    for (k: int32, 0, 8) {
      D[k] = (float32*)A[k]                                     D[k] = (float32*)A[k]
    }                                                         }
    B[0] = (float32*)D[vthread]                               B[0] = (float32*)D[0]
                                                              B[1] = (float32*)D[1]
    C[vthread] = (float32*)B[0]                               C[0] = (float32*)B[0]
                                                              C[1] = (float32*)B[1]

The indices execute the body together, statement by statement, as threads do. A buffer allocated inside whose values or
indices differ between them is extended by a part for each; other buffers are shared: a tile that all indices read is
fetched once, between one pair of barriers. Threads of the tag ``cthread`` share nothing.

A statement that as a whole runs differently (a loop, a condition or a number that depends on the index) is repeated
whole, and so is an allocation whose address is handed out otherwise than by ``tvm_access_ptr``. 16 indices and more
make a serial loop around each such statement instead of copies.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import Call, IntImm, PrimExpr, Ramp, Var
from tilewright.ir.transform import Pass
from tilewright.tir.expr import IterVar, Load
from tilewright.tir.stmt import (
    Allocate,
    AttrStmt,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    Store,
    While,
    seq,
)
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import (
    StmtExprMutator,
    StmtExprVisitor,
    StmtMutator,
    post_order_visit,
    stmt_vars,
    substitute,
    with_fresh_vars,
)

_MOST_COPIES = 15


def _written_by(expr: PrimExpr) -> set[Var]:
    """Return the buffers whose pointers an expression passes on for writing."""
    written: set[Var] = set()

    def look(node: object) -> None:
        if isinstance(node, Call) and node.op.name == "tir.tvm_access_ptr" and isinstance(node.args[1], Var):
            if int(getattr(node.args[4], "value", 3)) & 2:
                written.add(node.args[1])

    post_order_visit(expr, look)
    return written


class _Touched(StmtExprVisitor):
    """Variables that differ from index to index: a fixed point over the body.

    Attributes
    ----------
    found : the thread, what is computed of it, and buffers allocated inside that hold such values
    loose : buffers whose address goes where it cannot be moved
    """

    def __init__(self, thread: IterVar) -> None:
        super().__init__()
        self.found = {thread.var}
        self.shares = thread.thread_tag.startswith("vthread")
        self.inside: set[Var] = set()
        self.loose: set[Var] = set()
        self.conditional = False

    def of(self, body: Stmt) -> _Touched:
        """Repeat the analysis of ``body`` until it finds nothing new."""
        before = -1
        while before != len(self.found):
            before = len(self.found)
            self.visit_stmt(body)
        return self

    def depends(self, *nodes: PrimExpr | Stmt | None) -> bool:
        """Return whether one of ``nodes`` differs from index to index."""
        return any(not self.found.isdisjoint(stmt_vars(n)) for n in nodes if n is not None)

    def _under(self, condition: bool, visit: Callable[[], None]) -> None:
        before = self.conditional
        self.conditional = before or condition
        visit()
        self.conditional = before

    def visit_allocate(self, s: Allocate) -> None:
        """Note a buffer of the body."""
        self.inside.add(s.buffer_var)
        if not self.shares or self.depends(*s.extents, s.condition):
            self.found.add(s.buffer_var)
        if dt.lanes(s.dtype) > 1 or not all(isinstance(e, IntImm) for e in s.extents):
            self.loose.add(s.buffer_var)
        super().visit_allocate(s)

    def visit_let_stmt(self, s: LetStmt) -> None:
        """Record a value, and the buffers that may be written through it."""
        if self.depends(s.value):
            self.found.add(s.var)
        self.found |= _written_by(s.value) & self.inside
        super().visit_let_stmt(s)

    def visit_for(self, s: For) -> None:
        """A loop whose range differs is a condition of its body."""
        differs = self.depends(s.min, s.extent)
        if differs:
            self.found.add(s.loop_var)
        self._under(differs, lambda: super(_Touched, self).visit_for(s))

    def visit_while(self, s: While) -> None:
        """Visit the body as in ``visit_for``."""
        self._under(self.depends(s), lambda: super(_Touched, self).visit_while(s))

    def visit_if_then_else(self, s: IfThenElse) -> None:
        """Visit the branches as in ``visit_for``."""
        self._under(self.depends(s.condition), lambda: super(_Touched, self).visit_if_then_else(s))

    def visit_store(self, s: Store) -> None:
        """Record the written buffer."""
        if s.buffer_var in self.inside and (self.conditional or self.depends(s.value, s.index, s.predicate)):
            self.found.add(s.buffer_var)
        super().visit_store(s)

    def visit_call(self, e: Call) -> None:
        """Record that a buffer passed to a function may be written there with values of the other arguments."""
        if e.op.name != "tir.tvm_access_ptr":
            buffers = {a for a in e.args if isinstance(a, Var) and a in self.inside}
            self.loose |= buffers
            if self.conditional or self.depends(e):
                self.found |= buffers | (_written_by(e) & self.inside)
        super().visit_call(e)


class _Move(StmtExprMutator):
    """Moves accesses of buffers that have a part for each index to that of ``index``."""

    def __init__(self, sizes: dict[Var, int], index: PrimExpr) -> None:
        super().__init__()
        self.sizes = sizes
        self.index = index

    def _moved(self, buffer: Var, place: PrimExpr) -> PrimExpr:
        offset = ops.mul(self.index, ops.const(self.sizes[buffer], self.index.dtype))
        if isinstance(place, Ramp):
            return Ramp(ops.add(place.base, ops.cast(place.base.dtype, offset)), place.stride, place.lanes)
        return ops.add(place, ops.cast(place.dtype, offset))

    def visit_load(self, e: Load) -> PrimExpr:
        new = super().visit_load(e)
        assert isinstance(new, Load)
        return new.replace(index=self._moved(e.buffer_var, new.index)) if e.buffer_var in self.sizes else new

    def visit_store(self, s: Store) -> Stmt:
        new = super().visit_store(s)
        assert isinstance(new, Store)
        return new.replace(index=self._moved(s.buffer_var, new.index)) if s.buffer_var in self.sizes else new

    def visit_call(self, e: Call) -> PrimExpr:
        new = super().visit_call(e)
        buffer = e.args[1] if e.op.name == "tir.tvm_access_ptr" else None
        if isinstance(new, Call) and isinstance(buffer, Var) and buffer in self.sizes:
            args = list(new.args)
            args[2] = self._moved(buffer, args[2])
            return new.replace(args=tuple(args))
        return new


class _Interleave(StmtMutator):
    """Repeats the statements of a body that differ from index to index."""

    def __init__(self, thread: IterVar, count: int, touched: _Touched) -> None:
        super().__init__()
        self.var = thread.var
        self.count = count
        self.touched = touched
        self.sizes: dict[Var, int] = {}

    def visit_stmt(self, stmt: Stmt) -> Stmt:
        if not self.touched.depends(stmt):
            return stmt
        if isinstance(stmt, SeqStmt):
            return seq(*[self.visit_stmt(s) for s in stmt.seq])
        if isinstance(stmt, Allocate):
            return self._allocate(stmt)
        heads = {
            For: lambda s: (s.min, s.extent), IfThenElse: lambda s: (s.condition,), LetStmt: lambda s: (s.value,),
            AttrStmt: lambda s: (s.value,),
        }  # fmt: skip
        head = heads.get(type(stmt))
        if head is None or self.touched.depends(*head(stmt)):
            return self._repeat(stmt)
        return super().visit_stmt(stmt)

    def _allocate(self, s: Allocate) -> Stmt:
        if s.buffer_var not in self.touched.found:
            return s.replace(body=self.visit_stmt(s.body))
        if s.buffer_var in self.touched.loose:
            return self._repeat(s)
        self.sizes[s.buffer_var] = prod(int(e.value) for e in s.extents if isinstance(e, IntImm))
        extents = (ops.const(self.count, "int32"), *s.extents)
        return s.replace(extents=extents, body=self.visit_stmt(s.body))

    def _repeat(self, stmt: Stmt) -> Stmt:
        def of(index: PrimExpr) -> Stmt:
            return substitute(_Move(self.sizes, index).visit_stmt(stmt), {self.var: index})

        dtype = self.var.dtype
        if self.count > _MOST_COPIES:
            serial = Var(f"{self.var.name}.s", dtype)  # which verify_gpu_code knows
            return For(serial, ops.const(0, dtype), ops.const(self.count, dtype), ForKind.SERIAL, of(serial))
        copies = [of(ops.const(i, dtype)) for i in range(self.count)]
        return seq(*[c if i == 0 else with_fresh_vars(c) for i, c in enumerate(copies)])


class _Inject(StmtMutator):
    def visit_attr(self, s: AttrStmt) -> Stmt:
        new = super().visit_attr(s)
        assert isinstance(new, AttrStmt)
        if s.attr_key != "virtual_thread" or not isinstance(s.node, IterVar):
            return new
        if not isinstance(s.value, IntImm):
            raise TilewrightError(
                f"virtual thread {s.node.var.name} has {s.value} indices; the number must be a constant"
            )
        touched = _Touched(s.node).of(new.body)
        return _Interleave(s.node, s.value.value, touched).visit_stmt(new.body)


def inject_virtual_thread(stmt: Stmt) -> Stmt:
    """Write out the virtual threads of ``stmt``."""
    return _Inject().visit_stmt(stmt)


def InjectVirtualThread() -> Pass:
    """Repeat the statements that depend on a virtual thread for each of its indices."""
    return body_pass("InjectVirtualThread", inject_virtual_thread)
