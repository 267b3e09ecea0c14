"""One measurement: a configuration of a task on a target, and the run times or the error, by TVM 0.8's numbers."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from tilewright.autotvm.task.space import ConfigEntity
from tilewright.target.target import Target


class MeasureErrorNo(enum.IntEnum):
    """Reasons why a measurement has no time; records hold the number."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


class MeasureInput(NamedTuple):
    """A configuration of a task on a target."""

    target: Target
    task: Any
    config: ConfigEntity


class MeasureResult(NamedTuple):
    """Run times in seconds (or the exceptions of a failure), the error, the whole measurement's duration in seconds,
    and when it was made.
    """

    costs: tuple[Any, ...]
    error_no: int
    all_cost: float
    timestamp: float

    def __repr__(self) -> str:
        known = self.error_no in list(MeasureErrorNo)
        error = MeasureErrorNo(self.error_no) if known else self.error_no
        return (
            f"MeasureResult(costs={self.costs!r}, error_no={error!s}, all_cost={self.all_cost}, "
            f"timestamp={self.timestamp!r})"
        )
