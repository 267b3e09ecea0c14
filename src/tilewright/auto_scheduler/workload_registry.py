"""Computations by name: a workload key is a JSON list of a registered function's name and its arguments.

Tasks of a network have no such function; their key is a hash of the computation and its shapes, under which the
tensors themselves are registered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright.auto_scheduler.tensor_records import tensors_from_record, tensors_to_record
from tilewright.auto_scheduler.utils import deserialize_args, get_func_name, register_by_name, serialize_args
from tilewright.ir.errors import TilewrightError
from tilewright.runtime.partial_files import write_whole
from tilewright.te.tensor import Tensor

WORKLOAD_FUNC_REGISTRY: dict[str, Any] = {}
"""functions by name, and tensors by workload key"""


def register_workload(func_name: Any, f: Any = None, override: bool = False) -> Any:
    """Register a function that makes a computation from numbers and lists; also as a decorator.

    Parameters
    ----------
    func_name : the function, or the name to register it under
    f : the function, when ``func_name`` is a name
    override : replace a function of that name
    """
    return register_by_name(WORKLOAD_FUNC_REGISTRY, "a workload", func_name, f, override)


def register_workload_tensors(workload_key: str, tensors: Sequence[Tensor], override: bool = True) -> str:
    """Register a computation's tensors under its key, and return the key."""
    register_workload(workload_key, list(tensors), override=override)
    return workload_key


def make_workload_key(func: Callable[..., Any] | str, args: Sequence[Any]) -> str:
    """The key of a registered function with arguments."""
    if not callable(func) and not isinstance(func, str):
        raise ValueError(f"a workload is a function or its name, not a {type(func).__name__}")
    name = get_func_name(func) if callable(func) else func
    if name not in WORKLOAD_FUNC_REGISTRY:
        raise ValueError(f"{name} is not registered; write @auto_scheduler.register_workload before it")
    return json.dumps([name, *serialize_args(args)])


def workload_key_to_tensors(workload_key: str) -> list[Tensor]:
    """The input and output tensors of a key."""
    found = WORKLOAD_FUNC_REGISTRY.get(workload_key)
    if found is not None:
        return list(found)
    name, *args = json.loads(workload_key)
    function = WORKLOAD_FUNC_REGISTRY.get(name)
    if function is None:
        raise TilewrightError(
            f"no workload {name!r} is registered; import the module that registers it, or extract the tasks of the "
            "network that it came from"
        )
    return list(function(*deserialize_args(args)))


def serialize_workload_registry_entry(workload_key: str) -> tuple[str, Any]:
    """The entry of a key, for another process: a function as it is, tensors as a record."""
    name = workload_key if workload_key in WORKLOAD_FUNC_REGISTRY else json.loads(workload_key)[0]
    value = WORKLOAD_FUNC_REGISTRY[name]
    return name, value if callable(value) else tensors_to_record(value)


def deserialize_workload_registry_entry(data: tuple[str, Any]) -> None:
    """Register an entry of ``serialize_workload_registry_entry``, unless it is known."""
    name, value = data
    if name not in WORKLOAD_FUNC_REGISTRY:
        WORKLOAD_FUNC_REGISTRY[name] = value if callable(value) else tensors_from_record(value)


def save_workload_func_registry(filename: str) -> None:
    """Write the computations of networks' tasks to a file; functions are code, and stay in their modules."""
    entries = {k: tensors_to_record(v) for k, v in WORKLOAD_FUNC_REGISTRY.items() if not callable(v)}
    write_whole(filename, json.dumps(entries))


def load_workload_func_registry(filename: str) -> None:
    """Register the computations of a file of ``save_workload_func_registry``."""
    for key, record in json.loads(Path(filename).read_text()).items():
        WORKLOAD_FUNC_REGISTRY[key] = tensors_from_record(record)
