"""Choice of layouts for the whole network from measurements, conversions between layouts included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.autotvm.measurement import MeasureInput, MeasureResult
from tilewright.autotvm.task.task import Task, untuned_config
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType
from tilewright.relay.backend.conv2d_task import is_plain
from tilewright.relay.expr import Function
from tilewright.target.target import Target
from tilewright.tuning.graph_tuner import BaseGraphTuner, DPTuner, PBQPTuner
from tilewright.tuning.network import Record, TaskState

_MOST_RECORDS = 6  # of a convolution that take part, each of other layouts
_MOST_CONVERSIONS = 32  # that are measured
_RUNS = 20  # of each


def choose_layouts(main: Function | None, target: Target, states: Sequence[TaskState]) -> dict[int, Record | None]:
    """The record of each convolution with which the network is fastest, by the position of its state; None: untuned.

    Trials of all layouts take part, and the untuned choice. Nothing is chosen for networks of unknown extents.
    """
    open_states = {i: s for i, s in enumerate(states) if is_plain(s.task.workload) and s.untuned < float("inf")}
    if main is None:
        return {}
    types: dict[str, Any] = {p.name_hint: p.checked_type for p in main.params}
    if not open_states or not all(isinstance(t, TensorType) and not t.is_dynamic for t in types.values()):
        return {}
    candidates = [record for state in open_states.values() for record in _candidates(state)]
    tuner = _solved(main, types, candidates, target)
    chosen = {id(record[0].task): record for record in tuner.get_optimal_records()}
    found: dict[int, Record | None] = {}
    for position, state in open_states.items():
        record = chosen.get(id(state.task))
        found[position] = None if record is None or record[1].timestamp == _UNTUNED else record
    return found


_UNTUNED = -1.0  # the timestamp of what stands for the untuned choice


def _candidates(state: TaskState) -> list[Record]:
    """Return candidates of a convolution: its trials, the final measurement, and the untuned choice."""
    task: Task = state.task
    assert task.target is not None
    untuned = MeasureInput(task.target, task, untuned_config(task)), MeasureResult((state.untuned,), 0, 0.0, _UNTUNED)
    final = [state.record] if state.record is not None else []
    return [untuned, *final, *(r for r in state.trials if r[1].error_no == 0)]


def _solved(main: Function, types: Mapping[str, Any], records: Sequence[Record], target: Target) -> BaseGraphTuner:
    shapes, dtypes = {n: t.concrete_shape for n, t in types.items()}, {n: t.dtype for n, t in types.items()}

    def make(kind: type[BaseGraphTuner]) -> BaseGraphTuner:
        ops = [Op.get("nn.conv2d")]
        return kind(main, shapes, records, ops, target, _MOST_RECORDS, dtypes, verbose=False, log_file=None)

    tuner = make(DPTuner)
    tuner.benchmark_layout_transform(min_exec_num=_RUNS, most_measured=_MOST_CONVERSIONS)
    try:
        tuner.run(alike=True)
    except RuntimeError:  # too closely woven
        known = list(tuner.layout_transform_perf_records.values())
        tuner = make(PBQPTuner)
        tuner.benchmark_layout_transform(layout_records=[r for r in known if r[0].task is not None], infer_layout=True)
        tuner.run(alike=True)
    return tuner
