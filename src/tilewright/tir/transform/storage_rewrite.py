"""StorageRewrite: move allocations out of serial loops, and let those that are never alive together share memory.

Before and after::

    for (i: int32, 0, 4) {                                   allocate(B: Pointer(float32), float32, [8]), ...
      allocate(B: Pointer(float32), float32, [8]), ...       for (i: int32, 0, 4) {
      B[0] = (float32*)A[i]                                    B[0] = (float32*)A[i]
      allocate(C: Pointer(float32), float32, [4]), ...         A[i] = (float32*)B[0]
      A[i] = (float32*)B[0]                                    B[1] = 2f32
      C[1] = 2f32                                              A[i] = (float32*)B[1]
      A[i] = (float32*)C[1]                                  }
    }

Allocations stay within the body of the parallel loop (or thread axis) around them, and what is outside of it is alive
from its beginning to its end. Sharing is for equal element types
and storage scopes, constant sizes that differ at most sixteenfold (or equal ones of variables), and buffers whose
address is not taken. A buffer whose last use is to compute, element by element, the first values of another one may be
overwritten in place.

Memory with a tag, such as ``local.L0A``, is a chip's own and small: what lies in it shares whatever the element types
are, and becomes one allocation, in which each part has its offset::

    allocate(A: Pointer(local.L0A float32), float32, [8])        allocate(A: Pointer(local.L0A float32), float32, [12])
    allocate(B: Pointer(local.L0A int16), int16, [8])            A[0] = 1f32
    A[0] = 1f32                                                  (int16*)A[16] = 2i16
    B[0] = 2i16
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.arith.analyzer import simplify
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm, PrimExpr, Var
from tilewright.ir.transform import Pass
from tilewright.ir.type import PointerType
from tilewright.tir.analysis import side_effect
from tilewright.tir.expr import IterVar, Load
from tilewright.tir.stmt import Allocate, AttrStmt, For, ForKind, LetStmt, Stmt, Store, While
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtExprMutator, StmtExprVisitor, stmt_vars

_MATCH_RANGE = 16


@dataclass
class _Buffer:
    """An allocation, and the span of statement numbers during which it holds a value."""

    alloc: Allocate
    scope: int
    depth: int
    first: int = -1
    last: int = -1
    pinned: bool = False
    reads: list[tuple[int, PrimExpr]] = field(default_factory=list)
    writes: list[tuple[int, PrimExpr]] = field(default_factory=list)

    @property
    def size(self) -> int | PrimExpr:
        """Number of elements; an expression if an extent is one."""
        total: PrimExpr = ops.const(1)
        for extent in self.alloc.extents:
            total = ops.mul(total, extent)
        return total.value if isinstance(total, IntImm) else simplify(total)

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return dt.bits(self.alloc.dtype) * dt.lanes(self.alloc.dtype)

    def touch(self, first: int, last: int) -> None:
        """Extend the span."""
        self.first = first if self.first < 0 else min(self.first, first)
        self.last = max(self.last, last)


def _starts_scope(s: Stmt) -> bool:
    if isinstance(s, For):
        return s.kind == ForKind.PARALLEL or s.kind == ForKind.THREAD_BINDING
    return isinstance(s, AttrStmt) and isinstance(s.node, IterVar) and s.attr_key == "thread_extent"


class _Liveness(StmtExprVisitor):
    """Numbers statements, and finds the span of each allocation."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers: dict[Var, _Buffer] = {}
        self.repeated: set[Var] = set()  # allocated in two places: left as they are
        self.defined: set[Var] = set()  # variables of loops and lets
        self.time = 0
        self.scopes = [0]
        self.scope_count = 0
        self.loops: list[tuple[int, list[_Buffer]]] = []  # start of each loop around, and the buffers it touches

    def visit_stmt(self, stmt: Stmt) -> Any:
        self.time += 1
        return super().visit_stmt(stmt)

    def _enter(self, s: Stmt, visit: Any) -> None:
        if not _starts_scope(s):
            visit(s)
            return
        self.scope_count += 1
        self.scopes.append(self.scope_count)
        visit(s)
        self.scopes.pop()

    def _loop(self, s: Stmt, visit: Any) -> None:
        self.loops.append((self.time, []))
        self._enter(s, visit)
        start, touched = self.loops.pop()
        self.time += 1
        for buffer in touched:  # alive from the loop's start to its end
            buffer.touch(start, self.time)

    def visit_for(self, s: For) -> None:
        self.defined.add(s.loop_var)
        self._loop(s, super().visit_for)

    def visit_while(self, s: While) -> None:
        self._loop(s, super().visit_while)

    def visit_attr(self, s: AttrStmt) -> None:
        if isinstance(s.node, Var) and s.node in self.buffers:
            self.buffers[s.node].pinned = True
        if isinstance(s.node, IterVar):
            self.defined.add(s.node.var)
        if _starts_scope(s):  # a block or a thread may be anywhere in the body while others are at its end
            self._loop(s, super().visit_attr)
        else:
            super().visit_attr(s)

    def visit_let_stmt(self, s: LetStmt) -> None:
        self.defined.add(s.var)
        if s.value.dtype == "handle":
            self._pin(s.value)
        super().visit_let_stmt(s)

    def _pin(self, value: PrimExpr) -> None:
        for var in stmt_vars(value):
            if var in self.buffers:
                self.buffers[var].pinned = True

    def visit_allocate(self, s: Allocate) -> None:
        if s.buffer_var in self.buffers:
            self.repeated.add(s.buffer_var)
        self.buffers[s.buffer_var] = _Buffer(s, self.scopes[-1], len(self.loops))
        super().visit_allocate(s)

    def _touch(self, var: Var) -> _Buffer | None:
        buffer = self.buffers.get(var)
        if buffer is None:
            return None
        if len(self.loops) > buffer.depth:  # the outermost loop inside the allocation
            self.loops[buffer.depth][1].append(buffer)
        buffer.touch(self.time, self.time)
        return buffer

    def visit_var(self, e: Var) -> None:
        buffer = self._touch(e)
        if buffer is not None:
            buffer.pinned = True  # the address goes somewhere

    def visit_load(self, e: Load) -> None:
        buffer = self._touch(e.buffer_var)
        if buffer is not None:
            buffer.reads.append((self.time, e.index))
        super().visit_load(e)

    def visit_store(self, s: Store) -> None:
        buffer = self._touch(s.buffer_var)
        if buffer is not None:
            buffer.writes.append((self.time, s.index))
        super().visit_store(s)


