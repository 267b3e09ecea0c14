"""The auto-scheduler: search for schedules of computations, without templates.

compute_dag.py     ComputeDAG, between states and schedules     loop_nest.py    what states are made of
loop_state.py      State, scheduled step by step                transform_step.py, stage_steps.py   the steps
access_analysis.py who reads what of whom                       layout_rewrite.py  layouts of constant inputs
index_forms.py, loop_bounds.py, store_features.py, expression_counts.py   bounds and features in plain numbers
sketch_rules.py, tiling.py, population.py, gpu_population.py, mutation.py  the search's rules
search_policy.py   sketches, random programs, evolution         cost_model/     what a program is worth
measure.py, measure_pair.py, measure_record.py   measuring, records, their files
task.py, search_task.py, task_scheduler.py       tasks, and which to tune next
dispatcher.py, relay_integration.py              records in ``relay.build``; tasks of networks
state_queries.py, factorization.py, register_tiles.py   what rules ask of a state; candidates for the sizes of tiles
feature.py, flop.py                              features of programs, operations of a computation
workload_registry.py, tensor_records.py, utils.py       computations by name, and as lists for another process

>>> @auto_scheduler.register_workload
... def matmul(N, M, K): ...
>>> task = auto_scheduler.SearchTask(func=matmul, args=(512, 512, 512), target="llvm")
>>> task.tune(auto_scheduler.TuningOptions(200, measure_callbacks=[auto_scheduler.RecordToFile("records.json")]))
>>> sch, args = task.apply_best("records.json")
"""

from tilewright.auto_scheduler import _ffi_api  # noqa: F401  (a name that programs reach)
from tilewright.auto_scheduler.compute_dag import ComputeDAG, LayoutRewriteOption, get_shape_from_rewritten_layout
from tilewright.auto_scheduler.cost_model import RandomModel, XGBModel
from tilewright.auto_scheduler.dispatcher import ApplyHistoryBest, ApplyHistoryBestOrSample, DispatchContext
from tilewright.auto_scheduler.measure import (
    LocalBuilder,
    LocalRPCMeasureContext,
    LocalRunner,
    MeasureInput,
    MeasureResult,
    RPCRunner,
    register_task_input_check_func,
)
from tilewright.auto_scheduler.measure_record import (
    RecordReader,
    RecordToFile,
    load_best_record,
    load_records,
    save_records,
)
from tilewright.auto_scheduler.relay_integration import (
    extract_tasks,
    is_auto_scheduler_enabled,
    rewrite_compute_body,
)
from tilewright.auto_scheduler.search_policy import (
    EmptyPolicy,
    PreloadCustomSketchRule,
    PreloadMeasuredStates,
    SketchPolicy,
)
from tilewright.auto_scheduler.search_task import (
    HardwareParams,
    SearchTask,
    TuningOptions,
    auto_schedule,
    create_task,
    register_task_input_buffer,
)
from tilewright.auto_scheduler.task_scheduler import TaskScheduler
from tilewright.auto_scheduler.workload_registry import make_workload_key, register_workload

__all__ = [
    "ApplyHistoryBest",
    "ApplyHistoryBestOrSample",
    "ComputeDAG",
    "DispatchContext",
    "EmptyPolicy",
    "HardwareParams",
    "LayoutRewriteOption",
    "LocalBuilder",
    "LocalRPCMeasureContext",
    "LocalRunner",
    "MeasureInput",
    "MeasureResult",
    "PreloadCustomSketchRule",
    "PreloadMeasuredStates",
    "RPCRunner",
    "RandomModel",
    "RecordReader",
    "RecordToFile",
    "SearchTask",
    "SketchPolicy",
    "TaskScheduler",
    "TuningOptions",
    "XGBModel",
    "auto_schedule",
    "create_task",
    "extract_tasks",
    "get_shape_from_rewritten_layout",
    "is_auto_scheduler_enabled",
    "load_best_record",
    "load_records",
    "make_workload_key",
    "register_task_input_buffer",
    "register_task_input_check_func",
    "register_workload",
    "rewrite_compute_body",
    "save_records",
]  # fmt: skip
