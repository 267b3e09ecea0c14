"""AutoTVM: schedules that leave choices open, and the search for the best.

task/      templates, their config spaces, tasks of a network     measure/      building and running candidates
tuner/     who chooses what is measured next                      graph_tuner/  layouts for a whole network
lines.py record.py history.py   records, files of them, records in force
feature.py  what cost models see of a program                     database.py   results by input
"""

import importlib
from typing import Any

from tilewright.autotvm import task
from tilewright.autotvm.env import GLOBAL_SCOPE
from tilewright.autotvm.task.dispatcher import (
    ApplyConfig,
    DispatchContext,
    FallbackContext,
)  # fmt: skip
from tilewright.autotvm.task.space import (
    AnnotateEntity,
    ConfigEntity,
    ConfigSpace,
    FallbackConfigEntity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
)  # fmt: skip
from tilewright.autotvm.task.task import Task, args_to_workload, create, get_config, serialize_args, template
from tilewright.autotvm.task.topi_integration import register_topi_compute, register_topi_schedule

_MODULES = {"callback": "tuner.callback"} | {
    name: name
    for name in (
        "database",
        "env",
        "feature",
        "graph_tuner",
        "history",
        "lines",
        "measure",
        "record",
        "tophub",
        "tuner",
        "utils",
    )
}
_HISTORY = ("ApplyGraphBest", "ApplyHistoryBest", "apply_graph_best", "apply_history_best")
_MEASURE = (
    "LocalBuilder", "LocalRunner", "MeasureErrorNo", "MeasureInput", "MeasureResult", "measure_option",
    "create_measure_batch",
)  # fmt: skip
_NAMES = {
    **dict.fromkeys(_HISTORY, "history"), **dict.fromkeys(_MEASURE, "measure"), "RPCRunner": "measure.rpc_runner"
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tilewright.autotvm.{_MODULES[name]}")
    if name in _NAMES:
        value = getattr(importlib.import_module(f"tilewright.autotvm.{_NAMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "GLOBAL_SCOPE", "AnnotateEntity", "ApplyConfig", "ConfigEntity", "ConfigSpace", "DispatchContext",
    "FallbackConfigEntity", "FallbackContext", "OtherOptionEntity", "ReorderEntity", "SplitEntity", "Task",
    "args_to_workload", "create", "get_config", "register_topi_compute", "register_topi_schedule", "serialize_args",
    "task", "template",
]  # fmt: skip