def _movable(alloc: Allocate, defined: set[Var]) -> bool:
    """Return whether the allocation means the same at the beginning of the function."""
    fixed = all(
        isinstance(e, IntImm) or (side_effect(e) == "pure" and defined.isdisjoint(stmt_vars(e))) for e in alloc.extents
    )
    return fixed and ops.is_const_int(alloc.condition, 1)


Slot = tuple[_Buffer, list[_Buffer], Var, int | PrimExpr]
"""The first that lies there, all that do, the variable, the number of elements."""


class _Plan:
    """The assignment of allocations to memory."""

    def __init__(self, buffers: list[_Buffer], defined: set[Var]) -> None:
        self.home: dict[Var, Var] = {}
        self.offsets: dict[Var, int] = {}  # in bits, where it is not 0
        # by scope: variable, first allocation, elements
        self.memory: dict[int, list[tuple[Var, Allocate, int | PrimExpr]]] = {}
        slots: list[Slot] = []
        for buffer in buffers:
            if not _movable(buffer.alloc, defined):
                continue
            slot = None if buffer.pinned or buffer.first < 0 else self._free_slot(slots, buffer)
            if slot is None:
                slots.append((buffer, [buffer], buffer.alloc.buffer_var, buffer.size))
                self.home[buffer.alloc.buffer_var] = buffer.alloc.buffer_var
            else:
                owner, members, var, size = slots[slot]
                slots[slot] = (owner, [*members, buffer], var, _larger(owner, size, buffer))
                self.home[buffer.alloc.buffer_var] = var
        tagged: dict[tuple[int, str], list[Slot]] = {}
        for new in slots:
            owner, _, var, size = new
            if _tag(_scope(var)) and not owner.pinned and isinstance(size, int):
                tagged.setdefault((owner.scope, _scope(var)), []).append(new)
            else:
                self.memory.setdefault(owner.scope, []).append((var, owner.alloc, size))
        for (scope, _), parts in tagged.items():
            self._merge(scope, parts)

    def _merge(self, scope: int, parts: list[Slot]) -> None:
        """Merge the parts to one allocation, each at a multiple of its widest element."""
        first, _, home, _ = parts[0]
        end = 0
        for owner, members, _, size in parts:
            widest = max(m.bits for m in members)
            start = -(-end // widest) * widest
            assert isinstance(size, int)
            end = start + size * owner.bits
            for member in members:
                self.home[member.alloc.buffer_var] = home
                if start:
                    self.offsets[member.alloc.buffer_var] = start
        self.memory.setdefault(scope, []).append((home, first.alloc, -(-end // first.bits)))

    def _free_slot(self, slots: list[Slot], new: _Buffer) -> int | None:
        best: tuple[int, int] | None = None
        for i, (owner, members, _, size) in enumerate(slots):
            if owner.scope != new.scope or owner.pinned or not _same_kind(owner.alloc, new.alloc):
                continue
            waste = _mismatch(owner, size, new)
            if waste is None:
                continue
            if not all(m.last < new.first or new.last < m.first or _in_place(m, new) for m in members):
                continue
            if best is None or waste < best[0]:
                best = (waste, i)
        return None if best is None else best[1]


def _mismatch(owner: _Buffer, size: int | PrimExpr, new: _Buffer) -> int | None:
    """Return the difference of a slot and a buffer in bits; None when they differ too much, or it is unknown."""
    wanted = new.size
    if not (isinstance(size, int) and isinstance(wanted, int)):
        return 0 if size is wanted and owner.bits == new.bits else None
    have, want = size * owner.bits, wanted * new.bits
    return abs(have - want) if have <= want * _MATCH_RANGE and want <= have * _MATCH_RANGE else None


def _larger(owner: _Buffer, size: int | PrimExpr, new: _Buffer) -> int | PrimExpr:
    """Elements of the owner's type that hold both."""
    wanted = new.size
    if not (isinstance(size, int) and isinstance(wanted, int)):
        return size
    return max(size, -(-wanted * new.bits // owner.bits))


_KNOWN_TAGS = (".dyn", ".texture", ".workspace", ".vtcm")


def _tag(scope: str) -> str:
    """Return the tag of a chip-specific scope, such as ``.L0A`` in ``local.L0A``."""
    for kind in ("global", "shared", "warp", "local"):
        if scope.startswith(kind):
            tag = scope.removeprefix(kind)
            return "" if tag.startswith(_KNOWN_TAGS) else tag
    return ""


def _same_kind(a: Allocate, b: Allocate) -> bool:
    scope = _scope(a.buffer_var)
    return (
        (a.dtype == b.dtype or bool(_tag(scope)))
        and a.annotations.data == b.annotations.data
        and scope == _scope(b.buffer_var)
    )


def _scope(var: Var) -> str:
    annotation = var.type_annotation
    return (annotation.storage_scope if isinstance(annotation, PointerType) else "") or "global"


def _in_place(old: _Buffer, new: _Buffer) -> bool:
    """Return whether the only statement in which both are alive reads ``old`` where it writes ``new``, at the same
    index.
    """
    if old.depth != new.depth or old.first >= new.first or old.last > new.last or not new.writes:
        return False
    common = [(t, i) for t, i in old.reads if t >= new.first]
    if any(t >= new.first for t, _ in old.writes):
        return False
    times = {t for t, _ in common}
    inside = [(t, i) for t, i in new.writes if t <= old.last] + [(t, i) for t, i in new.reads if t <= old.last]
    return len(times) == 1 and all(t in times for t, _ in inside) and len({i for _, i in common + inside}) == 1


class _Rewrite(StmtExprMutator):
    def __init__(self, plan: _Plan) -> None:
        super().__init__()
        self.plan = plan
        self.scope_count = 0
        for var, home in plan.home.items():
            self.memo[var] = home

    def at_scope(self, number: int, body: Stmt) -> Stmt:
        """Wrap ``body`` in the allocations of its scope."""
        for var, alloc, size in reversed(self.plan.memory.get(number, ())):
            dtype = alloc.extents[0].dtype if alloc.extents else "int32"
            extent = IntImm(dtype, size) if isinstance(size, int) else size
            body = Allocate(var, alloc.dtype, [extent], alloc.condition, body, alloc.annotations)
        return body

    def visit_for(self, s: For) -> Stmt:
        number = self._number(s)
        new = super().visit_for(s)
        return new if number is None else new.replace(body=self.at_scope(number, new.body))  # type: ignore[attr-defined]

    def _number(self, s: Stmt) -> int | None:
        if not _starts_scope(s):
            return None
        self.scope_count += 1
        return self.scope_count

    def visit_attr(self, s: AttrStmt) -> Stmt:
        number = self._number(s)
        new = super().visit_attr(s)
        assert isinstance(new, AttrStmt)
        if isinstance(s.node, Var) and s.node in self.plan.home:
            new = new.replace(node=self.plan.home[s.node])
        return new if number is None else new.replace(body=self.at_scope(number, new.body))

    def visit_allocate(self, s: Allocate) -> Stmt:
        return self.visit_stmt(s.body) if s.buffer_var in self.plan.home else super().visit_allocate(s)

    def visit_load(self, e: Load) -> PrimExpr:
        new: Any = super().visit_load(e)
        home = self.plan.home.get(e.buffer_var, e.buffer_var)
        if e.buffer_var in self.plan.offsets:
            return Load(new.dtype, home, self._moved(e.buffer_var, new.index, new.dtype), new.predicate)
        return new if home is e.buffer_var else new.replace(buffer_var=home)

    def _moved(self, var: Var, index: PrimExpr, dtype: str) -> PrimExpr:
        """The index in the memory that the buffer is a part of."""
        return ops.add(index, self.plan.offsets[var] // dt.bits(dtype))

    def visit_store(self, s: Store) -> Stmt:
        new: Any = super().visit_store(s)
        home = self.plan.home.get(s.buffer_var, s.buffer_var)
        if s.buffer_var in self.plan.offsets:
            return Store(home, new.value, self._moved(s.buffer_var, new.index, new.value.dtype), new.predicate)
        return new if home is s.buffer_var else new.replace(buffer_var=home)


def storage_rewrite(stmt: Stmt) -> Stmt:
    """Plan the memory of ``stmt``."""
    liveness = _Liveness()
    liveness.visit_stmt(stmt)
    if not liveness.buffers:
        return stmt
    once = [b for v, b in liveness.buffers.items() if v not in liveness.repeated]
    buffers = sorted(once, key=lambda b: b.first)
    rewrite = _Rewrite(_Plan(buffers, liveness.defined))
    return rewrite.at_scope(0, rewrite.visit_stmt(stmt))


def StorageRewrite() -> Pass:
    """Share memory between allocations that do not live at the same time."""
    return body_pass("StorageRewrite", storage_rewrite)
