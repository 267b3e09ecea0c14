"""Builders and runners whose processes are this machine's: libraries run here or on boards."""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tilewright import rpc
from tilewright.autotvm.measurement import MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.autotvm.task.space import InstantiationError
from tilewright.autotvm.task.task import Task
from tilewright.ir.errors import TilewrightError
from tilewright.rpc.client import tracker_address
from tilewright.tuning.measure import build as building
from tilewright.tuning.measure.measure import Builder, Runner
from tilewright.tuning.measure.programs import Builds, Timed, build_error, run_error
from tilewright.tuning.processes import LocalRuns, Outcome, RunRequest
from tilewright.tuning.processes.boards import BoardRuns
from tilewright.tuning.processes.loaded import LoadedRuns, ModuleLoader

logger = logging.getLogger("autotvm")

TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1}


class BuildResult(NamedTuple):
    """A library that was built: its path, its arguments as (shape, dtype), the error, and the seconds that it took.

    ``outputs`` tells which arguments are results.
    """

    filename: str | None
    arg_info: tuple[tuple[tuple[int, ...], str], ...] | None
    error: Exception | None
    time_cost: float
    outputs: tuple[int, ...] = (-1,)


class Untuned(NamedTuple):
    """The untuned choice of a task: its library, the file of its results, and its time."""

    built: BuildResult
    results: str
    result: MeasureResult


class CandidateError(RuntimeError):
    """The outcome of a configuration in another process; ``traceback`` is from there."""

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


def failure(error: Exception, number: MeasureErrorNo, seconds: float) -> MeasureResult:
    """The result of a configuration that failed."""
    return MeasureResult((error,), number, seconds, time.time())


def build_failure(outcome: Outcome) -> MeasureResult:
    """The result of a build that came to nothing."""
    number = build_error(outcome)
    if number == MeasureErrorNo.BUILD_TIMEOUT:
        return failure(TimeoutError(f"the build {outcome.error}"), number, outcome.seconds)
    if number == MeasureErrorNo.INSTANTIATION_ERROR:
        return failure(InstantiationError(outcome.error), number, outcome.seconds)
    message = f"{outcome.kind}: {outcome.error}" if outcome.kind else outcome.error
    return failure(CandidateError(message, outcome.traceback), number, outcome.seconds)


class LocalBuilder(Builder):
    """Builds on this machine, in forks of this process.

    Parameters
    ----------
    timeout : seconds that one build may take; what takes longer is ended
    n_parallel : how many at once; the machine's cores by default
    build_func : "default", or a function of ``export_library``'s ``fcompile``; its ``output_format`` is the suffix. One
        that has a method ``write_module(module, path)`` makes another kind of file by it
    """

    def __init__(
        self,
        timeout: float = 10,
        n_parallel: int | None = None,
        build_kwargs: Mapping[str, Any] | None = None,
        build_func: str | Callable[..., Any] = "default",
        do_fork: bool = True,
    ) -> None:
        super().__init__(timeout, n_parallel, build_kwargs)
        self._builds = Builds(self._make, timeout, self.n_parallel, build_func)
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-tune-")
        self._numbers = itertools.count()
        self._runner_kwargs: Mapping[str, Any] | None = None

    @property
    def tmp_dir(self) -> str:
        """The folder of libraries."""
        return self._folder.name

    def set_task(self, task: Task, build_kwargs: Mapping[str, Any] | None = None) -> None:
        """Prepare for a task; processes that know it start with the first build."""
        if build_kwargs != self._runner_kwargs:
            self.close()
        self._runner_kwargs = build_kwargs
        super().set_task(task, build_kwargs)

    def know(self, tasks: Sequence[Task]) -> None:
        """Start new processes, which know these tasks, with the next build."""
        self._builds.know(tasks)

    def _make(self, task: Task, choice: Any, path: str | None, fcompile: Any) -> Any:
        """Build, or return the program of a configuration; runs in a process of the builder."""
        config = building.config_from_json(task, choice)
        if path is None:
            return building.lowered_text(task, config)
        return building.build_candidate(task, config, path, self.build_kwargs, fcompile)

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[Any]:
        """Build all; libraries of earlier batches are removed."""
        for name in os.listdir(self.tmp_dir):
            os.unlink(os.path.join(self.tmp_dir, name))
        return self.keep([(inp.task, inp.config) for inp in measure_inputs])

    def keep(self, candidates: Sequence[tuple[Task, Any]]) -> list[Any]:
        """Build (task, configuration) pairs, a configuration of None being the untuned choice; libraries stay."""
        paths = [os.path.join(self.tmp_dir, self._name()) for _ in candidates]
        outcomes = self._builds.run([(t, _choice(c), path) for (t, c), path in zip(candidates, paths, strict=True)])
        for (task, _), outcome in zip(candidates, outcomes, strict=True):
            if outcome.status == "done":
                task.flop = outcome.value["flop"]
        return [_built(path, outcome) for path, outcome in zip(paths, outcomes, strict=True)]

    def describe(self, task: Task, config: Any) -> str:
        """The lowered program of a configuration."""
        (outcome,) = self._builds.run([(task, _choice(config), None)])
        return outcome.value if outcome.status == "done" else f"(it cannot be lowered: {outcome.error})"

    def _name(self) -> str:
        return f"candidate_{next(self._numbers)}.{self._builds.suffix}"

    def close(self) -> None:
        """End the processes."""
        self._builds.close()


