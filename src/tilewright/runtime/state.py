"""State of models: inputs that a model keeps from run to run. Their first values travel in its library.

The output ``NAME.next`` of a run is what the input ``NAME`` is in the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import NDArray, array
from tilewright.runtime.registry import need_global_func


def next_of(name: str) -> str:
    """Return the name of the output that is the next value of a state."""
    return f"{name}.next"


def keep_state(module: Module, state: Mapping[str, Any]) -> None:
    """Add first values, arrays by the inputs' names, to the module of a model; its library then has them."""
    if state:
        pairs = [part for name, value in state.items() for part in (name, _as_array(value))]
        code = next(iter(module.imported_modules), module)  # executors look for kernels in what comes first
        code.import_module(need_global_func("tilewright.StateModuleCreate")(*pairs))


def first_state(module: Module) -> dict[str, NDArray]:
    """Return the first values that a model's module has, by the inputs' names; most have none."""
    if not module.implements_function("state_count", query_imports=True):
        return {}
    count, name, value = (module.get_function(f"state_{part}", True) for part in ("count", "name", "value"))
    return {name(i): value(i) for i in range(count())}


def _as_array(value: Any) -> NDArray:
    return value if isinstance(value, NDArray) else array(value)
