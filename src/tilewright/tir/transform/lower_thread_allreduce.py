"""LowerThreadAllreduce: threads combine their values through shared memory, or by shuffles within warps.

Before::

    attr [IterVar(threadIdx.x)] "thread_extent" = 4
    attr [sum] "reduce_scope" = 0
      @tir.tvm_thread_allreduce(1, v, True, t, threadIdx.x)

after, for a target whose ``thread_warp_size`` is 1::

    attr [IterVar(threadIdx.x)] "thread_extent" = 4
    allocate(red_buf0: Pointer(shared float32), float32, [4])
      @tir.tvm_storage_sync("shared")
      red_buf0[threadIdx.x] = v
      @tir.tvm_storage_sync("shared")
      if (threadIdx.x < 2) { red_buf0[threadIdx.x] = red_buf0[threadIdx.x] + red_buf0[threadIdx.x + 2] }
      @tir.tvm_storage_sync("shared")
      if (threadIdx.x < 1) { red_buf0[threadIdx.x] = red_buf0[threadIdx.x] + red_buf0[threadIdx.x + 1] }
      @tir.tvm_storage_sync("shared")
      t[0] = red_buf0[0]

and for one with warps of 4::

      let mask = @tir.tvm_warp_activemask()
      let other = @tir.tvm_warp_shuffle_down(mask, v, 2, 4, 4)
      let sum = v + other
      ...
      t[0] = @tir.tvm_warp_shuffle(mask, sum, 0, 4, 4)

The threads named last reduce together; those along other axes are groups of their own. Where the number of threads is
no power of two, the first ones take what is beyond the largest power below. A reducer of several values (argmax) has a
buffer for each. Shuffles serve groups that lie in one warp and have a power of two of threads, and groups of whole
warps, whose results then meet in shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL, TARGET
from tilewright.ir.iter_var import CommReducer
from tilewright.ir.prim_expr import IntImm, PrimExpr, Var
from tilewright.ir.transform import Pass
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir.expr import Call, Load
from tilewright.tir.function import PrimFunc
from tilewright.tir.op import if_then_else
from tilewright.tir.stmt import Allocate, AttrStmt, Evaluate, For, IfThenElse, LetStmt, Stmt, Store, While, seq
from tilewright.tir.transform.common import function_pass
from tilewright.tir.transform.threads import (
    THREAD_TAGS,
    KernelMutator,
    ThreadAxes,
    barrier,
    flat_index,
    is_call,
    is_thread_scope,
)
from tilewright.tir.visitor import StmtMutator, stmt_vars, substitute


@dataclass
class _Group:
    """Threads that reduce together, and their operands."""

    reducer: CommReducer
    values: list[PrimExpr]
    results: list[Var]
    lane: PrimExpr
    """Index of a thread in its group."""
    number: PrimExpr
    """Which group a thread is in."""
    size: int
    count: int
    contiguous: bool
    """Whether the threads of a group have neighbouring linear indices."""

    def combine(self, lhs: Sequence[PrimExpr], rhs: Sequence[PrimExpr]) -> list[PrimExpr]:
        """The reducer's result."""
        values = dict(zip(self.reducer.lhs, lhs, strict=True)) | dict(zip(self.reducer.rhs, rhs, strict=True))
        return [substitute(r, values) for r in self.reducer.result]

    def finish(self, values: Sequence[PrimExpr]) -> Stmt:
        """Every thread keeps the results."""
        return seq(*(Store(r, v, ops.const(0)) for r, v in zip(self.results, values, strict=True)))


@dataclass
class _Memory:
    """The shared buffers of a kernel; reductions one after another use the same ones."""

    sizes: dict[tuple[int, str], int] = field(default_factory=dict)
    buffers: dict[tuple[int, str], Var] = field(default_factory=dict)

    def buffer(self, position: int, dtype: str, size: int) -> Var:
        """The buffer of the value at ``position`` of a reducer."""
        key = (position, dtype)
        if key not in self.buffers:
            self.buffers[key] = Var(f"red_buf{len(self.buffers)}", PointerType(PrimType(dtype), "shared"))
        self.sizes[key] = max(size, self.sizes.get(key, 0))
        return self.buffers[key]