def _choice(config: Any) -> Any:
    """A configuration as JSON; None stays None."""
    return None if config is None else config.to_json_dict()


def _built(path: str, outcome: Outcome) -> Any:
    """The result of a build."""
    if outcome.status != "done":
        return build_failure(outcome)
    value = outcome.value
    arguments = tuple((tuple(shape), dtype) for shape, dtype in value["arguments"])
    return BuildResult(path, arguments, None, outcome.seconds, tuple(value["outputs"]))


def tolerance_of(built: BuildResult) -> float:
    """Return how far results may be from the untuned choice's, relative to the largest."""
    dtype = built.arg_info[built.outputs[0]][1] if built.arg_info and built.outputs else "float32"
    return TOLERANCE.get(dtype, 2e-3)


class LibraryRunner(Runner, Timed):
    """Base of runners whose libraries run in processes of this machine, there or on boards: ``runs``."""

    compares = True
    runs: Any

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[MeasureResult]:
        """Time built libraries; others keep their result."""
        results = [b if isinstance(b, MeasureResult) else None for b in build_results]
        wanted = [i for i, r in enumerate(results) if r is None]
        outcomes = self.runs.run([self.candidate(measure_inputs[i], build_results[i]) for i in wanted])
        for i, outcome in zip(wanted, outcomes, strict=True):
            results[i] = measured(outcome, build_results[i].time_cost)
        return [r for r in results if r is not None]

    def candidate(self, inp: MeasureInput, built: BuildResult, **more: Any) -> RunRequest:
        """Return the request to time a library."""
        assert built.filename is not None
        assert built.arg_info is not None
        given = {"outputs": built.outputs, "tolerance": (tolerance_of(built),), **more}
        return self.request(built.filename, built.arg_info, inp.target, **given)

    def close(self) -> None:
        """End the processes."""
        self.runs.close()


class LocalRunner(LibraryRunner):
    """Runs on this machine, one after the other, in a process of its own.

    Parameters
    ----------
    timeout : seconds that one configuration may take
    number, repeat, min_repeat_ms, enable_cpu_cache_flush : as of ``Timed``
    cooldown_interval : seconds to wait after each; TVM's 0.1 would be most of the time that a trial takes here
    check : whether results are compared with those of the untuned choice; one that differs is no candidate
    module_loader : opens what is run elsewhere, such as ``tvm.micro.AutoTvmModuleLoader`` on a board; results are not
        compared then
    """

    def __init__(
        self,
        timeout: float = 5,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: int = 0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        check: bool = True,
        module_loader: ModuleLoader | None = None,
    ) -> None:
        super().__init__(timeout, 1)
        Timed.__init__(self, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush)
        self.check = check
        self.ref_input: Sequence[Any] | None = None
        self.executor: Any = None
        self.untuned: Untuned | None = None
        self.compares = module_loader is None
        self.runs = (
            LocalRuns(timeout, cooldown_interval)
            if module_loader is None
            else LoadedRuns(module_loader, timeout, cooldown_interval)
        )

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[MeasureResult]:
        """Time built libraries; others keep their result."""
        if self.executor is None:
            return super().run(measure_inputs, build_results)
        return [
            self.executor.submit(self.run_one, inp, built, ref_input=self.ref_input).result()
            for inp, built in zip(measure_inputs, build_results, strict=True)
        ]

    def run_one(self, measure_input: MeasureInput, build_result: Any, ref_input: Any = None) -> MeasureResult:
        """Time one library; ``ref_input`` are the first arguments' values."""
        self.ref_input = ref_input
        return super().run([measure_input], [build_result])[0]

    def run_untuned(self, inp: MeasureInput, built: BuildResult, results: str) -> MeasureResult:
        """Run the untuned choice; its results go to the file ``results``."""
        self.untuned = None
        return measured(self.runs.run([self.candidate(inp, built, save_results=results)])[0], built.time_cost)

    def candidate(self, inp: MeasureInput, built: BuildResult, **more: Any) -> RunRequest:
        """Return the request to time a library beside the untuned choice."""
        values = list(self.ref_input or ())
        untuned = self.untuned
        if untuned is not None:
            same = untuned.built.arg_info == built.arg_info
            more["compare_to"] = untuned.results if same and self.check else ""
            more["reference"], more["reference_arguments"] = str(untuned.built.filename), untuned.built.arg_info or ()
        return super().candidate(inp, built, values=values, **more)


