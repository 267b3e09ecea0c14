"""Features of programs, for cost models: one row for each buffer that a program stores.

They are worked out from states, with no schedule and no lowering (``store_features``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tilewright.auto_scheduler.loop_nest import StateObject
from tilewright.auto_scheduler.loop_state import State
from tilewright.auto_scheduler.measure_pair import MAX_FLOAT, MeasureInput, MeasureResult
from tilewright.auto_scheduler.measure_record import RecordReader
from tilewright.auto_scheduler.stage_steps import replayed
from tilewright.auto_scheduler.store_features import StoreFeatures, feature_names, is_logarithmic
from tilewright.auto_scheduler.task import TaskRecord
from tilewright.ir.errors import TilewrightError

DEFAULT_MAX_N_BUFS = 5
DEFAULT_FEATURE_VEC_LEN = 164

Features = np.ndarray[Any, Any]


@cache
def _names(max_n_bufs: int) -> tuple[list[str], Features]:
    names = feature_names(max_n_bufs)
    return names, np.array([is_logarithmic(n) for n in names])


def get_per_store_feature_names(max_n_bufs: int | None = None) -> list[str]:
    """The names of the features of a row."""
    return list(_names(max_n_bufs or DEFAULT_MAX_N_BUFS)[0])


def features_of_state(task: TaskRecord, state: StateObject, max_n_bufs: int = DEFAULT_MAX_N_BUFS) -> Features:
    """Return one row for each buffer that a state's program stores; a row of zeros if its steps cannot be applied."""
    names, logarithmic = _names(max_n_bufs)
    dag = task.compute_dag
    try:
        if not state.stages:
            state = replayed(dag.init_state, state.transform_steps, dag)
        rows = StoreFeatures(state, dag, task.hardware_params.cache_line_bytes or 64, max_n_bufs).matrix()
    except TilewrightError:
        return np.zeros((1, len(names)), np.float32)
    made = np.array(rows, np.float64)
    made[:, logarithmic] = np.log2(np.maximum(made[:, logarithmic], 0.0) + 1.0)
    return made.astype(np.float32)


def get_per_store_features_from_states(
    states: Sequence[State | StateObject], task: TaskRecord, max_n_bufs: int | None = None
) -> Features:
    """An array of one matrix for each state."""
    objects = [s.state_object if isinstance(s, State) else s for s in states]
    return _array([features_of_state(task, s, max_n_bufs or DEFAULT_MAX_N_BUFS) for s in objects])


def _array(matrices: Sequence[Features]) -> Features:
    made = np.empty(len(matrices), dtype=object)
    for i, matrix in enumerate(matrices):
        made[i] = matrix
    return made


def get_per_store_features_from_measure_pairs(
    inputs: Sequence[MeasureInput],
    results: Sequence[MeasureResult],
    skip_first_n_feature_extraction: int = 0,
    max_n_bufs: int | None = None,
) -> tuple[Features, Features, Features]:
    """Features of measured programs, their speeds relative to the best of their task, and the numbers of their tasks.

    Parameters
    ----------
    skip_first_n_feature_extraction : of so many inputs the caller knows the features; one row of zeros stands for them
    """
    tasks: dict[tuple[str, str], tuple[int, TaskRecord]] = {}
    matrices: list[Features] = []
    numbers: list[int] = []
    costs: list[float] = []
    best: dict[int, float] = {}
    for i, (inp, res) in enumerate(zip(inputs, results, strict=True)):
        key = inp.task.workload_key, str(inp.task.target)
        number, task = tasks.setdefault(key, (len(tasks), inp.task))
        numbers.append(number)
        costs.append(res.mean if res.error_no == 0 else MAX_FLOAT)
        best[number] = min(best.get(number, MAX_FLOAT), costs[-1])
        if i < skip_first_n_feature_extraction:
            matrices.append(np.zeros((1, len(_names(max_n_bufs or DEFAULT_MAX_N_BUFS)[0])), np.float32))
        else:
            matrices.append(features_of_state(task, inp.state, max_n_bufs or DEFAULT_MAX_N_BUFS))
    speeds = [0.0 if c >= MAX_FLOAT else best[n] / c for c, n in zip(costs, numbers, strict=True)]
    return _array(matrices), np.array(speeds, np.float32), np.array(numbers, np.int32)


def get_per_store_features_from_file(
    filename: str, max_lines: int, max_n_bufs: int | None = None
) -> tuple[Features, Features, Features]:
    """Return ``get_per_store_features_from_measure_pairs`` of a file of records."""
    return get_per_store_features_from_measure_pairs(*RecordReader(filename).read_lines(max_lines), 0, max_n_bufs)
