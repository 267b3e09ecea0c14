"""Tasks: templates by name (``task.py``), their spaces (``space.py``), the configuration in force (``dispatcher.py``),
their operations (``flop.py``), choices outside of templates (``choices.py``), and TOPI's functions as templates
(``topi_integration.py``). The tasks of a network are found by ``tuning/extraction.py``.
"""

import importlib
from typing import Any

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

_ON_USE = {
    "ApplyGraphBest": "tilewright.autotvm.history",
    "ApplyHistoryBest": "tilewright.autotvm.history",
    "extract_from_program": "tilewright.autotvm.task.relay_integration",
    "extract_from_multiple_program": "tilewright.autotvm.task.relay_integration",
    "relay_integration": "tilewright.autotvm.task.relay_integration",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_ON_USE[name])
    return module if _ON_USE[name].endswith(name) else getattr(module, name)


__all__ = [
    "ApplyConfig", "ConfigEntity", "ConfigSpace", "DispatchContext", "FallbackConfigEntity", "FallbackContext",
    "InstantiationError", "Task", "TaskExtractEnv", "args_to_workload", "clear_fallback_cache", "compute_flop",
    "create", "deserialize_args", "get_config", "register_topi_compute", "register_topi_schedule", "serialize_args",
    "template",
]  # fmt: skip
