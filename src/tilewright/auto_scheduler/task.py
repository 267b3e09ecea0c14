"""Tasks: a computation, a target, and the limits of the target's hardware."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.auto_scheduler.compute_dag import ComputeDAG
from tilewright.ir.errors import TilewrightError
from tilewright.runtime import ndarray
from tilewright.runtime.environment import NUM_THREADS
from tilewright.runtime.partial_files import whole_file
from tilewright.target.gpu import limits_of
from tilewright.target.kind import BlockLimits
from tilewright.target.target import Target

_FIELDS = (
    "num_cores", "vector_unit_bytes", "cache_line_bytes", "max_shared_memory_per_block", "max_local_memory_per_block",
    "max_threads_per_block", "max_vthread_extent", "warp_size",
)  # fmt: skip
_NO_LIMIT = (1 << 31) - 1


def _defaults(target: Target) -> tuple[int, ...]:
    if not target.kind.capabilities.threads:
        threads = NUM_THREADS.read() or len(os.sched_getaffinity(0))
        return (threads, 64, 64, 0, 0, 0, 0, 0)
    block = _block_limits(target)
    return (-1, 16, 64, block.shared_bytes, _NO_LIMIT, block.threads, block.virtual_threads, block.warp)


def _block_limits(target: Target) -> BlockLimits:
    if target.attrs.get("device") in ("mali", "adreno"):  # no warps that a program could count on
        return BlockLimits(256, 32 << 10, warp=1, virtual_threads=1)
    if target.kind.capabilities.block is not None:
        return target.kind.capabilities.block
    limits = limits_of(target)
    warp = limits.warp if limits.warp > 1 else 32  # a target that says nothing of warps
    return BlockLimits(limits.threads_per_block, limits.shared_per_block, warp, warp // 4)


@dataclass(init=False)
class HardwareParams:
    """Hardware limits for the search.

    Parameters
    ----------
    num_cores : cores of a CPU, -1 for a GPU
    vector_unit_bytes, cache_line_bytes : in bytes
    max_shared_memory_per_block, max_local_memory_per_block : in bytes
    max_threads_per_block, max_vthread_extent, warp_size : in threads
    target, target_host : other parameters default to those of this target: for CPUs the threads of this process, for
        ``cuda`` and ``opencl`` the record of the processor that the target names (``target.gpu``)
    """

    num_cores: int
    vector_unit_bytes: int
    cache_line_bytes: int
    max_shared_memory_per_block: int
    max_local_memory_per_block: int
    max_threads_per_block: int
    max_vthread_extent: int
    warp_size: int

    def __init__(
        self,
        num_cores: int | None = None,
        vector_unit_bytes: int | None = None,
        cache_line_bytes: int | None = None,
        max_shared_memory_per_block: int | None = None,
        max_local_memory_per_block: int | None = None,
        max_threads_per_block: int | None = None,
        max_vthread_extent: int | None = None,
        warp_size: int | None = None,
        target: str | Target | None = None,
        target_host: str | Target | None = None,
    ) -> None:
        given = (
            num_cores, vector_unit_bytes, cache_line_bytes, max_shared_memory_per_block, max_local_memory_per_block,
            max_threads_per_block, max_vthread_extent, warp_size,
        )  # fmt: skip
        rest = (0,) * len(_FIELDS) if target is None else _defaults(Target(target))
        for name, value, default in zip(_FIELDS, given, rest, strict=True):
            setattr(self, name, int(default if value is None else value))

    def record(self) -> list[int]:
        """The numbers in the order of a record."""
        return list(astuple(self))

    def __str__(self) -> str:
        return "HardwareParams:\n" + "".join(f"  {name}: {getattr(self, name)}\n" for name in _FIELDS)


class TaskRecord:
    """A task as a record names it: by its workload key. ``compute_dag`` is None until it is looked up by name.

    Attributes
    ----------
    workload_key, target, hardware_params, layout_rewrite_option, task_input_names, desc
    """

    def __init__(
        self,
        workload_key: str,
        target: Target,
        hardware_params: HardwareParams | None,
        layout_rewrite_option: int,
        task_input_names: Sequence[str] = (),
        desc: str = "",
        compute_dag: ComputeDAG | None = None,
    ) -> None:
        self.workload_key = workload_key
        self.target = target
        self.hardware_params = hardware_params or HardwareParams(target=target)
        self.layout_rewrite_option = int(layout_rewrite_option)
        self.task_input_names = list(task_input_names)
        self.desc = desc
        self._compute_dag = compute_dag

    @property
    def compute_dag(self) -> Any:
        """The computation, made from the workload key if it was not passed."""
        if self._compute_dag is None:
            self._compute_dag = ComputeDAG(self.workload_key)
        return self._compute_dag

    @property
    def target_host(self) -> Target | None:
        """The host of the target."""
        return self.target.host

    def record(self) -> list[Any]:
        """The task as a record's list."""
        host = "" if self.target.host is None else str(self.target.host)
        return [
            self.workload_key, str(self.target), self.hardware_params.record(), host, self.layout_rewrite_option,
            self.task_input_names,
        ]  # fmt: skip


