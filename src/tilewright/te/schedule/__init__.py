"""Schedules of tensor expressions.

stage.py       Stage: the loops of one operation and the primitives that change them
schedule.py    Schedule, create_schedule        primitives.py   cache_read, cache_write, rfactor, normalize
domains.py     values and ranges through splits and fuses      bounds.py   InferBound
lower.py       a schedule with its bounds to TIR statements     tensorized.py  the same inside tensor intrinsics
nest.py        what loop nests are put together from
auto_inline.py inlining by rule                schedule_ops.py  bounds and loops by TVM's names
saved.py       schedules as nodes, for JSON     text.py         a schedule in words
cross_thread.py  reductions over threads        hybrid.py       loops of hybrid scripts
graph.py       graphs of operations, loops around stages, what a recurrence hands on
"""

import tilewright.te.schedule.saved  # noqa: F401  (registers the form in which save_json writes schedules)
from tilewright.ir.memory import Buffer
from tilewright.te.schedule.auto_inline import AutoInlineBroadcast, AutoInlineElemWise, AutoInlineInjective
from tilewright.te.schedule.graph import (
    CreateAttachPath,
    CreateReadGraph,
    PostDFSOrder,
    ScanFixPointAnalysis,
    ScanGetBody,
)
from tilewright.te.schedule.schedule import Schedule, create_schedule
from tilewright.te.schedule.schedule_ops import InferBound, ScheduleOps, SchedulePostProcToPrimFunc
from tilewright.te.schedule.stage import Fuse, Singleton, Split, Stage
from tilewright.te.tensorize import TensorIntrin
from tilewright.tir.expr import IterVar

__all__ = [
    "AutoInlineBroadcast",
    "AutoInlineElemWise",
    "AutoInlineInjective",
    "Buffer",
    "CreateAttachPath",
    "CreateReadGraph",
    "Fuse",
    "InferBound",
    "IterVar",
    "PostDFSOrder",
    "ScanFixPointAnalysis",
    "ScanGetBody",
    "Schedule",
    "ScheduleOps",
    "SchedulePostProcToPrimFunc",
    "Singleton",
    "Split",
    "Stage",
    "TensorIntrin",
    "create_schedule",
]
