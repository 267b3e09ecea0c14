"""ThreadSync: insert barriers before a thread of a block accesses an element that another one stored.

``ThreadSync("shared")``, before and after::

    attr [IterVar(threadIdx.x)] "thread_extent" = 64              attr [IterVar(threadIdx.x)] "thread_extent" = 64
    allocate(S: Pointer(shared float32), float32, [64])           allocate(S: Pointer(shared float32), float32, [64])
    for (k: int32, 0, n) {                                        for (k: int32, 0, n) {
      S[threadIdx.x] = A[((k*64) + threadIdx.x)]                    @tir.tvm_storage_sync("shared")
      B[threadIdx.x] = (B[threadIdx.x] + S[(63 - threadIdx.x)])     S[threadIdx.x] = A[((k*64) + threadIdx.x)]
    }                                                               @tir.tvm_storage_sync("shared")
                                                                    B[threadIdx.x] = (B[...] + S[(63 - threadIdx.x)])
                                                                  }

There is none where each thread reads only what it stored itself (``thread_conflicts``), and none in code that not all
threads of a block come to: where one would be needed there, and where one stands there already, that is an error.

Each statement is summarised by what it touches before its first barrier (``head``) and after its last (``tail``); two
statements in a row need a barrier between them when the tail of the first conflicts with the head of the second, a
loop when the tail of one iteration conflicts with the head of the next.

``ThreadSync("warp")`` does the same for memory of a warp, ``ThreadSync("global")`` for what all blocks of a kernel
share: its barriers are of the whole grid (``tvm_prepare_global_barrier`` on the host, ``tvm_global_barrier_kinit``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from tilewright.arith.analyzer import Analyzer
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL, TARGET
from tilewright.ir.prim_expr import IntImm, Let, PrimExpr, Ramp, Var
from tilewright.ir.prim_functor import same_items
from tilewright.ir.transform import Pass
from tilewright.tir.expr import BufferLoad, Call, Load, StringImm
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    Store,
    While,
    seq,
)
from tilewright.tir.transform.common import bind_range, function_pass
from tilewright.tir.transform.thread_conflicts import Access, Conflicts
from tilewright.tir.transform.threads import (
    BLOCK_TAGS,
    THREAD_TAGS,
    KernelMutator,
    NotKnownError,
    ThreadAxes,
    barrier,
    barrier_scope,
    evaluate,
    is_call,
    storage_scope,
)
from tilewright.tir.visitor import ExprVisitor, StmtVisitor, post_order_visit, stmt_vars, substitute


@dataclass
class _Summary:
    """A statement with its barriers, and its accesses before the first and after the last of them."""

    stmt: Stmt
    head: dict[Access, None] = field(default_factory=dict)
    tail: dict[Access, None] = field(default_factory=dict)
    cleared: bool = False
    """Whether there is a barrier on every path."""

    def map(self, stmt: Stmt, change: Callable[[Access], Access]) -> _Summary:
        """Return the summary around the statement, where accesses change."""
        head, tail = (dict.fromkeys(change(a) for a in part) for part in (self.head, self.tail))
        return _Summary(stmt, head, tail, self.cleared)


class _Collect(ExprVisitor):
    """The accesses of expressions."""

    def __init__(self, wanted: Callable[[Var], bool], lets: _Lets) -> None:
        super().__init__()
        self.wanted = wanted
        self.lets = lets
        self.found: dict[Access, None] = {}

    def add(self, var: Var, index: PrimExpr | None, write: bool) -> None:
        if self.wanted(var):
            self.found[self.lets.access(var, index, write)] = None

    def visit_let(self, e: Let) -> None:
        self.visit_expr(e.value)
        self.lets.bind(e.var, e.value, _reads_memory(e.value))
        self.visit_expr(e.body)

    def visit_load(self, e: Load) -> None:
        self.add(e.buffer_var, e.index, False)
        super().visit_load(e)

    def visit_buffer_load(self, e: BufferLoad) -> None:
        self.add(e.buffer.data, None, False)
        super().visit_buffer_load(e)

    def visit_var(self, e: Var) -> None:  # the address goes somewhere
        if e.dtype == "handle":
            self.add(e, None, True)

    def visit_call(self, e: Call) -> None:
        if not is_call(e, "tvm_access_ptr") or not isinstance(e.args[1], Var):
            super().visit_call(e)
            return
        data: Var = e.args[1]
        offset, extent, mask = e.args[2:]
        access = self.lets.access(data, offset, False)
        if isinstance(extent, IntImm) and access.index is not None:
            step = Var("element", "int32")
            access = self.lets.access(data, offset + step, False).over(step, 0, extent.value)
        else:
            access = access.anywhere()
        rights = mask.value if isinstance(mask, IntImm) else 3
        for bit, write in ((1, False), (2, True)):
            if rights & bit and self.wanted(data):
                self.found[Access(data, access.index, write, access.inner)] = None
        self.visit_expr(offset)


def _reads_memory(e: PrimExpr) -> bool:
    found = False

    def look(part: object) -> None:
        nonlocal found
        found = found or isinstance(part, (Load, BufferLoad)) or (isinstance(part, Call) and part.dtype == "handle")

    post_order_visit(e, look)
    return found


class _Lets:
    """Values of names, which express indices by threads, loops, and values that are the same for all threads."""

    def __init__(self) -> None:
        self.values: dict[Var, PrimExpr] = {}
        self.loaded: set[Var] = set()
        """Names of values that come from memory; they stand for themselves, ..."""
        self.unknown: set[Var] = set()
        """... or, where threads may have read different ones, for anything."""

    def bind(self, var: Var, value: PrimExpr, differs: bool = False) -> None:
        """Bind a name; ``differs``: its value is loaded and may differ between threads."""
        self.values[var] = value
        if _reads_memory(value):
            self.loaded.add(var)
            if differs:
                self.unknown.add(var)

    def expanded(self, e: PrimExpr, keep: set[Var] | None = None) -> PrimExpr:
        """An expression without names, but for those of ``keep``."""
        for _ in range(len(self.values)):
            used = {v: self.values[v] for v in stmt_vars(e) if v in self.values and v not in (keep or ())}
            if not used:
                break
            e = substitute(e, used)
        return e

    def known(self, e: PrimExpr | None) -> PrimExpr | None:
        """Return an expression without names of loaded values; None if its value may differ between threads."""
        if e is None or _reads_memory(e):
            return None
        e = self.expanded(e, self.loaded)
        return None if any(v in self.unknown for v in stmt_vars(e)) else e

    def access(self, var: Var, index: PrimExpr | None, write: bool) -> Access:
        """The access of an element, or of the elements of a vector."""
        index = self.known(index)
        if isinstance(index, Ramp):
            lane = Var("lane", "int32")
            return Access(var, index.base + lane * index.stride, write).over(lane, 0, index.lanes)
        return Access(var, index if index is None or "x" not in index.dtype else None, write)


class _Planner:
    """Puts barriers of one scope into a kernel."""

    def __init__(self, kernel: Stmt, scope: str, name: str, warp_size: int) -> None:
        self.axes = ThreadAxes(kernel)
        self.scope = scope
        self.name = name
        self.tags = (*THREAD_TAGS, *BLOCK_TAGS) if scope == "global" else THREAD_TAGS
        self.conflicts = Conflicts(self.axes, warp_size if scope == "warp" else 0, self.tags)
        self.summaries: dict[Stmt, _Summary] = {}
        self.divergent: list[str] = []
        self.lets = _Lets()
        self.count = 0
        self.analyzer = Analyzer()
        wrote = _Written()
        wrote.visit_stmt(kernel)
        self.written = wrote.found

    def _wanted(self, var: Var) -> bool:
        scope = storage_scope(var)
        return scope == self.scope or (self.scope == "shared" and scope == "shared.dyn")

    def _of(self, *exprs: PrimExpr) -> dict[Access, None]:
        collect = _Collect(self._wanted, self.lets)
        for e in exprs:
            collect.visit_expr(e)
        return collect.found

    # ---- statements ----

    def plan(self, s: Stmt) -> _Summary:
        """The summary of a statement."""
        found = self._plan(s)
        self.summaries[found.stmt] = found
        return found

    def _plan(self, s: Stmt) -> _Summary:
        if isinstance(s, SeqStmt):
            return self._join(s, [self.plan(item) for item in s.seq])
        if isinstance(s, For):
            return self._for(s)
        if isinstance(s, While):
            return self._while(s)
        if isinstance(s, IfThenElse):
            return self._if(s)
        if isinstance(s, (AttrStmt, Allocate, AssertStmt)):
            own = self._of(s.condition) if isinstance(s, AssertStmt) else {}
            return self._inside(s, own, self.plan(s.body), lambda a: a)
        if isinstance(s, LetStmt):
            own = self._of(s.value)
            self.lets.bind(s.var, s.value, self._is_divergent(s.value))
            return self._inside(s, own, self.plan(s.body), lambda a: a.anywhere() if a.uses(s.var) else a)
        return self._leaf(s)

    def _leaf(self, s: Stmt) -> _Summary:
        scope = barrier_scope(s)
        if scope is not None:
            if self.divergent and scope == self.scope:
                raise TilewrightError(
                    f"{self.name}: a barrier stands inside {self.divergent[0]}, which not all threads of a block come "
                    "to; they would wait for ever. Move it out of there"
                )
            return _Summary(s, cleared=scope == self.scope)
        if isinstance(s, Store):
            accesses = self._of(s.value, s.index, s.predicate)
            if self._wanted(s.buffer_var):
                accesses = {**accesses, self.lets.access(s.buffer_var, s.index, True): None}
        elif isinstance(s, BufferStore):  # where memory is not flat yet
            accesses = self._of(s.value, *s.indices)
            if self._wanted(s.buffer.data):
                accesses = {**accesses, Access(s.buffer.data, None, True): None}
        elif isinstance(s, Evaluate):
            accesses = self._of(s.value)
        else:
            accesses = {}
        return _Summary(s, accesses, dict(accesses))

    def _inside(self, s: Stmt, own: dict[Access, None], body: _Summary, change: Callable[[Access], Access]) -> _Summary:
        """A statement around another one that touches ``own`` first."""
        inner = body.map(body.stmt, change)
        new = s if body.stmt is s.body else s.replace(body=body.stmt)  # type: ignore[attr-defined]
        if not own:
            return _Summary(new, inner.head, inner.tail, inner.cleared)
        if self.conflicts.find(own, inner.head):
            stmt, ahead = self._before(body.stmt, own, change)
            return _Summary(s.replace(body=stmt), {**own, **ahead}, inner.tail, True)
        return _Summary(
            new, {**own, **inner.head}, inner.tail if inner.cleared else {**own, **inner.tail}, inner.cleared
        )

    def _join(self, s: SeqStmt, parts: list[_Summary]) -> _Summary:
        whole = _Summary(s)
        stmts: list[Stmt] = []
        for part in parts:
            found = self.conflicts.find(whole.tail, part.head)
            if found is not None:
                stmts.append(self._barrier(found))
                whole.tail, whole.cleared = {}, True
            if not whole.cleared:
                whole.head = {**whole.head, **part.head}
            whole.tail = dict(part.tail) if part.cleared else {**whole.tail, **part.tail}
            whole.cleared |= part.cleared
            stmts.append(part.stmt)
        if not same_items(tuple(stmts), s.seq):
            whole.stmt = seq(*stmts)
        return whole

    def _barrier(self, found: tuple[Access, Access]) -> Stmt:
        if self.divergent:
            a, b = found
            what = "writes" if b.write else "reads"
            raise TilewrightError(
                f"{self.name}: inside {self.divergent[0]} a thread {what} {b.buffer.name}[{_show(b)}], which "
                f"another one {'writes' if a.write else 'reads'} as [{_show(a)}]; a barrier is needed between, "
                "but not all threads come there. Put the condition on the single stores, or compute the two apart"
            )
        self.count += 1
        return barrier(self.scope) if self.scope != "global" else self._grid_barrier()

    def _grid_barrier(self) -> Stmt:
        """Build a barrier of all blocks, with the thread that speaks for its block, and the number of blocks."""
        blocks: PrimExpr = ops.const(1)
        leads: PrimExpr = ops.const(True)
        variables = {tag: var for var, tag in self.axes.tags.items()}
        for tag, extent in self.axes.extents.items():
            if tag in BLOCK_TAGS:
                blocks = ops.mul(blocks, extent)
            elif tag in THREAD_TAGS:
                leads = ops.logical_and(leads, ops.equal(variables[tag], 0))
        return Evaluate(Call("int32", "tir.tvm_storage_sync", (StringImm("global"), leads, blocks)))

    def _before(
        self, s: Stmt, earlier: Iterable[Access], change: Callable[[Access], Access]
    ) -> tuple[Stmt, dict[Access, None]]:
        """Return ``s`` with a barrier before the first conflict with ``earlier``, and the accesses ahead of it."""
        if isinstance(s, (AttrStmt, Allocate)) or (isinstance(s, LetStmt) and not self._of(s.value)):
            body, ahead = self._before(s.body, earlier, change)
            return s.replace(body=body), ahead
        if isinstance(s, SeqStmt):
            ahead = {}
            for k, item in enumerate(s.seq):
                known = self.summaries.get(item)
                head = dict.fromkeys(change(a) for a in known.head) if known is not None else {}
                found = self.conflicts.find(earlier, head)
                if found is not None:
                    return seq(*s.seq[:k], self._barrier(found), *s.seq[k:]), ahead
                ahead.update(head)
        found = self.conflicts.find(earlier, [change(a) for a in self.summaries[s].head])
        some = next(iter(earlier))
        return seq(self._barrier(found or (some, some)), s), {}

    def _for(self, s: For) -> _Summary:
        divergent = self._is_divergent(s.min) or self._is_divergent(s.extent)
        if divergent:
            self.divergent.append(f"the loop over {s.loop_var.name} of extent {s.extent}")
        own = self._of(s.min, s.extent)
        low, extent = self._bounds(s)
        bind_range(self.analyzer, s.loop_var, s.min, s.extent)
        counter = s.loop_var
        if self._is_divergent(s.min):
            counter = Var(s.loop_var.name, s.loop_var.dtype)
            self.lets.bind(s.loop_var, ops.add(s.min, counter))
            low, extent = (None, None) if extent is None else (0, extent)
        body = self.plan(s.body)

        def over(a: Access) -> Access:
            return a.over(counter, low, extent)

        stmt, cleared = body.stmt, body.cleared
        if extent != 1:
            if cleared:
                last = [a.with_values({counter: counter - 1}) for a in body.tail]
                found, later = self.conflicts.find(last, body.head), lambda a: a
            else:
                last = [over(a) for a in body.tail]
                found, later = self.conflicts.find(last, [over(a) for a in body.head]), over
            if found is not None:
                if self.divergent:
                    self._barrier(found)
                stmt, cleared = self._before(stmt, last, later)[0], True
        if divergent:
            self.divergent.pop()
        new = s if stmt is s.body else s.replace(body=stmt)
        around = body.map(new, over)
        around.cleared = cleared and isinstance(s.extent, IntImm) and s.extent.value > 0
        around.head, around.tail = {**own, **around.head}, {**own, **around.tail}
        return around

    def _bounds(self, s: For) -> tuple[int | None, int | None]:
        """The first value of a loop's variable and the number of its values, or more than that; None: not known."""
        low = self.analyzer.const_int_bound(s.min)
        high = self.analyzer.const_int_bound(s.min + s.extent)
        limit = 1 << 24
        if low.min_value < -limit or high.max_value > limit:
            return None, 1 if ops.is_const_int(s.extent, 1) else None
        return low.min_value, max(0, high.max_value - low.min_value)

    def _while(self, s: While) -> _Summary:
        divergent = self._is_divergent(s.condition)
        if divergent:
            self.divergent.append(f"the loop while {s.condition}")
        own = self._of(s.condition)
        body = self.plan(s.body)
        head = {**own, **body.head}
        tail = body.tail if body.cleared else {**own, **body.tail}
        stmt = body.stmt
        found = self.conflicts.find(tail, head)
        if found is not None:
            stmt, tail = seq(stmt, self._barrier(found)), own
        if divergent:
            self.divergent.pop()
        new = s if stmt is s.body else While(s.condition, stmt)
        return _Summary(new, head, {**own, **tail}, False)

    def _if(self, s: IfThenElse) -> _Summary:
        divergent = self._is_divergent(s.condition)
        if divergent:
            self.divergent.append(f"if {s.condition}")
        own = self._of(s.condition)
        holds = self.lets.known(s.condition)
        then = self.plan(s.then_case)
        cases = [then.map(then.stmt, lambda a: a.under(holds)) if holds is not None else then]
        other: _Summary | None = None
        if s.else_case is not None:
            other = self.plan(s.else_case)
            fails = None if holds is None else ops.logical_not(holds)
            cases.append(other.map(other.stmt, lambda a: a.under(fails)) if fails is not None else other)
        if divergent:
            self.divergent.pop()
        head, tail = dict(own), dict(own)
        for case in cases:
            found = self.conflicts.find(own, case.head)
            if found is not None:
                raise TilewrightError(
                    f"{self.name}: if {s.condition} reads {found[0].buffer.name}, and what stands under it writes "
                    "that; read it before, with a let"
                )
            head.update(case.head)
            tail.update(case.tail)
        new: Stmt = s
        if then.stmt is not s.then_case or (other is not None and other.stmt is not s.else_case):
            new = IfThenElse(s.condition, then.stmt, None if other is None else other.stmt)
        return _Summary(new, head, tail, other is not None and all(c.cleared for c in cases))

    # ---- divergence ----

    def _is_divergent(self, e: PrimExpr) -> bool:
        """Return whether the threads of a block may have different values of an expression.

        Loads count where what they read is written by the kernel, or where their index differs between threads.
        """
        if isinstance(e, IntImm):
            return False
        whole = self.lets.expanded(e)
        differs = False

        def look(part: object) -> None:
            nonlocal differs
            if isinstance(part, Var) and self.axes.tags.get(part) in self.tags:
                differs = differs or self.axes.extent(self.axes.tags[part]) != 1
            if isinstance(part, (Load, BufferLoad)):
                var = part.buffer_var if isinstance(part, Load) else part.buffer.data
                differs = differs or var in self.written or storage_scope(var) in ("local", "warp")

        post_order_visit(whole, look)
        return differs and not self._all_the_same(whole)

    def _all_the_same(self, e: PrimExpr) -> bool:
        """Return whether an expression of thread indices alone has one value in all threads."""
        try:
            values = np.atleast_1d(evaluate(e, self.conflicts.indices or {}))
        except NotKnownError:
            return False
        return bool(np.all(values == values[0]))


