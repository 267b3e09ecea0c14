"""Builders and runners of configurations."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.autotvm.measurement import MeasureErrorNo, MeasureInput, MeasureResult  # noqa: F401  (TVM's has all three)
from tilewright.target.features import core_count

if TYPE_CHECKING:
    from tilewright.autotvm.task.task import Task

logger = logging.getLogger("autotvm")


class Builder:
    """Builds configurations.

    Parameters
    ----------
    timeout : seconds that one may take
    n_parallel : how many are built at once; the machine's cores by default
    build_kwargs : arguments of the build, before the runner's
    """

    def __init__(
        self, timeout: float = 10, n_parallel: int | None = None, build_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self.timeout = timeout
        self.n_parallel = n_parallel or core_count()
        self.user_build_kwargs = dict(build_kwargs or {})
        self.build_kwargs: dict[str, Any] = dict(self.user_build_kwargs)
        self.task: Task | None = None

    def set_task(self, task: Task, build_kwargs: Mapping[str, Any] | None = None) -> None:
        """Prepare for a task; ``build_kwargs`` are the runner's requirements."""
        self.task = task
        given = dict(build_kwargs or {})
        both = [f"{k}: {v!r}, not {given[k]!r}" for k, v in self.user_build_kwargs.items() if k in given]
        if both:
            logger.warning("the builder's own arguments hold, not the runner's: %s", "; ".join(both))
        self.build_kwargs = {**given, **self.user_build_kwargs}

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[Any]:
        """A BuildResult for each input, or the MeasureResult of a failure."""
        raise NotImplementedError


class Runner:
    """Runs and times built libraries; ``timeout`` is the seconds that one may take.

    ``compares``: whether the untuned choice is measured with it before all others.
    """

    compares = False

    def __init__(self, timeout: float = 5, n_parallel: int | None = None) -> None:
        self.timeout = timeout
        self.n_parallel = n_parallel or core_count()
        self.task: Task | None = None

    def set_task(self, task: Task) -> Any:
        """Prepare for a task; return an object that must live while it is measured, or None."""
        self.task = task
        return None

    def get_build_kwargs(self) -> dict[str, Any]:
        """Return the build arguments that the device requires."""
        return {}

    def measure_batch(self, task: Task, option: Mapping[str, Any]) -> Any:
        """Return the batch that measures configurations of ``task``, or None for the common one."""
        return None

    def in_turns(self, inputs: Sequence[MeasureInput], built: Sequence[Any], turns: int) -> list[list[float]]:
        """Return the least seconds of each library, run in turns; infinite for failures."""
        times: list[list[float]] = [[] for _ in built]
        for _ in range(turns):
            for seconds, result in zip(times, self.run(inputs, built), strict=True):
                seconds.append(min(result.costs) if result.error_no == 0 else float("inf"))
        return times

    def measured(self) -> list[tuple[MeasureInput, MeasureResult]]:
        """Return measurements of this tuning run that were made without a waiting requester."""
        return []

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[MeasureResult]:
        """Return the result of each input; inputs that were not built keep the builder's error."""
        raise NotImplementedError
