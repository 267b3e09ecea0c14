"""Building and timing of programs: the basis of AutoTVM's and the auto-scheduler's builders and runners.

task, choice --Builds--> library --Timed--> RunRequest --LocalRuns or BoardRuns--> Outcome
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewright.autotvm.measurement import MeasureErrorNo
from tilewright.autotvm.task.space import InstantiationError
from tilewright.target.features import core_count
from tilewright.target.workers import compile_in_this_process
from tilewright.tuning.processes import Outcome, Pool, RunRequest, fork_worker

_REMEMBERED = 64  # tasks that new processes still know, so that a tuner may turn from one to another

Make = Callable[[Any, Any, str | None, Any], Any]


class Builds:
    """Builds libraries in forks of this process, which know its tasks.

    Parameters
    ----------
    make : called in such a process with a task, a choice (JSON), the library's path and ``export_library``'s
        ``fcompile``; returns JSON. It raises InstantiationError where the task refuses the choice.
    timeout : seconds that one build may take
    n_parallel : how many at once; the machine's cores by default
    build_func : "default", or a function of (file, objects) that links; its ``output_format`` is the suffix
    """

    def __init__(self, make: Make, timeout: float, n_parallel: int | None, build_func: Any) -> None:
        if not callable(build_func) and build_func != "default":
            raise ValueError(
                f'build_func is "default" or a function that writes a library, found {build_func!r}; '
                "for another system give contrib.cc.cross_compiler(its compiler)"
            )
        self.fcompile = build_func if callable(build_func) else None
        self.suffix = getattr(self.fcompile, "output_format", "so").lstrip(".")
        self.timeout, self.n_parallel = timeout, n_parallel or core_count()
        self._make = make
        self._tasks: list[Any] = []
        self._pool: Pool | None = None

    def know(self, tasks: Sequence[Any]) -> None:
        """Start new processes, which know these tasks, with the next build."""
        self.close()
        self._tasks = list(tasks)
        begin = compile_in_this_process if self.n_parallel > 1 else None
        self._pool = Pool(partial(fork_worker, self._work, begin), self.n_parallel, self.timeout)

    def run(self, candidates: Sequence[tuple[Any, Any, str | None]]) -> list[Outcome]:
        """Return the result of ``make`` for each (task, choice, path), or the failure."""
        wanted = {id(task): task for task, _, _ in candidates}
        known = {id(task) for task in self._tasks}
        if self._pool is None or not wanted.keys() <= known:
            self.know([*wanted.values(), *(t for t in self._tasks[:_REMEMBERED] if id(t) not in wanted)])
        assert self._pool is not None
        numbers = {id(task): i for i, task in enumerate(self._tasks)}
        return self._pool.map([[numbers[id(task)], choice, path] for task, choice, path in candidates])

    def _work(self, request: list[Any]) -> Any:
        number, choice, path = request
        return self._make(self._tasks[number], choice, path, self.fcompile)

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class Timed:
    """Timing options; base of runners.

    Parameters
    ----------
    number, repeat : each cost is the mean of ``number`` calls, there are ``repeat`` of them; one call before does not
        count
    min_repeat_ms : ``number`` grows until a repeat takes as long
    cooldown_interval : seconds to wait after each library
    enable_cpu_cache_flush : whether arguments but the first are out of the caches when a repeat begins
    """

    def __init__(
        self, number: int, repeat: int, min_repeat_ms: int, cooldown_interval: float, enable_cpu_cache_flush: bool
    ) -> None:
        self.number, self.repeat, self.min_repeat_ms = number, repeat, min_repeat_ms
        self.cooldown_interval, self.enable_cpu_cache_flush = cooldown_interval, enable_cpu_cache_flush
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-run-")

    def request(self, library: str, arguments: Any, target: Any, values: Sequence[Any] = (), **more: Any) -> RunRequest:
        """Return the request to run a library; ``values`` are the first arguments', ``more`` as of ``RunRequest``."""
        return RunRequest(
            library, arguments, device=target.kind.device_name, number=self.number, repeat=self.repeat,
            min_repeat_ms=self.min_repeat_ms, flush=self.enable_cpu_cache_flush, inputs=self._saved(values), **more,
        )  # fmt: skip

    def _saved(self, values: Sequence[Any]) -> str:
        """Write values to a file, one for equal values; return its path, or "" for no values."""
        if not values:
            return ""
        arrays = [np.asarray(value) for value in values]
        digest = hashlib.sha256(str([(a.shape, a.dtype) for a in arrays]).encode())
        for each in arrays:
            digest.update(each.tobytes())
        path = os.path.join(self._folder.name, f"{digest.hexdigest()}.npz")
        if not os.path.exists(path):
            np.savez(path, *arrays)
        return path


def build_error(outcome: Outcome) -> MeasureErrorNo:
    """Return the error of a build that came to nothing."""
    if outcome.status == "timeout":
        return MeasureErrorNo.BUILD_TIMEOUT
    refused = outcome.kind == InstantiationError.__name__
    return MeasureErrorNo.INSTANTIATION_ERROR if refused else MeasureErrorNo.COMPILE_HOST


def run_error(outcome: Outcome) -> MeasureErrorNo:
    """Return the error of a run, or NO_ERROR."""
    if outcome.status != "done":
        return MeasureErrorNo.RUN_TIMEOUT if outcome.status == "timeout" else MeasureErrorNo.RUNTIME_DEVICE
    return MeasureErrorNo.NO_ERROR if outcome.value.wrong is None else MeasureErrorNo.WRONG_ANSWER
