"""Hand-written loops for any target: rows, and the elements of a row, are shared among threads.

``each`` runs independent iterations: as a (parallel) loop on CPUs, one per thread on GPUs. ``thread_group`` assigns
cooperating threads to every row: one on CPUs, a block on GPUs. They share the elements of the row
(``ThreadGroup.each``), synchronize (``ThreadGroup.sync``), and compact chosen elements in order
(``ThreadGroup.collect``). So one source serves both.

::

    with loops.thread_group(ib, rows, n) as threads:
        total = threads.allocate("int32", 1, "total")
        with threads.alone():
            total[0] = 0
        threads.sync()
        with threads.each(n) as k: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm, PrimExpr
from tilewright.runtime.renamed import warn_renamed
from tilewright.target.target import Target
from tilewright.tir.stmt import AttrStmt
from tilewright.topi.utils import simplify

MOST_THREADS = 256  # of a block


def on_gpu() -> bool:
    """Return whether the current target has blocks of threads."""
    target = Target.current()
    return target is not None and "gpu" in target.keys


def block_size(extent: Any = None) -> int:
    """Return the threads of a block for ``extent`` elements: a power of two."""
    target = Target.current()
    most = target.max_num_threads if target is not None and target.max_num_threads > 1 else MOST_THREADS
    most = min(most, MOST_THREADS)
    known = _known(extent)
    return most if known is None else min(most, 1 << max(known - 1, 0).bit_length())


def _known(extent: Any) -> int | None:
    if isinstance(extent, int):
        return extent
    value = simplify(ops.as_expr(extent)) if extent is not None else None
    return int(value) if isinstance(value, IntImm) else None


@contextmanager
def launch(ib: Any, blocks: Any, threads: Any) -> Iterator[tuple[PrimExpr, PrimExpr]]:
    """Launch ``blocks`` blocks of ``threads`` threads; return the indices of the block and of the thread in it.

    With 0 blocks nothing runs.
    """
    block, thread = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
    with ib.new_scope():
        for axis, extent in ((block, blocks), (thread, threads)):
            ib.emit(lambda body, axis=axis, extent=extent: AttrStmt(axis, "thread_extent", ops.as_expr(extent), body))
        yield block.var, thread.var


def barrier(ib: Any) -> None:
    """Synchronize the threads of a block; each then sees the others' writes."""
    ib.emit(tir.call_intrin("int32", "tir.tvm_storage_sync", "shared"))


@contextmanager
def each(ib: Any, extent: Any, name: str = "i", kind: str = "serial") -> Iterator[PrimExpr]:
    """Run independent iterations; ``kind`` is that of the loop on CPUs."""
    if not on_gpu():
        with ib.for_range(0, extent, name=name, kind=kind) as i:
            yield i
        return
    known = _known(extent)
    threads = max(min(block_size(), known), 1) if known is not None else block_size()
    total = ops.as_expr(extent if known is None else known)
    with launch(ib, ops.floordiv(total + (threads - 1), threads), threads) as (block, thread):
        i = ib.let(name, block * threads + thread)
        with nullcontext() if known is not None and known % threads == 0 else ib.if_scope(i < total):
            yield i


