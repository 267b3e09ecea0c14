"""Measuring: a builder makes libraries of states, a runner measures them, here or on devices of a tracker.

    MeasureInput --builder--> BuildResult --runner--> MeasureResult

Candidates are built in forks of this process and run in processes that hold the runtime only (``tuning.processes``).
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.auto_scheduler.measure_pair import (
    MAX_FLOAT,
    BuildResult,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    deserialize_input,
    serialize_input,
)
from tilewright.auto_scheduler.measure_record import MeasureCallback
from tilewright.auto_scheduler.task import TaskRecord, input_values
from tilewright.auto_scheduler.utils import get_const_tuple, register_by_name, shortened
from tilewright.autotvm.task.space import InstantiationError
from tilewright.target.build import build
from tilewright.te.operation import PlaceholderOp
from tilewright.tuning.measure.programs import Builds, Timed, build_error, run_error
from tilewright.tuning.processes import LocalRuns, Outcome, RunRequest
from tilewright.tuning.processes.boards import BoardRuns


class PythonBasedMeasureCallback(MeasureCallback):
    """Base class of callbacks that users write."""


def recover_measure_input(inp: MeasureInput, rebuild_state: bool = False) -> MeasureInput:
    """The input of a record with the task's computation, and with ``rebuild_state`` the state's stages."""
    old = inp.task
    task = TaskRecord(
        old.workload_key, old.target, old.hardware_params, old.layout_rewrite_option, old.task_input_names, old.desc
    )
    dag = task.compute_dag
    return MeasureInput(task, dag.infer_bound_from_state(inp.state) if rebuild_state else inp.state)


TASK_INPUT_CHECK_FUNC_REGISTRY: dict[str, Callable[..., Mapping[Any, str]]] = {}


def register_task_input_check_func(func_name: Any, f: Any = None, override: bool = False) -> Any:
    """Register a function that decides which arguments are special inputs; also as a decorator.

    The function takes the argument tensors of a program and returns a dictionary from tensors to names of buffers of
    ``SearchTask(..., task_inputs=...)``.
    """
    return register_by_name(TASK_INPUT_CHECK_FUNC_REGISTRY, "a function", func_name, f, override)


def prepare_input_map(args: Sequence[Any]) -> dict[Any, str]:
    """Return the names of arguments that may be special inputs: from placeholders, and registered functions."""
    names = {a: a.op.name for a in args if isinstance(a.op, PlaceholderOp) and a.op.name != "placeholder"}
    for function in TASK_INPUT_CHECK_FUNC_REGISTRY.values():
        names.update(function(args))
    return names


class ProgramBuilder:
    """Makes programs of states."""

    def build(self, measure_inputs: Sequence[MeasureInput], verbose: int = 1) -> list[BuildResult]:
        """Build a library for each input, or report the failure."""
        raise NotImplementedError


class ProgramRunner:
    """Measures programs."""

    def run(
        self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult], verbose: int = 1
    ) -> list[MeasureResult]:
        """Time each program, or report the failure."""
        raise NotImplementedError


def _say(mark: str, verbose: int) -> None:
    if verbose >= 1:
        print(mark, end="", flush=True)


class LocalBuilder(ProgramBuilder):
    """Builds on this machine.

    Parameters
    ----------
    timeout : seconds for one program
    n_parallel : how many are built at once, by default one for each core of this process
    build_func : "default", or a function of (file, objects) that links, with its suffix as ``output_format``
    """

    def __init__(self, timeout: int = 15, n_parallel: int | None = None, build_func: Any = "default") -> None:
        self._builds = Builds(_write_program, timeout, n_parallel, build_func)
        self.timeout, self.n_parallel, self.build_func = timeout, self._builds.n_parallel, build_func
        self._tasks: dict[tuple[str, str], TaskRecord] = {}

    def build(self, measure_inputs: Sequence[MeasureInput], verbose: int = 1) -> list[BuildResult]:
        tasks = [self._tasks.setdefault((i.task.workload_key, str(i.task.target)), i.task) for i in measure_inputs]
        folder = tempfile.mkdtemp(prefix="auto_scheduler-")
        paths = [str(Path(folder) / f"{n}.{self._builds.suffix}") for n in range(len(tasks))]
        choices = [serialize_input(i) for i in measure_inputs]
        outcomes = self._builds.run(list(zip(tasks, choices, paths, strict=True)))
        results = [_built(*each, verbose) for each in zip(measure_inputs, paths, outcomes, strict=True)]
        if all(r.error_no for r in results):
            shutil.rmtree(folder, ignore_errors=True)
        return results


def _write_program(task: TaskRecord, text: str, path: Any, fcompile: Any) -> float:
    """Write the library of an input in a process of the builder; return the seconds that it took."""
    recorded, began = deserialize_input(text), time.monotonic()
    try:
        option = recorded.task.layout_rewrite_option
        schedule, arguments = task.compute_dag.apply_steps_from_state(recorded.state, option)
    except Exception as error:
        raise InstantiationError(f"{type(error).__name__}: {error}") from error
    build(schedule, arguments, task.target).export_library(path, fcompile)
    return time.monotonic() - began


def _built(inp: MeasureInput, path: str, outcome: Outcome, verbose: int) -> BuildResult:
    """The result of a build."""
    if outcome.status == "done":
        _say(".", verbose)
        return BuildResult(path, program_arguments(inp), 0, "", outcome.value)
    number = build_error(outcome)
    _say(".T" if number == MeasureErrorNo.BUILD_TIMEOUT else ".E", verbose)
    return BuildResult("", [], number, shortened(outcome.traceback or outcome.error), outcome.seconds)


def program_arguments(inp: MeasureInput) -> list[Any]:
    """The argument tensors of an input's program; layouts that the caller brings them into change shapes."""
    dag, option = inp.task.compute_dag, inp.task.layout_rewrite_option
    if option == 2 and inp.state.transform_steps:
        return list(dag.apply_steps_from_state(inp.state, option)[1])
    return list(dag.tensors)


