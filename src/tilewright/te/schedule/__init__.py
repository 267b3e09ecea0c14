"""Schedules of tensor expressions.

stage.py       Stage: the loops of one operation and the primitives that change them
schedule.py    Schedule, create_schedule        primitives.py   cache_read, cache_write, rfactor, normalize
domains.py     values and ranges through splits and fuses      bounds.py   InferBound
lower.py       a schedule with its bounds to TIR statements     tensorized.py  the same inside tensor intrinsics
nest.py        what loop nests are put together from
auto_inline.py inlining by rule
"""

from collections.abc import Mapping
from typing import Any

from tilewright.ir.memory import Buffer, decl_buffer
from tilewright.te.operation import PlaceholderOp
from tilewright.te.schedule.auto_inline import AutoInlineBroadcast, AutoInlineElemWise, AutoInlineInjective
from tilewright.te.schedule.bounds import infer_bound
from tilewright.te.schedule.lower import lower_schedule
from tilewright.te.schedule.schedule import Schedule, create_schedule
from tilewright.te.schedule.stage import Fuse, Singleton, Split, Stage
from tilewright.te.tensorize import TensorIntrin as TensorIntrin
from tilewright.tir.expr import IterVar
from tilewright.tir.stmt import Stmt


def InferBound(sch: Schedule) -> dict[Any, Any]:
    """The range of every iteration variable of a schedule."""
    return infer_bound(sch.normalize()).ranges


def ScheduleOps(
    sch: Schedule, bounds: Mapping[IterVar, Any] | None = None, debug_keep_trivial_loop: bool = False
) -> Stmt:
    """The loops of a schedule, before any pass; every tensor that it computes is realized inside the statement.

    Parameters
    ----------
    sch : the schedule
    bounds : what ``InferBound`` gave; the same is found again here
    debug_keep_trivial_loop : keep loops that run once
    """
    inputs = [t for stage in sch.stages if isinstance(stage.op, PlaceholderOp) for t in stage.op.outputs]
    buffers = {t: decl_buffer(t.shape, t.dtype, t.name) for t in inputs}
    return lower_schedule(sch, buffers, debug_keep_trivial_loop)


__all__ = [
    "AutoInlineBroadcast",
    "AutoInlineElemWise",
    "AutoInlineInjective",
    "Buffer",
    "Fuse",
    "InferBound",
    "IterVar",
    "Schedule",
    "ScheduleOps",
    "Singleton",
    "Split",
    "Stage",
    "create_schedule",
]
