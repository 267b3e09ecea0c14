"""Measurement inputs and results, and their line in TVM 0.8's records.

::

    record  ::= {"i": [task, [[], [step*]]], "r": [[seconds*], error, seconds of all, time], "v": "v0.6"}
    task    ::= [workload key, target, [hardware*], host, layout option, [input's name*]]

A state that was read has its steps only; ``ComputeDAG.infer_bound_from_state`` makes its stages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.auto_scheduler.loop_nest import StateObject
from tilewright.auto_scheduler.loop_state import State
from tilewright.auto_scheduler.stage_steps import step_from_record
from tilewright.auto_scheduler.task import TaskRecord, task_from_record
from tilewright.autotvm.measurement import MeasureErrorNo
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import FloatImm

LOG_VERSION = "v0.6"
MAX_FLOAT = 1e10  # seconds of a candidate that failed


class MeasureInput:
    """A state of a task, to be measured."""

    def __init__(self, task: TaskRecord, state: State | StateObject) -> None:
        self.task = task
        self.state = state.state_object if isinstance(state, State) else state


@dataclass
class BuildResult:
    """A built program: its file and arguments (tensors), or the error; and the seconds of the build."""

    filename: str
    args: Sequence[Any]
    error_no: int
    error_msg: str
    time_cost: float

    def __post_init__(self) -> None:
        self.filename, self.error_msg = self.filename or "", self.error_msg or ""


class MeasureResult:
    """Seconds of each repeat, or the error; seconds of building and running; and the time of the measurement.

    ``costs`` are literals, whose numbers are their ``value``.
    """

    def __init__(
        self, costs: Sequence[Any], error_no: int, error_msg: str | None, all_cost: float, timestamp: float
    ) -> None:
        self.costs = [FloatImm("float64", float(c)) for c in costs]
        self.error_no = int(error_no)
        self.error_msg = error_msg or ""
        self.all_cost = float(all_cost)
        self.timestamp = float(timestamp)

    @property
    def mean(self) -> float:
        """The mean of the costs."""
        return sum(c.value for c in self.costs) / len(self.costs) if self.costs else MAX_FLOAT

    def __str__(self) -> str:
        if self.error_no == MeasureErrorNo.NO_ERROR:
            costs = ",".join(_number(c.value) for c in self.costs)
            took, when = _number(self.all_cost), _number(self.timestamp)
            return f"MeasureResult(cost:[{costs}], error_no:0, all_cost:{took}, Tstamp:{when})"
        took, when = _number(self.all_cost), _number(self.timestamp)
        return f"MeasureResult(error_type:{self.error_no}, error_msg:{self.error_msg}, all_cost:{took}, Tstamp:{when})"


def _number(value: float) -> str:
    return f"{value:g}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def serialize_task(task: TaskRecord) -> str:
    """The task as JSON."""
    return _json(task.record())


def deserialize_task(text: str) -> TaskRecord:
    """The task of ``serialize_task``."""
    return task_from_record(json.loads(text))


def serialize_input(inp: MeasureInput) -> str:
    """Task and steps as JSON."""
    return _json([inp.task.record(), [[], [step.record() for step in inp.state.transform_steps]]])


def deserialize_input(text: str) -> MeasureInput:
    """The input of ``serialize_input``; its state has steps only."""
    return _input(json.loads(text))


def _input(record: Sequence[Any]) -> MeasureInput:
    task, (_, steps) = record
    return MeasureInput(task_from_record(task), StateObject((), tuple(step_from_record(s) for s in steps)))


def dump_record_to_string(inp: MeasureInput, res: MeasureResult) -> str:
    """A measurement as a line of a record file, with its end."""
    costs = ", ".join(_number(c.value) for c in res.costs)
    result = f"[[{costs}], {res.error_no}, {_number(res.all_cost)}, {int(res.timestamp)}]"
    return f'{{"i": {serialize_input(inp)}, "r": {result}, "v": "{LOG_VERSION}"}}\n'


def load_record_from_string(record: str) -> tuple[MeasureInput, MeasureResult]:
    """The measurement of a line; raises TilewrightError when it is none."""
    try:
        fields = json.loads(record)
        costs, error_no, all_cost, timestamp = fields["r"]
        return _input(fields["i"]), MeasureResult(costs, error_no, "", all_cost, timestamp)
    except (ValueError, KeyError, TypeError) as error:
        raise TilewrightError(f"not a record of the auto-scheduler: {record.strip()[:100]!r} ({error})") from None
