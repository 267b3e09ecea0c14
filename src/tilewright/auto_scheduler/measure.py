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
from tilewright.auto_scheduler.utils import get_const_tuple, make_traceback_info, register_by_name
from tilewright.target.build import build
from tilewright.te.operation import PlaceholderOp
from tilewright.tuning.processes import LocalRuns, Outcome, Pool, RunRequest, fork_worker
from tilewright.tuning.processes.boards import BoardRuns

_BUILD_THREADS = 2


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
    """The names of the arguments that may be special inputs: of placeholders, and what registered functions say."""
    names = {a: a.op.name for a in args if isinstance(a.op, PlaceholderOp) and a.op.name != "placeholder"}
    for function in TASK_INPUT_CHECK_FUNC_REGISTRY.values():
        names.update(function(args))
    return names


class ProgramBuilder:
    """Makes programs of states."""

    def build(self, measure_inputs: Sequence[MeasureInput], verbose: int = 1) -> list[BuildResult]:
        """A library for each input, or why there is none."""
        raise NotImplementedError


class ProgramRunner:
    """Measures programs."""

    def run(
        self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult], verbose: int = 1
    ) -> list[MeasureResult]:
        """The times of each program, or why there are none."""
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
    build_func : "default", "ndk", or a function of (file, objects) that links, with its suffix as ``output_format``
    """

    def __init__(self, timeout: int = 15, n_parallel: int | None = None, build_func: Any = "default") -> None:
        if not callable(build_func) and build_func not in ("default", "ndk"):
            raise ValueError(f"invalid build_func {build_func!r}; give 'default', 'ndk' or a function")
        self.timeout = timeout
        self.n_parallel = n_parallel or _cores()
        self.build_func = build_func
        self._pool: Pool | None = None
        self._tasks: dict[tuple[str, str], TaskRecord] = {}

    def build(self, measure_inputs: Sequence[MeasureInput], verbose: int = 1) -> list[BuildResult]:
        folder = tempfile.mkdtemp(prefix="auto_scheduler-")
        pool = self._pool_for(measure_inputs)
        outcomes = pool.map([[serialize_input(i), folder, n] for n, i in enumerate(measure_inputs)])
        results = [self._result(i, o, verbose) for i, o in zip(measure_inputs, outcomes, strict=True)]
        if all(r.error_no for r in results):
            shutil.rmtree(folder, ignore_errors=True)
        return results

    def _pool_for(self, inputs: Sequence[MeasureInput]) -> Pool:
        """The pool, whose processes know the tasks of ``inputs``: a fork knows what was known when it was made."""
        new = {(i.task.workload_key, str(i.task.target)): i.task for i in inputs}
        if self._pool is None or not new.keys() <= self._tasks.keys():
            if self._pool is not None:
                self._pool.close()
            self._tasks |= new
            self._pool = Pool(lambda: fork_worker(self._handle), self.n_parallel, self.timeout)
        return self._pool

    def _handle(self, request: list[Any]) -> dict[str, Any]:
        """Build one input in a worker; return the library's file, or an error."""
        text, folder, number = request
        recorded = deserialize_input(text)
        task = self._tasks[recorded.task.workload_key, str(recorded.task.target)]
        began = time.monotonic()
        try:
            sch, args = task.compute_dag.apply_steps_from_state(recorded.state, recorded.task.layout_rewrite_option)
        except Exception:
            return {"error_no": MeasureErrorNo.INSTANTIATION_ERROR, "error": make_traceback_info()}
        try:
            library = build(sch, args, task.target)
            path = self._export(library, Path(folder) / str(number))
        except Exception:
            shutil.rmtree(Path(folder) / str(number), ignore_errors=True)
            return {"error_no": MeasureErrorNo.COMPILE_HOST, "error": make_traceback_info()}
        return {"error_no": 0, "file": path, "seconds": time.monotonic() - began}

    def _export(self, library: Any, folder: Path) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        if callable(self.build_func):
            path = folder / f"tmp_func.{getattr(self.build_func, 'output_format', 'so')}"
            library.export_library(str(path), self.build_func)
        elif self.build_func == "ndk":
            from tilewright.contrib import ndk

            path = folder / "tmp_func.so"
            library.export_library(str(path), ndk.create_shared)
        else:
            path = folder / "tmp_func.so"
            library.export_library(str(path))
        return str(path)

    def _result(self, inp: MeasureInput, outcome: Outcome, verbose: int) -> BuildResult:
        if outcome.status != "done":
            timed_out = outcome.status == "timeout"
            _say(".T" if timed_out else ".E", verbose)
            number = MeasureErrorNo.BUILD_TIMEOUT if timed_out else MeasureErrorNo.COMPILE_HOST
            return BuildResult("", [], number, outcome.error, outcome.seconds)
        answer = outcome.value
        if answer["error_no"]:
            _say(".E", verbose)
            return BuildResult("", [], answer["error_no"], answer["error"], outcome.seconds)
        _say(".", verbose)
        return BuildResult(answer["file"], program_arguments(inp), 0, "", answer["seconds"])


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0))