class _Reductions(StmtMutator):
    """The reductions inside a kernel."""

    def __init__(self, axes: ThreadAxes, warp: int, name: str) -> None:
        super().__init__()
        self.axes = axes
        self.warp = warp
        self.name = name
        self.memory = _Memory()
        self.reducer: CommReducer | None = None
        self.conditions: list[PrimExpr] = []

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key != "reduce_scope":
            return super().visit_attr(s)
        outer, self.reducer = self.reducer, s.node
        body: Stmt = self.visit_stmt(s.body)
        self.reducer = outer
        return body

    def visit_if_then_else(self, s: IfThenElse) -> Stmt:
        self.conditions.append(s.condition)
        new = super().visit_if_then_else(s)
        self.conditions.pop()
        return new

    def visit_for(self, s: For) -> Stmt:
        self.conditions.append(s.extent)
        new = super().visit_for(s)
        self.conditions.pop()
        return new

    def visit_while(self, s: While) -> Stmt:
        self.conditions.append(s.condition)
        new = super().visit_while(s)
        self.conditions.pop()
        return new

    def visit_evaluate(self, s: Evaluate) -> Stmt:
        call = s.value
        if not is_call(call, "tvm_thread_allreduce"):
            return s
        assert isinstance(call, Call)
        self._check_reached(call)
        group = self._group(call)
        if group.size == 1:
            return group.finish(group.values)
        if self._can_shuffle(group):
            return self._by_shuffles(group)
        return self._through_memory(group)

    def _check_reached(self, call: Call) -> None:
        for condition in self.conditions:
            used = [v for v in stmt_vars(condition) if self.axes.tags.get(v) in THREAD_TAGS]
            if any(self.axes.extent(self.axes.tags[v]) != 1 for v in used):
                raise TilewrightError(
                    f"{self.name}: threads reduce together below the condition {condition}, which not all of them "
                    "meet; they would wait for ever. Bind the reduction outside of it"
                )

    def _group(self, call: Call) -> _Group:
        reducer = self.reducer
        if reducer is None:
            raise TilewrightError(
                f"{self.name}: tvm_thread_allreduce stands in no reduce_scope, which names the reducer"
            )
        count = len(reducer.result)
        if not isinstance(call.args[0], IntImm) or call.args[0].value != count:
            raise TilewrightError(f"{self.name}: tvm_thread_allreduce of {call.args[0]} values by a reducer of {count}")
        values, condition = list(call.args[1 : 1 + count]), call.args[1 + count]
        if not ops.is_const_int(condition, 1):
            pairs = zip(values, reducer.identity_element, strict=True)
            values = [if_then_else(condition, v, i) for v, i in pairs]
        handles: list[Var] = list(call.args[2 + count : 2 + 2 * count])  # type: ignore[arg-type]
        # an axis of one thread may have become its index, 0
        reduced = {self._tag(v) for v in call.args[2 + 2 * count :] if isinstance(v, Var)}
        tags = [tag for tag in THREAD_TAGS if tag in self.axes.extents]
        for tag in tags:
            if self.axes.extent(tag) is None:
                raise TilewrightError(
                    f"{self.name}: threads reduce together, so {tag} needs a constant extent, not "
                    f"{self.axes.extents[tag]}"
                )
        variables = {self.axes.tags[v]: v for v in reversed(self.axes.tags)}
        others = [tag for tag in tags if tag not in reduced]
        lane, size = flat_index(self.axes, variables, [tag for tag in tags if tag in reduced])
        number, groups = flat_index(self.axes, variables, others)
        real = [tag in reduced for tag in tags if self.axes.extent(tag) != 1]
        contiguous = real == sorted(real, reverse=True)
        return _Group(reducer, values, handles, lane, number, size, groups, contiguous)

    def _tag(self, var: Var) -> str:
        tag = self.axes.tags.get(var, "")
        if tag not in THREAD_TAGS:
            raise TilewrightError(
                f"{self.name}: a reduction is bound to {tag or var.name}; only threads of one block, threadIdx.x, y "
                "and z, can reduce together"
            )
        return tag

    # ---- shared memory ----

    def _through_memory(self, group: _Group) -> Stmt:
        """Reduce as a tree in memory: in each step the first half of the threads combines the second half's values."""
        size = group.size
        buffers = [self.memory.buffer(k, v.dtype, size * group.count) for k, v in enumerate(group.values)]

        def at(index: PrimExpr) -> PrimExpr:
            return ops.add(ops.mul(group.number, size), index)

        def load(index: PrimExpr) -> list[PrimExpr]:
            return [Load(v.dtype, b, at(index)) for b, v in zip(buffers, group.values, strict=True)]

        parts: list[Stmt] = [barrier("shared")]
        parts += [Store(b, v, at(group.lane)) for b, v in zip(buffers, group.values, strict=True)]
        parts.append(barrier("shared"))
        left = size
        while left > 1:
            half = 1 << (left - 1).bit_length() - 1
            new = group.combine(load(group.lane), load(ops.add(group.lane, half)))
            step = _store_flat(buffers, new, at(group.lane))
            parts += [IfThenElse(ops.less(group.lane, left - half), step), barrier("shared")]
            left = half
        return seq(*parts, group.finish(load(ops.const(0))))

    # ---- shuffles ----

    def _can_shuffle(self, group: _Group) -> bool:
        plain = all(dt.lanes(v.dtype) == 1 and dt.bits(v.dtype) in (32, 64) for v in group.values)
        if self.warp == 1 or not plain or not group.contiguous:
            return False
        if group.size <= self.warp:
            return group.size & (group.size - 1) == 0
        return group.size % self.warp == 0 and group.size // self.warp <= self.warp

    def _by_shuffles(self, group: _Group) -> Stmt:
        mask = Var("mask", "uint32")
        steps = _Steps(mask, self.warp)
        values = steps.reduce(group, group.values, min(group.size, self.warp))
        if group.size > self.warp:
            values = self._across_warps(group, steps, values)
        first = group.size if group.size <= self.warp else 1 << (group.size // self.warp - 1).bit_length()
        values = [steps.bind(f"all{k}", steps.shuffle("", v, 0, first)) for k, v in enumerate(values)]
        steps.stmts.append(group.finish(values))
        return LetStmt(mask, Call("uint32", "tir.tvm_warp_activemask", ()), steps.nested())

    def _across_warps(self, group: _Group, steps: _Steps, values: list[PrimExpr]) -> list[PrimExpr]:
        """Reduce across warps: the first lane of each warp stores its value in shared memory, and every warp reduces
        these.
        """
        warps = group.size // self.warp
        width = 1 << (warps - 1).bit_length()
        buffers = [self.memory.buffer(k, v.dtype, warps * group.count) for k, v in enumerate(values)]
        warp, lane = ops.floordiv(group.lane, self.warp), ops.floormod(group.lane, self.warp)
        base = ops.mul(group.number, warps)
        stores = seq(*(Store(b, v, ops.add(base, warp)) for b, v in zip(buffers, values, strict=True)))
        steps.stmts += [barrier("shared"), IfThenElse(ops.equal(lane, 0), stores), barrier("shared")]
        place = ops.floormod(lane, width)
        found: list[PrimExpr] = []
        for k, (b, v) in enumerate(zip(buffers, values, strict=True)):
            value: PrimExpr = Load(v.dtype, b, ops.add(base, place))
            if warps < width:
                value = if_then_else(ops.less(place, warps), value, group.reducer.identity_element[k])
            found.append(steps.bind(f"part{k}", value))
        return steps.reduce(group, found, width)


class _Steps:
    """Statements in a row, and names for values between them."""

    def __init__(self, mask: Var, warp: int) -> None:
        self.mask = mask
        self.warp = warp
        self.stmts: list[Stmt | tuple[Var, PrimExpr]] = []

    def bind(self, name: str, value: PrimExpr) -> Var:
        """Bind a value to a name, so that it is computed once, here."""
        var = Var(name, value.dtype)
        self.stmts.append((var, value))
        return var

    def shuffle(self, kind: str, value: PrimExpr, lane: int, width: int) -> PrimExpr:
        """The value of another lane among ``width``."""
        return Call(value.dtype, f"tir.tvm_warp_shuffle{kind}", (self.mask, value, lane, width, self.warp))

    def reduce(self, group: _Group, values: Sequence[PrimExpr], width: int) -> list[PrimExpr]:
        """The first of ``width`` lanes has the whole afterwards."""
        now: list[PrimExpr] = [self.bind(f"own{k}", v) for k, v in enumerate(values)]
        step = width // 2
        while step:
            others = [self.bind(f"other{k}", self.shuffle("_down", v, step, width)) for k, v in enumerate(now)]
            now = [self.bind(f"sum{k}", v) for k, v in enumerate(group.combine(now, others))]
            step //= 2
        return now

    def nested(self) -> Stmt:
        """The statements inside the names that come before them."""
        body: Stmt | None = None
        for item in reversed(self.stmts):
            if isinstance(item, Stmt):
                body = item if body is None else seq(item, body)
            else:
                assert body is not None
                body = LetStmt(item[0], item[1], body)
        assert body is not None
        return body


def _store_flat(buffers: Sequence[Var], values: Sequence[PrimExpr], index: PrimExpr) -> Stmt:
    """Store values that may read one another's targets."""
    if len(buffers) == 1:
        return Store(buffers[0], values[0], index)
    names = [Var(f"new{k}", v.dtype) for k, v in enumerate(values)]
    body = seq(*(Store(b, n, index) for b, n in zip(buffers, names, strict=True)))
    for name, value in zip(reversed(names), reversed(values), strict=True):
        body = LetStmt(name, value, body)
    return body


class _Lower(KernelMutator):
    def __init__(self, warp: int, name: str) -> None:
        super().__init__()
        self.warp = warp
        self.name = name

    def visit_kernel(self, s: AttrStmt) -> Stmt:
        inside = _Reductions(ThreadAxes(s), self.warp, self.name)
        new: Stmt = inside.visit_stmt(s)
        return _below_axes(new, inside.memory) if inside.memory.buffers else new


def _below_axes(s: Stmt, memory: _Memory) -> Stmt:
    """The shared buffers right below the outermost thread axes."""
    if isinstance(s, AttrStmt) and is_thread_scope(s):
        return s.replace(body=_below_axes(s.body, memory))
    for key, buffer in reversed(memory.buffers.items()):
        s = Allocate(buffer, key[1], [ops.const(memory.sizes[key])], ops.const(True), s)
    return s


def lower_thread_allreduce(func: PrimFunc) -> PrimFunc:
    """Lower the reductions of threads in the kernels of a function.

    Raises
    ------
    TilewrightError : the function has no target; threads reduce where not all come to; an extent is not constant
    """
    target = TARGET.get(func)
    if target is None:
        raise TilewrightError("LowerThreadAllreduce needs functions with the attribute target")
    warp = int(target.attrs.get("thread_warp_size", 1)) if target.kind.capabilities.warp_shuffles else 1
    body = _Lower(warp, GLOBAL_SYMBOL.get(func, "main")).visit_stmt(func.body)
    return func if body is func.body else func.with_body(body)


def LowerThreadAllreduce() -> Pass:
    """Lower reductions across threads to warp shuffles and shared memory."""
    return function_pass("LowerThreadAllreduce", lower_thread_allreduce)