class TimedRunner(ProgramRunner, Timed):
    """Base of runners whose programs run in processes of this machine, there or on boards: ``runs``."""

    runs: Any

    def run(
        self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult], verbose: int = 1
    ) -> list[MeasureResult]:
        requests = [self._timed(i, b) for i, b in zip(measure_inputs, build_results, strict=True) if not b.error_no]
        outcomes = iter(self.runs.run(requests, lambda _, outcome: _say(_MARKS.get(outcome.status, "*E"), verbose)))
        results = [_failed(b) if b.error_no else _measured(next(outcomes), b) for b in build_results]
        for built in build_results:
            _discard(built)
        _say("\n", verbose)
        return results

    def _timed(self, inp: MeasureInput, built: BuildResult) -> RunRequest:
        arguments = [(get_const_tuple(a.shape), a.dtype) for a in built.args]
        values = input_values(inp.task, built.args, prepare_input_map(built.args))
        return self.request(built.filename, arguments, inp.task.target, _first_values(values, arguments))


_MARKS = {"done": "*", "timeout": "*T"}


def _first_values(values: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """Return the values up to the last that is passed, with made-up ones in between."""
    given = [i for i, v in enumerate(values) if v is not None]
    rng = np.random.default_rng(0)
    return [
        v if v is not None else rng.integers(0, 2, arguments[i][0]).astype(arguments[i][1])
        for i, v in enumerate(values[: given[-1] + 1 if given else 0])
    ]


def _discard(built: BuildResult) -> None:
    """Remove a library that was measured, and the folder of its batch with the last."""
    if built.filename:
        path = Path(built.filename)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def _failed(build: BuildResult) -> MeasureResult:
    return MeasureResult([MAX_FLOAT], build.error_no, build.error_msg, build.time_cost, time.time())


def _measured(outcome: Outcome, built: BuildResult) -> MeasureResult:
    """Convert the outcome of a run, whose value is a ``RunAnswer``, to a result."""
    error = run_error(outcome)
    costs = [MAX_FLOAT] if error else undisturbed(outcome.value.costs)
    return MeasureResult(costs, error, outcome.error, built.time_cost + outcome.seconds, time.time())


def undisturbed(costs: Sequence[float]) -> list[float]:
    """The costs without those of repeats that something else delayed: half as long again as the least."""
    return [c for c in costs if c <= 1.5 * min(costs)]


class LocalRunner(TimedRunner):
    """Runs on this machine, one program after the other, in a process of their own.

    Parameters
    ----------
    timeout : seconds for one program
    number, repeat, min_repeat_ms, cooldown_interval : as of ``Timed``
    enable_cpu_cache_flush : as of ``Timed``; each repeat is one run then
    """

    def __init__(
        self,
        timeout: int = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 100,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
    ) -> None:
        if enable_cpu_cache_flush:
            number, min_repeat_ms = 1, 0
        super().__init__(number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush)
        self.timeout = timeout
        self.runs = LocalRuns(timeout, cooldown_interval)


class RPCRunner(TimedRunner):
    """Runs on devices of a tracker.

    Parameters
    ----------
    key, host, port : the key of the devices, and where the tracker is
    priority, n_parallel : of the requests for devices, and how many devices are used at once
    timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush : as of ``LocalRunner``
    """

    def __init__(
        self,
        key: str,
        host: str,
        port: int,
        priority: int = 1,
        n_parallel: int = 1,
        timeout: int = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 100,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
    ) -> None:
        super().__init__(number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush)
        self.key, self.host, self.port, self.priority = key, host, port, priority
        self.n_parallel, self.timeout = n_parallel, timeout
        self.runs = BoardRuns(key, host, port, priority, timeout, n_parallel, waiting=5.0, cooldown=cooldown_interval)
        self._check()

    def _check(self) -> None:
        """Raise RuntimeError if the tracker offers no device within ``timeout`` seconds."""
        try:
            self.runs.session()
        except Exception as error:
            raise RuntimeError(
                f"the tracker at {self.host}:{self.port} gives no device {self.key!r}: {error}. Look with "
                f"'tilewright tracker query --host {self.host} --port {self.port}' which devices are free"
            ) from error


class LocalRPCMeasureContext:
    """A tracker and a server on this machine, and the ``runner`` that uses them; parameters as of ``RPCRunner``."""

    def __init__(
        self,
        priority: int = 1,
        n_parallel: int = 1,
        timeout: int = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
    ) -> None:
        from tilewright.rpc.server import Server
        from tilewright.rpc.tracker import Tracker

        self.tracker = Tracker(host="127.0.0.1", port=9000, port_end=10000, silent=True)
        key = f"$local$device${self.tracker.port}"
        address = ("127.0.0.1", self.tracker.port)
        self.server = Server(
            host="127.0.0.1", port=self.tracker.port, port_end=10000, key=key, silent=True, tracker_addr=address
        )
        self.runner = RPCRunner(
            key, "127.0.0.1", self.tracker.port, priority, n_parallel, timeout, number, repeat, min_repeat_ms,
            cooldown_interval, enable_cpu_cache_flush,
        )  # fmt: skip

    def close(self) -> None:
        """End the server and the tracker."""
        self.server.terminate()
        self.tracker.terminate()

    def __del__(self) -> None:
        if hasattr(self, "server"):
            self.close()


class ProgramMeasurer:
    """Builds and runs programs, records the best of each workload, and calls callbacks.

    Parameters
    ----------
    builder, runner : the objects that build and run
    callbacks : called after each batch
    verbose : 0 for silence
    max_continuous_error : raises RuntimeError after so many failures in a row, 150 by default
    """

    def __init__(
        self,
        builder: ProgramBuilder,
        runner: ProgramRunner,
        callbacks: Iterable[MeasureCallback] | None,
        verbose: int,
        max_continuous_error: int | None = None,
    ) -> None:
        self.builder, self.runner = builder, runner
        self.callbacks = list(callbacks or ())
        self.verbose = verbose
        self.max_continuous_error = max_continuous_error or 150
        self.reset()

    def reset(self) -> None:
        """Forget the measurements."""
        self.ct = self.error_ct = 0
        self.best_flops: dict[str, float] = {}
        self.best_ct: dict[str, int] = {}
        self.best_state: dict[str, Any] = {}

    def measure(self, task: TaskRecord, policy: Any, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """The results of a batch."""
        built = self.builder.build(inputs, self.verbose)
        results = self.runner.run(inputs, built, self.verbose)
        for inp, res in zip(inputs, results, strict=True):
            self._remember(task, inp, res)
        for callback in self.callbacks:
            callback.callback(policy, inputs, results)
        if self.error_ct > self.max_continuous_error:
            messages = {r.error_msg for r in results if r.error_no}
            raise RuntimeError(f"{self.error_ct} measurements in a row failed, the last with:\n" + "\n".join(messages))
        return results

    def _remember(self, task: TaskRecord, inp: MeasureInput, res: MeasureResult) -> None:
        self.ct += 1
        key = task.workload_key
        if res.error_no:
            self.error_ct += 1
            return
        self.error_ct = 0
        flops = task.compute_dag.flop_ct / max(res.mean, 1e-12)
        if flops > self.best_flops.get(key, -1.0):
            self.best_flops[key], self.best_ct[key], self.best_state[key] = flops, self.ct, inp.state


__all__ = [
    "BuildResult",
    "LocalBuilder",
    "LocalRPCMeasureContext",
    "LocalRunner",
    "MeasureCallback",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "ProgramBuilder",
    "ProgramMeasurer",
    "ProgramRunner",
    "PythonBasedMeasureCallback",
    "RPCRunner",
    "recover_measure_input",
    "register_task_input_check_func",
]
