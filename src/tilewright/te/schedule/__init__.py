"""Schedules of tensor expressions.

stage.py       Stage: the loops of one operation and the primitives that change them
schedule.py    Schedule, create_schedule        primitives.py   cache_read, cache_write, rfactor, normalize
domains.py     values and ranges through splits and fuses      bounds.py   InferBound
lower.py       a schedule with its bounds to TIR statements     tensorized.py  the same inside tensor intrinsics
nest.py        what loop nests are put together from
auto_inline.py inlining by rule
"""

from typing import Any

from tilewright.te.schedule.auto_inline import AutoInlineBroadcast, AutoInlineElemWise, AutoInlineInjective
from tilewright.te.schedule.bounds import infer_bound
from tilewright.te.schedule.schedule import Schedule, create_schedule
from tilewright.te.schedule.stage import Stage


def InferBound(sch: Schedule) -> dict[Any, Any]:
    """The range of every iteration variable of a normalized schedule."""
    return infer_bound(sch).ranges


__all__ = [
    "AutoInlineBroadcast",
    "AutoInlineElemWise",
    "AutoInlineInjective",
    "InferBound",
    "Schedule",
    "Stage",
    "create_schedule",
]
