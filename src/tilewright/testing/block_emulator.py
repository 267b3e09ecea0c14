"""An emulator of GPUs for tests: runs lowered functions on numpy arrays, all threads of a kernel side by side.

>>> run(func, a, b, c)                         # c is written in place; func is before or after the device passes
>>> run_schedule(s, [A, B, C], a, b, c)        # lowered, through the passes of device builds, checked after each

Every value is an array over the threads (*lanes*) of some blocks, which take each step together; where a condition
differs between them, those that do not meet it wait. It is an oracle of its own: it shares nothing with the code
generators, and finds what a run on a device may hide:

- races: a thread touches an element of shared, warp or global memory that another one has touched since the last
  barrier, and one of them writes (writing the value that is there already is no race), or that a thread of another
  block has touched at all (:class:`RaceError`);
- barriers, allreduces and shuffles in code that not all threads come to;
- accesses out of bounds, and, by NaN or an odd number in fresh memory, reads of what was never written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.function_attributes import TARGET
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.testing.block_expr import Code, ExprCode
from tilewright.testing.block_memory import BlockMemory, Lanes, RaceError
from tilewright.testing.tir_interpreter import bind_argument, strides_of
from tilewright.testing.tir_values import InterpreterError, fresh
from tilewright.tir.expr import IterVar, PrimExpr, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Prefetch,
    SeqStmt,
    Stmt,
    Store,
    While,
)  # fmt: skip
from tilewright.tir.transform.threads import BLOCK_TAGS, THREAD_TAGS, ThreadAxes, is_thread_scope, storage_scope

__all__ = ["InterpreterError", "RaceError", "run", "run_schedule"]

_MOST_LANES = 1 << 15


def run(
    func: PrimFunc,
    *args: np.ndarray | int | float,
    warp_size: int = 32,
    externs: Mapping[str, Callable[..., Any]] | None = None,
) -> None:
    """Run ``func``, with all its kernels; arrays are passed by reference.

    Parameters
    ----------
    args : one contiguous array or number for each parameter
    warp_size : threads of a warp, along the linear index of a block
    externs : elementwise numpy functions for call_pure_extern and the like

    Raises
    ------
    RaceError : two threads race for an element
    InterpreterError : an access out of bounds; a barrier that not all threads of a block come to
    """
    if len(args) != len(func.params):
        raise InterpreterError(f"{len(func.params)} arguments are expected, got {len(args)}")
    machine = _Machine(warp_size, externs or {})
    for param, arg in zip(func.params, args, strict=True):
        buffer = func.buffer_map.get(param)
        if buffer is None:
            machine.env[param] = numpy_dtype(param.dtype).type(arg)
            continue
        assert isinstance(arg, np.ndarray)
        bind_argument(machine.env, buffer, arg)
        data = machine.env[buffer.data].data
        machine.env[buffer.data] = BlockMemory(buffer.name, data, len(data), None, "global")
    for var, value in machine.env.items():
        if isinstance(var, Var) and isinstance(value, int):
            machine.env[var] = numpy_dtype(var.dtype).type(value)
    code = machine.stmt(func.body)
    with np.errstate(all="ignore"):
        code()


def run_schedule(
    sch: Any, args: Sequence[Any], *arrays: np.ndarray, target: Any = "opencl", name: str = "main"
) -> None:
    """Lower a schedule, send it through the passes of device builds for ``target``, and run the result.

    Raises what ``run`` raises, and what the passes raise.
    """
    from tilewright.target.device_build import before_split
    from tilewright.target.target import Target
    from tilewright.te.lower import lower

    chosen = Target(target)
    with chosen:
        mod = lower(sch, args, name=name)
        mod[name] = mod[name].with_attr(TARGET.key, chosen)
        for step in before_split():
            mod = step(mod)
    run(mod[name], *arrays, warp_size=chosen.thread_warp_size if chosen.thread_warp_size > 1 else 32)


class _Machine(ExprCode):
    """Converts statements to Python functions, with the memory and the kernels."""

    def stmt(self, s: Stmt) -> Code:
        """The code of a statement."""
        handler = _STMT.get(type(s))
        if handler is None:
            raise InterpreterError(f"statements of class {type(s).__name__} are not known here")
        code: Code = handler(self, s)
        return code

    def _for(self, s: For) -> Code:
        low, extent, body, kind = (
            self.expr(s.min),
            self.expr(s.extent),
            self.stmt(s.body),
            numpy_dtype(s.loop_var.dtype),
        )

        def code() -> None:
            start, size = low(), extent()
            end = start + size
            if np.ndim(end) == 0 and np.ndim(start) == 0:
                for value in range(int(start), int(end)):
                    self.env[s.loop_var] = kind.type(value)
                    body()
                return
            starts, ends = self.spread(start, "int32"), self.spread(end, "int32")
            active = self.active()
            for value in range(int(starts[active].min()), int(ends[active].max())):
                inside = (starts <= value) & (value < ends)
                self.env[s.loop_var] = kind.type(value)
                self.under(np.bool_(True) if inside[active].all() else inside, body)

        return code

    def _while(self, s: While) -> Code:
        condition, body = self.expr(s.condition), self.stmt(s.body)

        def code() -> None:
            outer = self.mask
            try:
                while True:
                    met = condition()
                    if np.ndim(met):
                        self.mask = met if self.mask is None else self.mask & met
                        met = self.mask.any()
                        if self.mask.all():
                            self.mask = None
                    if not met:
                        return
                    body()
            finally:
                self.mask = outer

        return code

    def _if(self, s: IfThenElse) -> Code:
        condition, then = self.expr(s.condition), self.stmt(s.then_case)
        otherwise = None if s.else_case is None else self.stmt(s.else_case)

        def code() -> None:
            met = condition()
            if np.ndim(met) and (met.all() if self.mask is None else met[self.mask].all()):
                met = np.bool_(True)
            self.under(met, then)
            if otherwise is not None:
                self.under(~met, otherwise)

        return code

    def _seq(self, s: SeqStmt) -> Code:
        parts = [self.stmt(item) for item in s.seq]

        def code() -> None:
            for part in parts:
                part()

        return code

    def _let_stmt(self, s: LetStmt) -> Code:
        value, body = self.expr(s.value), self.stmt(s.body)

        def code() -> None:
            self.env[s.var] = value()
            body()

        return code

    def _store(self, s: Store) -> Code:
        index, predicate, env = self.expr(s.index), self.expr(s.predicate), self.env
        return self._write(lambda: (env[s.buffer_var], index()), s.value, predicate)

    def _buffer_store(self, s: BufferStore) -> Code:
        return self._write(self.place(s.buffer, s.indices), s.value, lambda: np.bool_(True))

    def _write(self, place: Code, value: PrimExpr, predicate: Code) -> Code:
        source, dtype = self.expr(value), value.dtype
        kind = numpy_dtype(dt.element(dtype))

        def code() -> None:
            where = self.where(predicate(), dtype)
            if not where.any():
                return
            new = self.spread(source(), dtype)
            memory, index = place()
            memory = memory.as_type(kind)
            lanes = np.nonzero(where)[0]
            memory.write(self.lanes, lanes, self.spread(index, dtype)[where], new[where].astype(memory.data.dtype))

        return code

    def _new_memory(self, var: Var, dtype: str, scope: str, count: int) -> BlockMemory:
        if scope == "shared.dyn":  # elements of other types may lie there
            count = -(-count // 16) * 16
        size = count * dt.lanes(dtype)
        run = self.lanes
        if run is None:
            return BlockMemory(var.name, fresh(var.name, dtype, count).data, size, None, "global")
        kinds = {"shared": ("shared", run.block), "warp": ("warp", run.warp), "wmma": ("warp", run.warp)}
        kind, group = kinds.get(scope.split(".")[0], ("local", np.arange(run.count)))
        return BlockMemory(var.name, fresh(var.name, dtype, count * (int(group.max()) + 1)).data, size, group, kind)

    def _allocate(self, s: Allocate) -> Code:
        extents, body, var = [self.expr(e) for e in s.extents], self.stmt(s.body), s.buffer_var

        def code() -> None:
            count = math.prod(int(np.max(e())) for e in extents)
            self.env[var] = self._new_memory(var, s.dtype, storage_scope(var), count)
            body()

        return code

    def _realize(self, s: BufferRealize) -> Code:
        low, extents = [self.expr(r.min) for r in s.bounds], [self.expr(r.extent) for r in s.bounds]
        body, buffer = self.stmt(s.body), s.buffer
        aligned = self.alignment.get(buffer, {})

        def code() -> None:
            sizes = [int(np.max(e())) for e in extents]
            steps, count = strides_of(sizes, aligned)
            self.env[buffer] = ([v() for v in low], sizes, steps)
            self.env[buffer.data] = self._new_memory(buffer.data, buffer.dtype, buffer.scope, count)
            body()

        return code

    def _attr(self, s: AttrStmt) -> Code:
        if s.attr_key == "buffer_dim_align":
            dim, factor, offset = (int(a) for a in s.value.args)  # type: ignore[attr-defined]
            self.alignment.setdefault(s.node, {})[dim] = (factor, offset)
        if is_thread_scope(s) and self.axes is None:
            return self._kernel(s)
        if s.attr_key == "reduce_scope":
            self.reducers.append(s.node)
        body = self.stmt(s.body)
        if s.attr_key == "reduce_scope":
            self.reducers.pop()
        if s.attr_key != "virtual_thread" or not isinstance(s.node, IterVar):
            return body
        extent, var = self.expr(s.value), s.node.var

        def code() -> None:
            for value in range(int(extent())):
                self.env[var] = numpy_dtype(var.dtype).type(value)
                body()

        return code

    def _kernel(self, s: AttrStmt) -> Code:
        """Run a kernel: all its blocks, in groups of a reasonable number of lanes."""
        axes = self.axes = ThreadAxes(s)
        body = self.stmt(s.body)
        self.axes = None
        extents = {tag: self.expr(e) for tag, e in axes.extents.items()}

        def code() -> None:
            size = {tag: int(e()) for tag, e in extents.items()}
            threads = math.prod(size.get(tag, 1) for tag in THREAD_TAGS)
            blocks = math.prod(size.get(tag, 1) for tag in BLOCK_TAGS)
            self.kernels += 1
            self.axes = axes
            at_a_time = max(1, _MOST_LANES // max(threads, 1))
            for first in range(0, blocks if threads else 0, at_a_time):
                count = min(at_a_time, blocks - first)
                self.lanes = Lanes(self.kernels, first * threads, count, threads, self.warp_size)
                for tags, rest in ((THREAD_TAGS, self.lanes.thread), (BLOCK_TAGS, self.lanes.block + first)):
                    for tag in tags:
                        extent = size.get(tag, 1)
                        for var in (v for v, t in axes.tags.items() if t == tag):
                            self.env[var] = (rest % extent).astype(numpy_dtype(var.dtype))
                        rest = rest // extent
                body()
            self.lanes, self.axes = None, None

        return code

    def _assert(self, s: AssertStmt) -> Code:
        condition, message, body = self.expr(s.condition), self.expr(s.message), self.stmt(s.body)

        def code() -> None:
            if not np.all(self.spread(condition(), "bool")[self.active()]):
                raise InterpreterError(f"assertion failed: {message()}")
            body()

        return code

    def _evaluate(self, s: Evaluate) -> Code:
        return self.expr(s.value)

    def _prefetch(self, s: Prefetch) -> Code:
        return lambda: None


_STMT: dict[type, Callable[[_Machine, Any], Code]] = {
    For: _Machine._for, While: _Machine._while, IfThenElse: _Machine._if, SeqStmt: _Machine._seq,
    LetStmt: _Machine._let_stmt, Store: _Machine._store, BufferStore: _Machine._buffer_store,
    Allocate: _Machine._allocate, BufferRealize: _Machine._realize, AttrStmt: _Machine._attr,
    AssertStmt: _Machine._assert, Evaluate: _Machine._evaluate, Prefetch: _Machine._prefetch,
}  # fmt: skip