class RPCRunner(LibraryRunner):
    """Runs each library on a board of the kind ``key`` from a tracker at ``host``:``port``.

    Several boards of a kind work at the same time. A session is had by a process of its own, so that what hangs on a
    board is ended here after ``timeout`` seconds, and ended there by the session's own time-out.

    Parameters
    ----------
    key, host, port : of boards, and where the tracker is; ``TVM_TRACKER_HOST`` and ``TVM_TRACKER_PORT`` by default
    priority : of requests; higher ones are served first
    timeout : seconds that a run may take
    n_parallel : boards to use at once; by default as many as the tracker knows
    number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush : as of ``LocalRunner``
    """

    def __init__(
        self,
        key: str,
        host: str | None = None,
        port: int | None = None,
        priority: int = 1,
        timeout: float = 10,
        n_parallel: int | None = None,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: int = 0,
        cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False,
    ) -> None:
        self.key, self.priority = key, priority
        self.host, self.port = tracker_address(host, port)
        super().__init__(timeout, n_parallel or self._boards())
        Timed.__init__(self, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush)
        self.runs = BoardRuns(key, self.host, self.port, priority, timeout, self.n_parallel, cooldown=cooldown_interval)

    def _boards(self) -> int:
        """Return how many boards of the kind the tracker knows; raises TilewrightError when there is none."""
        tracker = rpc.connect_tracker(self.host, self.port)
        try:
            servers = tracker.summary()["server_info"]
        finally:
            tracker.close()
        count = sum(str(s.get("key", "")).removeprefix("server:") == self.key for s in servers)
        if not count:
            known = ", ".join(sorted({str(s.get("key", "")) for s in servers})) or "none"
            raise TilewrightError(
                f"the tracker at {self.host}:{self.port} knows no board of the kind {self.key!r}; it knows {known}"
            )
        return count

    def session(self, timeout: float | None = None) -> Any:
        """A session with a board, for ``timeout`` seconds; 0 sets no limit."""
        return self.runs.session(timeout)

    def run_untuned(self, inp: MeasureInput, built: BuildResult, results: str) -> MeasureResult:
        """Run the untuned choice; its results stay on the board."""
        return self.run([inp], [built])[0]

    def in_turns(self, inputs: Sequence[MeasureInput], built: Sequence[Any], turns: int) -> list[list[float]]:
        """Return the seconds of libraries, run in turns on one board; one whose results differ from the first's is
        dropped.
        """
        good = [i for i, b in enumerate(built) if not isinstance(b, MeasureResult)]
        found = self.runs.in_turns([self.candidate(inputs[i], built[i]) for i in good], turns)
        times = dict(zip(good, found, strict=True))
        return [times.get(i, [float("inf")] * turns) for i in range(len(built))]


def measured(outcome: Outcome, build_seconds: float) -> MeasureResult:
    """The result of a run."""
    seconds, number = build_seconds + outcome.seconds, run_error(outcome)
    if number == MeasureErrorNo.NO_ERROR:
        return MeasureResult(outcome.value.costs, number, seconds, time.time())
    if number == MeasureErrorNo.RUN_TIMEOUT:
        return failure(TimeoutError(f"the run {outcome.error}"), number, seconds)
    message = outcome.value.wrong if number == MeasureErrorNo.WRONG_ANSWER else outcome.error
    return failure(CandidateError(message, outcome.traceback), number, seconds)


def measure_option(builder: Builder | str, runner: Runner | str) -> dict[str, Any]:
    """Combine a builder and a runner; "local" selects those of this machine.

    >>> autotvm.measure_option(builder=autotvm.LocalBuilder(), runner=autotvm.LocalRunner(number=10, timeout=5))
    """
    if isinstance(builder, str):
        if builder != "local":
            raise ValueError(f'a builder is a Builder or "local", found {builder!r}')
        builder = LocalBuilder()
    if isinstance(runner, str):
        if runner != "local":
            raise ValueError(f'a runner is a Runner or "local", found {runner!r}')
        runner = LocalRunner()
    return {"builder": builder, "runner": runner}


