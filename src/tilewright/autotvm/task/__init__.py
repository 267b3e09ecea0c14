"""Tasks: templates by name (``task.py``), their spaces (``space.py``), the configuration in force (``dispatcher.py``),
their operations (``flop.py``), choices outside of templates (``choices.py``), and TOPI's functions as templates
(``topi_integration.py``). The tasks of a network are found by ``tuning/extraction.py``.
"""

from tilewright.autotvm.task.dispatcher import ApplyConfig, DispatchContext, FallbackContext, clear_fallback_cache
from tilewright.autotvm.task.flop import compute_flop
from tilewright.autotvm.task.space import (
    ConfigEntity,
    ConfigSpace,
    FallbackConfigEntity,
    InstantiationError,
)  # fmt: skip
from tilewright.autotvm.task.task import (
    Task,
    args_to_workload,
    create,
    deserialize_args,
    get_config,
    serialize_args,
    template,
)  # fmt: skip
from tilewright.autotvm.task.topi_integration import TaskExtractEnv, register_topi_compute, register_topi_schedule
from tilewright.ir.load_on_use import load_on_use

__getattr__, __dir__ = load_on_use(
    __name__,
    [".relay_integration"],
    {
        "tilewright.autotvm.history": ("ApplyGraphBest", "ApplyHistoryBest"),
        ".relay_integration": ("extract_from_program", "extract_from_multiple_program"),
    },
)


__all__ = [
    "ApplyConfig", "ConfigEntity", "ConfigSpace", "DispatchContext", "FallbackConfigEntity", "FallbackContext",
    "InstantiationError", "Task", "TaskExtractEnv", "args_to_workload", "clear_fallback_cache", "compute_flop",
    "create", "deserialize_args", "get_config", "register_topi_compute", "register_topi_schedule", "serialize_args",
    "template",
]  # fmt: skip
