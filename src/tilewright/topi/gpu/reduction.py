"""Schedules of reductions: by one thread per result, by a warp or a block, or by many blocks in two steps.

========================  ===========================================================================================
what is reduced           how
========================  ===========================================================================================
few elements              a thread reduces them one by one; so too columns, where there are many: neighbouring threads
                          read neighbouring elements
rows of some hundreds     a warp per row, several rows per block: each thread a partial result, then all combined
long rows                 a block per row
columns, few of them      threads along x take columns, those along y parts of them
very long, few results    many blocks reduce a part each to memory, a second kernel reduces the parts
========================  ===========================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te.operation import producer_loads
from tilewright.tir.expr import Reduce
from tilewright.tir.visitor import free_vars
from tilewright.topi.gpu.common import (
    at_root,
    bind_elements,
    block_axis,
    block_size,
    element_count,
    extent_of,
    power_of_two,
    warp_size,
)
from tilewright.topi.utils import as_list

_FEW = 32  # elements that a thread reduces alone
_MANY_COLUMNS = 2048  # results that fill a device, a thread each
_LONG_ROW = 1024  # elements above which a row has a block
_VERY_LONG = 1 << 16  # elements above which few results are reduced in two steps
_FEW_BLOCKS = 64
_PARTS = 256  # of what is reduced in two steps


@dataclass(frozen=True)
class ThreadGroup:
    """Cooperating threads: ``lanes`` threads reduce each of a block's ``results`` results; ``across``:
    lanes along x.
    """

    lanes: int
    results: int
    across: bool = True


def runs_along_rows(op: Any) -> bool:
    """Return whether, in every reduced tensor, neighbours in memory are reduced together."""
    reduced = {iv.var for iv in op.reduce_axis}
    body = op.body[0]
    roots = body.source if isinstance(body, Reduce) else op.body
    last = [load.indices[-1] for load in producer_loads(roots) if load.indices]
    return bool(last) and all(any(v in reduced for v in free_vars(index)) for index in last)


def thread_group_for(op: Any) -> ThreadGroup | None:
    """Return the threads that reduce each result of ``op`` together; None: one thread per result."""
    size, results = extent_of(op.reduce_axis), element_count(op.output(0))
    along = runs_along_rows(op)
    if (size is not None and size <= _FEW) or results == 0:
        return None
    if not along:
        if results is None or size is None or results >= _MANY_COLUMNS:
            return None
        columns = min(power_of_two(results), warp_size())
        return ThreadGroup(min(block_size() // columns, power_of_two(size)), columns, across=False)
    return row_thread_group(size, results)


def row_thread_group(size: int | None, results: int | None) -> ThreadGroup:
    """Return the cooperating threads for ``results`` rows of ``size`` elements."""
    threads, warp = block_size(), warp_size()
    if size is not None and size <= _LONG_ROW and (results is None or results > 1):
        rows = threads // warp if results is None else min(threads // warp, power_of_two(results))
        return ThreadGroup(warp, rows)
    return ThreadGroup(threads if size is None else min(threads, power_of_two(size)), 1)


def bind_reduction(s: te.Schedule, op: Any, follower: Any = None) -> None:
    """Bind a root reduction, and the element-wise operation of its shape that alone reads it, to threads."""
    op = _in_two_steps(s, op)
    thread_group = thread_group_for(op)
    if thread_group is None:
        _bind_threads(s, op, follower)
        return
    _bind_thread_group(s, op, thread_group, follower)


def _bind_threads(s: te.Schedule, op: Any, follower: Any) -> None:
    """Bind each result to a thread, which keeps it in registers until it is complete."""
    last, sums = follower, op
    if follower is None:
        sums = as_list(s.cache_write([op.output(k) for k in range(op.num_outputs)], "local"))[0].op
        last = s[op.output(0)].op
    else:
        s[op].set_scope("local")
    thread = bind_elements(s, last, vectors=False)
    s[sums].compute_at(s[last], thread)


def _in_two_steps(s: te.Schedule, op: Any) -> Any:
    """Reduce in many blocks first when few results have very many elements; return the operation that finishes."""
    size, results = extent_of(op.reduce_axis), element_count(op.output(0))
    if size is None or results is None or size < _VERY_LONG or not 0 < results < _FEW_BLOCKS:
        return op
    tensor = op.output(0)
    stage = s[tensor]
    part, _ = stage.split(stage.fuse(*stage.op.reduce_axis), nparts=_PARTS)
    partial = as_list(s.rfactor(tensor, part))[0]
    bind_reduction(s, s[partial].op)
    return s[tensor].op


def _bind_thread_group(s: te.Schedule, op: Any, thread_group: ThreadGroup, follower: Any) -> None:
    tensor = op.output(0)
    last = s[follower] if follower is not None else None
    lane, place = ("threadIdx.x", "threadIdx.y") if thread_group.across else ("threadIdx.y", "threadIdx.x")
    x = te.thread_axis((0, thread_group.lanes), lane)
    reduce_by_threads(s, tensor, x, thread_group.lanes)
    stage = last if last is not None else s[tensor]
    block, result = stage.split(stage.fuse(*stage.op.axis), factor=thread_group.results)
    stage.bind(block, block_axis())
    stage.bind(result, te.thread_axis((0, thread_group.results), place))
    if last is not None:
        stage.env_threads([x])
        s[tensor].set_scope("local")
        s[tensor].compute_at(last, result)
    stage.set_store_predicate(x.var.equal(0))


def reduce_by_threads(s: te.Schedule, tensor: te.Tensor, thread: Any, lanes: int) -> None:
    """Reduce ``tensor`` by cooperating threads: each takes every ``lanes``-th element, then the partials
    are combined.
    """
    stage = s[tensor]
    axes = list(stage.op.reduce_axis)
    _, inner = stage.split(stage.fuse(*axes) if len(axes) > 1 else axes[0], factor=lanes)
    partial = as_list(s.rfactor(tensor, inner))[0]
    stage = s[tensor]
    lane = stage.op.reduce_axis[0]
    stage.bind(lane, thread)
    s[partial].compute_at(stage, lane)
    assert at_root(stage)