class MeasureBatch:
    """Builds and runs batches of one task. ``n_parallel`` is how many at once are worth it.

    Where the builder is this machine's and the runner compares, the untuned choice is built and run before all others:
    ``untuned``.
    """

    def __init__(self, task: Task, option: Mapping[str, Any]) -> None:
        self.builder: Builder = option["builder"]
        self.runner: Runner = option["runner"]
        self.task = task
        self.attach_objects = self.runner.set_task(task)
        self.builder.set_task(task, self.runner.get_build_kwargs())
        self.n_parallel = self.builder.n_parallel
        self.untuned: Untuned | None = None
        self._folder: Any = None
        self._submitted: list[MeasureInput] = []

    @property
    def pending(self) -> int:
        """Return how many were submitted and not collected."""
        return len(self._submitted)

    def submit(self, measure_inputs: Sequence[MeasureInput]) -> None:
        """Submit inputs for measurement; ``collect`` returns the results."""
        self._submitted += measure_inputs

    def collect(self, wait: bool = True) -> list[tuple[MeasureInput, MeasureResult]]:
        """Return finished measurements: all submitted ones here; other batches return those that are ready, or
        ``wait``.
        """
        batch, self._submitted = self._submitted, []
        return list(zip(batch, self(batch), strict=True))

    def cancel(self) -> None:
        """Drop submitted measurements that have not begun."""
        self._submitted = []

    def wait(self, seconds: float) -> None:
        """Return at once: here there is always something to collect."""

    def in_turns(self, inputs: Sequence[MeasureInput], turns: int) -> list[list[float]]:
        """Return the seconds of the untuned choice and of each input, in turns; infinite for failures."""
        builder: Any = self.builder
        if self.untuned is None or not isinstance(builder, LocalBuilder):
            raise TilewrightError("only what LocalBuilder builds is compared with the untuned choice")
        inp: Any = MeasureInput(self.task.target, self.task, None)  # type: ignore[arg-type]
        built = [self.untuned.built, *builder.keep([(self.task, i.config) for i in inputs])]
        if isinstance(self.runner, LocalRunner):
            self.runner.untuned = self.untuned
        return self.runner.in_turns([inp, *inputs], built, turns)

    def begin_untuned(self) -> None:
        """Start measuring the untuned choice, if the batch runs in the background."""

    def __call__(self, measure_inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        self.measure_untuned()
        if isinstance(self.runner, LocalRunner):
            self.runner.untuned = self.untuned
        return self.runner.run(measure_inputs, self.builder.build(measure_inputs))

    def measure_untuned(self) -> MeasureResult | None:
        """Return the result of the untuned choice, measured once; None if builder or runner do not use it."""
        if not isinstance(self.builder, LocalBuilder) or not self.runner.compares:
            return None
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="tilewright-untuned-")
            self.untuned = self._measure_untuned(self.builder)
        return None if self.untuned is None else self.untuned.result

    def _measure_untuned(self, builder: LocalBuilder) -> Untuned | None:
        (built,) = builder.keep([(self.task, None)])
        if isinstance(built, MeasureResult):
            logger.warning("the untuned choice of %s cannot be built: %s", self.task.name, built.costs[0])
            return None
        kept = os.path.join(self._folder.name, os.path.basename(built.filename))
        shutil.move(built.filename, kept)
        built = built._replace(filename=kept)
        results = os.path.join(self._folder.name, "results.npz")
        inp: Any = MeasureInput(self.task.target, self.task, None)  # type: ignore[arg-type]
        result: MeasureResult = self.runner.run_untuned(inp, built, results)  # type: ignore[attr-defined]
        if result.error_no != MeasureErrorNo.NO_ERROR:
            logger.warning("the untuned choice of %s fails: %s", self.task.name, result.costs[0])
            return None
        return Untuned(built, results, result)

    def describe(self, inp: MeasureInput) -> str:
        """Return the lowered program of a configuration, if the builder can."""
        if isinstance(self.builder, LocalBuilder):
            return self.builder.describe(inp.task, inp.config)
        return json.dumps(inp.config.to_json_dict())


def create_measure_batch(task: Task, option: Mapping[str, Any]) -> MeasureBatch:
    """Return a function that measures batches of configurations of ``task``, as :func:`measure_option` says."""
    own: MeasureBatch | None = option["runner"].measure_batch(task, option)
    return MeasureBatch(task, option) if own is None else own