@dataclass
class ThreadGroup:
    """The ``size`` cooperating threads of a row (one on CPUs); this thread is ``member``."""

    ib: Any
    row: PrimExpr
    member: PrimExpr
    size: int

    def allocate(self, dtype: str, extent: int, name: str) -> Any:
        """Allocate a small buffer that all cooperating threads share."""
        scope = "shared" if self.size > 1 else "local"
        return self.ib.allocate(dtype, (extent,), name=name, scope=scope)

    def sync(self) -> None:
        """Wait for all cooperating threads; every one of them must get here."""
        if self.size > 1:
            barrier(self.ib)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run the block of code on one thread only."""
        with self.ib.if_scope(self.member.equal(0)) if self.size > 1 else nullcontext():
            yield

    @contextmanager
    def each(self, extent: Any, name: str = "k", begin: Any = 0) -> Iterator[PrimExpr]:
        """Share the iterations from ``begin`` to ``extent``: consecutive threads take consecutive ones."""
        ib = self.ib
        if self.size == 1:
            with ib.for_range(begin, extent, name=name) as k:
                yield k
            return
        total = ops.as_expr(extent) - begin
        with ib.for_range(0, ops.floordiv(total + (self.size - 1), self.size), name=f"{name}_step") as step:
            k = ib.let(name, step * self.size + self.member + begin)
            with ib.if_scope(k < ops.as_expr(extent)):
                yield k

    def collect(
        self,
        extent: Any,
        wanted: Callable[[PrimExpr], PrimExpr],
        visit: Callable[[PrimExpr, PrimExpr, PrimExpr], None],
        name: str = "k",
    ) -> PrimExpr:
        """Number the wanted ones of 0 .. extent - 1 in order; return their count on all threads.

        ``visit(k, is_wanted, place)`` is called for every k, ``place`` being the number of wanted ones before it. All
        threads must get here, or none.
        """
        ib = self.ib
        count = self.allocate("int32", 1, f"{name}_count")
        with self.alone():
            count[0] = ops.const(0, "int32")
        if self.size == 1:
            with ib.for_range(0, extent, name=name) as k:
                chosen = ib.let("chosen", wanted(k))
                visit(k, chosen, count[0])
                count[0] = count[0] + ops.cast("int32", chosen)
            return count[0]
        self.sync()
        ranks = self.allocate("int32", self.size, f"{name}_ranks")
        chosen = ib.allocate("int32", (1,), name="chosen", scope="local")
        total = ops.as_expr(extent)
        with ib.for_range(0, ops.floordiv(total + (self.size - 1), self.size), name=f"{name}_step") as step:
            k = ib.let(name, step * self.size + self.member)
            chosen[0] = ops.const(0, "int32")
            with ib.if_scope(k < total):
                chosen[0] = ops.cast("int32", wanted(k))
            self.running(ranks, chosen[0], ops.add, 0)
            with ib.if_scope(k < total):
                visit(k, chosen[0].equal(1), count[0] + ranks[self.member] - chosen[0])
            self.sync()
            with self.alone():
                count[0] = count[0] + ranks[self.size - 1]
            self.sync()
        return count[0]

    def running(self, totals: Any, value: PrimExpr, combine: Callable[[Any, Any], PrimExpr], identity: Any) -> None:
        """Combine in ``totals[member]`` the values of the threads up to this one (an inclusive scan).

        In log2(size) steps (Hillis and Steele, 1986); the threads are synchronized at the end.
        """
        ib, member = self.ib, self.member
        sums = ib.allocate(totals.dtype, (1,), name="running", scope="local")
        totals[member] = value
        self.sync()
        distance = 1
        while distance < self.size:
            before = tir.if_then_else(member >= distance, totals[member - distance], ops.const(identity, totals.dtype))
            sums[0] = combine(before, totals[member])
            self.sync()
            totals[member] = sums[0]
            self.sync()
            distance *= 2


@contextmanager
def thread_group(ib: Any, rows: Any, extent: Any, name: str = "row", kind: str = "serial") -> Iterator[ThreadGroup]:
    """Assign cooperating threads to each of ``rows`` rows of about ``extent`` elements; ``kind``: loop kind on CPUs."""
    if on_gpu():
        size = max(block_size(extent), 2)  # of one thread, memory of the block would not be told from a thread's own
        with launch(ib, rows, size) as (row, member):
            yield ThreadGroup(ib, row, member, size)
        return
    with ib.for_range(0, rows, name=name, kind=kind) as row:
        yield ThreadGroup(ib, row, ops.const(0, "int32"), 1)


def workspace(ib: Any, rows: Any, extent: Any, dtype: str, name: str) -> Callable[[PrimExpr], tuple[Any, Any]]:
    """Allocate memory for each row of a loop that is serial on CPUs; call it before the loop.

    Returns a function of the row: the buffer, and the offset of the row in it.
    """
    extent = max(extent, 1) if isinstance(extent, int) else extent
    apart = on_gpu()
    memory = ib.allocate(dtype, (rows * extent if apart else extent,), name=name, scope="global")
    return lambda row: (memory, row * extent if apart else ops.const(0, "int32"))


_RENAMED = {"Team": "ThreadGroup", "team": "thread_group"}  # names of the last release


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn_renamed(f"topi.loops.{name}", _RENAMED[name])
    return globals()[_RENAMED[name]]