def _show(a: Access) -> str:
    return "any element" if a.index is None else repr(a.index)


class _Written(StmtVisitor):
    """Finds the buffers that a kernel writes, or passes to functions."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[Var] = set()

    def visit_store(self, s: Store) -> None:
        self.found.add(s.buffer_var)
        self.visit_expr(s.value)

    def visit_buffer_store(self, s: BufferStore) -> None:
        self.found.add(s.buffer.data)

    def visit_evaluate(self, s: Evaluate) -> None:
        self.found |= {v for v in stmt_vars(s.value) if v.dtype == "handle"}


class _Sync(KernelMutator):
    def __init__(self, scope: str, name: str, warp_size: int) -> None:
        super().__init__()
        self.scope = scope
        self.name = name
        self.warp_size = warp_size

    def visit_kernel(self, s: AttrStmt) -> Stmt:
        planner = _Planner(s, self.scope, self.name, self.warp_size)
        found = planner.plan(s).stmt
        if self.scope != "global" or not planner.count:
            return found
        assert isinstance(found, AttrStmt)
        prepare = Call("int32", "tir.tvm_call_packed", (StringImm("__tvm_prepare_global_barrier"),))
        start = Evaluate(Call("int32", "tir.tvm_global_barrier_kinit", ()))
        return seq(Evaluate(prepare), found.replace(body=seq(start, found.body)))


def thread_sync(func: PrimFunc, scope: str) -> PrimFunc:
    """Put barriers of ``scope`` into the kernels of a function.

    Raises
    ------
    TilewrightError : a barrier is needed, or stands, where not all threads of a block come to
    """
    target = TARGET.get(func)
    warp_size = 32 if target is None else max(int(target.attrs.get("thread_warp_size", 1)), 1)
    body = _Sync(scope, GLOBAL_SYMBOL.get(func, "main"), warp_size).visit_stmt(func.body)
    return func if body is func.body else func.with_body(body)


def ThreadSync(storage_scope: str) -> Pass:
    """The pass, for one scope: "shared", "warp" or "global"."""
    if storage_scope not in ("shared", "warp", "global"):
        raise TilewrightError(f'ThreadSync is for "shared", "warp" or "global" memory, not {storage_scope!r}')
    return function_pass(f"ThreadSync({storage_scope})", lambda func: thread_sync(func, storage_scope))