def program_arguments(inp: MeasureInput) -> list[Any]:
    """The argument tensors of an input's program; layouts that the caller brings them into change shapes."""
    dag, option = inp.task.compute_dag, inp.task.layout_rewrite_option
    if option == 2 and inp.state.transform_steps:
        return list(dag.apply_steps_from_state(inp.state, option)[1])
    return list(dag.tensors)


def _discard(built: BuildResult) -> None:
    """Remove a library that was measured, and the folder of its batch with the last."""
    own = Path(built.filename).parent
    shutil.rmtree(own, ignore_errors=True)
    with contextlib.suppress(OSError):
        own.parent.rmdir()


def _failed(build: BuildResult) -> MeasureResult:
    return MeasureResult([MAX_FLOAT], build.error_no, build.error_msg, build.time_cost, time.time())


class LocalRunner(ProgramRunner):
    """Runs on this machine, one program after the other, in a process of their own.

    Parameters
    ----------
    timeout : seconds for one program
    number, repeat : ``repeat`` times the mean of ``number`` runs is taken, after one run that does not count
    min_repeat_ms : a repeat is prolonged until it takes as many milliseconds
    cooldown_interval : seconds between two programs
    enable_cpu_cache_flush : whether caches hold nothing of the inputs before each repeat, which then is one run
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
        self.timeout = timeout
        self.number = 1 if enable_cpu_cache_flush else number
        self.repeat = repeat
        self.min_repeat_ms = 0 if enable_cpu_cache_flush else min_repeat_ms
        self.cooldown_interval = cooldown_interval
        self.enable_cpu_cache_flush = enable_cpu_cache_flush
        self._runs: LocalRuns | None = None

    def run(
        self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult], verbose: int = 1
    ) -> list[MeasureResult]:
        if self._runs is None:
            self._runs = LocalRuns(self.timeout)
        results: list[MeasureResult] = []
        for inp, built in zip(measure_inputs, build_results, strict=True):
            results.append(_failed(built) if built.error_no else self._measure(inp, built, verbose))
        _say("\n", verbose)
        return results

    def _measure(self, inp: MeasureInput, built: BuildResult, verbose: int) -> MeasureResult:
        assert self._runs is not None
        folder = Path(built.filename).parent
        values = input_values(inp.task, built.args, prepare_input_map(built.args))
        arguments = [(get_const_tuple(a.shape), a.dtype) for a in built.args]
        request = RunRequest(
            built.filename, arguments, device=inp.task.target.kind.device_name, number=self.number,
            repeat=self.repeat, min_repeat_ms=self.min_repeat_ms, flush=self.enable_cpu_cache_flush,
            inputs=_saved_inputs(folder, values, arguments),
        )  # fmt: skip
        (outcome,) = self._runs.run([request])
        _discard(built)
        if self.cooldown_interval:
            time.sleep(self.cooldown_interval)
        return _measured(outcome, built, verbose)


def _saved_inputs(folder: Path, values: Sequence[Any], arguments: Sequence[Any]) -> str:
    """Write the values, up to the last that is set, to a file; return "" if there are none."""
    given = [i for i, v in enumerate(values) if v is not None]
    if not given:
        return ""
    rng = np.random.default_rng(0)
    arrays = [
        v if v is not None else rng.integers(0, 2, arguments[i][0]).astype(arguments[i][1])
        for i, v in enumerate(values[: given[-1] + 1])
    ]
    path = folder / "inputs.npz"
    np.savez(path, *arrays)
    return str(path)


def _measured(outcome: Outcome, built: BuildResult, verbose: int) -> MeasureResult:
    """The result of a run whose value, where it is done, is a ``RunAnswer``."""
    error, message, costs = MeasureErrorNo.NO_ERROR, outcome.error, [MAX_FLOAT]
    if outcome.status != "done":
        error = MeasureErrorNo.RUN_TIMEOUT if outcome.status == "timeout" else MeasureErrorNo.RUNTIME_DEVICE
    elif outcome.value.wrong is not None:
        error, message = MeasureErrorNo.WRONG_ANSWER, outcome.value.wrong
    else:
        costs = undisturbed(outcome.value.costs)
    _say("*T" if error == MeasureErrorNo.RUN_TIMEOUT else "*E" if error else "*", verbose)
    return MeasureResult(costs, error, message, built.time_cost + outcome.seconds, time.time())


def undisturbed(costs: Sequence[float]) -> list[float]:
    """The costs without those of repeats that something else delayed: half as long again as the least."""
    return [c for c in costs if c <= 1.5 * min(costs)]


class RPCRunner(ProgramRunner):
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
        self.key, self.host, self.port, self.priority = key, host, port, priority
        self.n_parallel, self.timeout = n_parallel, timeout
        self.number, self.repeat, self.min_repeat_ms = number, repeat, min_repeat_ms
        self.cooldown_interval, self.enable_cpu_cache_flush = cooldown_interval, enable_cpu_cache_flush
        self._runs = BoardRuns(key, host, port, priority, timeout, n_parallel, waiting=5.0, cooldown=cooldown_interval)
        self._check()

    def _check(self) -> None:
        """Raise RuntimeError if the tracker offers no device within ``timeout`` seconds."""
        try:
            self._runs.session()
        except Exception as error:
            raise RuntimeError(
                f"the tracker at {self.host}:{self.port} gives no device {self.key!r}: {error}. Look with "
                f"'tilewright tracker query --host {self.host} --port {self.port}' which devices are free"
            ) from error

    def run(
        self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult], verbose: int = 1
    ) -> list[MeasureResult]:
        pairs = list(zip(measure_inputs, build_results, strict=True))
        requests = [self._request(inp, built) for inp, built in pairs if not built.error_no]
        outcomes = iter(self._runs.run(requests))
        results = [_failed(b) if b.error_no else _measured(next(outcomes), b, verbose) for _, b in pairs]
        for _, built in pairs:
            if built.filename:
                _discard(built)
        _say("\n", verbose)
        return results

    def _request(self, inp: MeasureInput, built: BuildResult) -> RunRequest:
        values = input_values(inp.task, built.args, prepare_input_map(built.args))
        arguments = [(get_const_tuple(a.shape), a.dtype) for a in built.args]
        return RunRequest(
            built.filename,
            arguments,
            device=inp.task.target.kind.device_name,
            number=self.number,
            repeat=self.repeat,
            min_repeat_ms=self.min_repeat_ms,
            flush=self.enable_cpu_cache_flush,
            inputs=_saved_inputs(Path(built.filename).parent, values, arguments),
        )


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
    """Builds and runs, remembers the best of each workload, and tells callbacks.

    Parameters
    ----------
    builder, runner : who builds and runs
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