def task_from_record(record: Sequence[Any]) -> TaskRecord:
    """The task of a record's list; older records end after the target, the hardware, or the layout's option."""
    key, target, *rest = record
    hardware = HardwareParams(*rest[0]) if rest else None
    host = rest[1] if len(rest) > 1 else ""
    option = rest[2] if len(rest) > 2 else 0
    names = rest[3] if len(rest) > 3 else ()
    return TaskRecord(key, Target(target, host) if host else Target(target), hardware, option, names)


TASK_INPUT_BUFFER_TABLE: dict[str, dict[str, Any]] = {}
"""values of inputs, by workload key and name; under "default" those of extracted tasks"""


def _saved_file(name: str, values: Any) -> str:
    shape = "".join(f"{d}_" for d in values.shape)
    return f"{name}.{shape}{values.dtype}.npy"


def _load_saved(name: str) -> Any:
    """The value that ``register_task_input_buffer`` saved in this folder, or None."""
    for path in sorted(Path().glob(f"{name}.*.npy")):
        *shape, dtype = path.name.split(".")[-2].split("_")
        values = np.fromfile(path, dtype=dtype, sep=" ").reshape([int(d) for d in shape])
        return ndarray.array(values)
    return None


def register_task_input_buffer(
    workload_key: str, input_name: str, input_data: Any, overwrite: bool = False, save_to_file: bool = False
) -> Any:
    """Register the value of an input that cannot be random, such as the indices of a sparse matrix.

    Parameters
    ----------
    workload_key, input_name : of which task, and the name of the input's placeholder
    input_data : NDArray
    overwrite : replace a value that is registered already, which is an error otherwise
    save_to_file : write it to a file in this folder, too, from which later processes read it
    """
    table = TASK_INPUT_BUFFER_TABLE.setdefault(workload_key, {})
    if not overwrite and input_name in table:
        raise RuntimeError(
            f"a value of {input_name} is registered already; give overwrite=True (task_inputs_overwrite) to replace it"
        )
    table[input_name] = input_data
    if save_to_file:
        values = input_data.numpy()
        path = Path(_saved_file(input_name, values))
        with whole_file(path) as partial:
            values.tofile(partial, " ")
    return input_data


def get_task_input_buffer(workload_key: str, input_name: str) -> Any:
    """The value of an input: registered for the task, saved in this folder, or registered for all tasks."""
    table = TASK_INPUT_BUFFER_TABLE.setdefault(workload_key, {})
    if input_name not in table:
        saved = _load_saved(input_name)
        if saved is not None:
            table[input_name] = saved
    shared: Mapping[str, Any] = TASK_INPUT_BUFFER_TABLE.get("default", {})
    found = table.get(input_name, shared.get(input_name))
    if found is None:
        raise ValueError(
            f"the input {input_name} has no value; give SearchTask(..., task_inputs={{{input_name!r}: ...}})"
        )
    return found


def input_values(task: TaskRecord, args: Sequence[Any], names: Mapping[Any, str]) -> list[Any]:
    """Return, for each argument of a program, the task's numpy array, or None for arbitrary values.

    Raises TilewrightError when the program lacks an input that the task names.
    """
    values: list[Any] = []
    for arg in args:
        name = names.get(arg)
        known = name is not None and name in task.task_input_names
        values.append(get_task_input_buffer(task.workload_key, str(name)).numpy() if known else None)
    if sum(v is not None for v in values) != len(task.task_input_names):
        raise TilewrightError(f"of the task's inputs {task.task_input_names} some are no inputs of the program")
    return values
