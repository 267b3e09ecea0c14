"""AutoTVM's templates: what a schedule may choose (``space.py``), templates by name (``task.py``), which choice is in
force (``dispatch.py``), tuning records as JSON lines (``record.py``), and such records in force (``history.py``).
"""

from tilewright.autotvm import record
from tilewright.autotvm.dispatch import (
    ApplyConfig,
    DispatchContext,
    FallbackContext,
)  # fmt: skip
from tilewright.autotvm.history import ApplyHistoryBest
from tilewright.autotvm.record import MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.autotvm.space import (
    AnnotateEntity,
    ConfigEntity,
    ConfigSpace,
    FallbackConfigEntity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
)  # fmt: skip
from tilewright.autotvm.task import (
    Task,
    args_to_workload,
    create,
    get_config,
    register_topi_compute,
    register_topi_schedule,
    serialize_args,
    template,
)  # fmt: skip

apply_history_best = ApplyHistoryBest

__all__ = [
    "AnnotateEntity", "ApplyConfig", "ApplyHistoryBest", "ConfigEntity", "ConfigSpace",
    "DispatchContext", "FallbackConfigEntity", "FallbackContext", "MeasureErrorNo", "MeasureInput", "MeasureResult",
    "OtherOptionEntity", "ReorderEntity", "SplitEntity", "Task", "apply_history_best",
    "args_to_workload", "create", "get_config", "record", "register_topi_compute", "register_topi_schedule",
    "serialize_args", "template",
]  # fmt: skip
