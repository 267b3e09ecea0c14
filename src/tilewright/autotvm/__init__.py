"""AutoTVM's templates: schedules with open choices, and the records of the fastest.

task/           templates, their config spaces, which choice is in force
measurement.py lines.py record.py history.py store.py   measurements, lines of them, files, records in force
database.py     results by input                     env.py      what is in force in this process
whole_records.py   logs with lines cut off           utils.py    helpers
tophub.py       TVM's name of the default records

Everything that runs a tuning stands above Relay, in ``tilewright.tuning``; TVM's names of it (``autotvm.tuner``,
``autotvm.measure``, ``autotvm.LocalRunner``, ...) are looked up there on use.
"""

from tilewright.autotvm import task
from tilewright.autotvm.env import GLOBAL_SCOPE
from tilewright.autotvm.measurement import MeasureErrorNo, MeasureInput, MeasureResult
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
from tilewright.ir.load_on_use import load_on_use

__getattr__, __dir__ = load_on_use(
    __name__,
    [
        ".database", ".env", ".feature", ".graph_tuner", ".history", ".lines", ".measure", ".record", ".tophub",
        ".tuner", ".tuner.callback", ".utils",
    ],
    {
        ".history": ("ApplyGraphBest", "ApplyHistoryBest", "apply_graph_best", "apply_history_best"),
        ".measure": ("LocalBuilder", "LocalRunner", "RPCRunner", "create_measure_batch", "measure_option"),
    },
)  # fmt: skip


__all__ = [
    "GLOBAL_SCOPE", "AnnotateEntity", "ApplyConfig", "ConfigEntity", "ConfigSpace", "DispatchContext",
    "FallbackConfigEntity", "FallbackContext", "MeasureErrorNo", "MeasureInput", "MeasureResult", "OtherOptionEntity",
    "ReorderEntity", "SplitEntity", "Task",
    "args_to_workload", "create", "get_config", "register_topi_compute", "register_topi_schedule", "serialize_args",
    "task", "template",
]  # fmt: skip
