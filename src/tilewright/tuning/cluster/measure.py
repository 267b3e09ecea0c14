"""AutoTVM's builder and runner on a Dask cluster."""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.autotvm.lines import decode, encode
from tilewright.autotvm.measurement import MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.autotvm.task.space import InstantiationError
from tilewright.autotvm.task.task import Task
from tilewright.ir.errors import TilewrightError
from tilewright.tuning.cluster import site
from tilewright.tuning.cluster.processor import wanted_for
from tilewright.tuning.measure.measure import Builder, Runner
from tilewright.tuning.measure.measure_methods import (
    TOLERANCE,
    BuildResult,
    CandidateError,
    MeasureBatch,
    Untuned,
    failure,
)
from tilewright.tuning.processes.networks import NetworkRun

if TYPE_CHECKING:
    from tilewright.tuning.cluster.connection import Connection, Trial

Record = tuple[MeasureInput, MeasureResult]


class ClusterBuilder(Builder):
    """Builds on the workers of a cluster; goes with a :class:`ClusterRunner`.

    Parameters
    ----------
    timeout : seconds that one build may take
    build_kwargs : options of the build
    """

    def __init__(self, timeout: float = 10, build_kwargs: Mapping[str, Any] | None = None) -> None:
        super().__init__(timeout, 1, build_kwargs)

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[Any]:
        """Return the inputs: the runner submits builds and runs to the cluster together."""
        return list(measure_inputs)


class ClusterRunner(Runner):
    """Runs candidates on the workers of a Dask cluster that have the processor which is tuned for.

    Parameters
    ----------
    address : of the scheduler ("tcp://host:8786"), or a ``distributed.Client``
    timeout, number, repeat, min_repeat_ms, enable_cpu_cache_flush, check : as of ``LocalRunner``
    run : name of the run of tuning: what was measured under it is not measured again; a new one by default
    patience : seconds to wait for a scheduler that went away

    Raises
    ------
    TilewrightError : nothing answers at ``address``, or no worker has the processor; the message lists theirs
    """

    def __init__(
        self,
        address: Any,
        timeout: float = 5,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: int = 0,
        enable_cpu_cache_flush: bool = False,
        check: bool = True,
        run: str | None = None,
        patience: float = 600.0,
    ) -> None:
        super().__init__(timeout, 1)
        self.address, self.run_name, self.patience = address, run or uuid.uuid4().hex[:12], patience
        self.options = {
            "number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms, "flush": enable_cpu_cache_flush,
        }  # fmt: skip
        self.check = check
        self._connection: Connection | None = None
        self._wanted: dict[str, Any] | None = None
        self._batch: ClusterBatch | None = None

    @property
    def connection(self) -> Connection:
        """The connection; raises TilewrightError before there is a task."""
        if self._connection is None:
            raise TilewrightError("a runner on a cluster connects when it has a task: call set_task")
        return self._connection

    def set_task(self, task: Task) -> Any:
        """Prepare for a task. All have to be for one processor."""
        assert task.target is not None
        wanted = wanted_for(task.target)
        if self._connection is None:
            from tilewright.tuning.cluster.connection import Connection

            self._connection = Connection(self.address, wanted, self.run_name, self.patience)
            self._wanted = wanted
        if wanted != self._wanted:
            raise TilewrightError(f"a cluster tunes for one processor at a time: {self._wanted}, not {wanted}")
        return super().set_task(task)

    def measure_batch(self, task: Task, option: Mapping[str, Any]) -> MeasureBatch:
        """Return the batch that submits trials of ``task`` to the cluster."""
        if not isinstance(option["builder"], ClusterBuilder):
            raise TilewrightError("a ClusterRunner runs what a ClusterBuilder builds: give measure_option both")
        return ClusterBatch(task, option)

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[MeasureResult]:
        """Build and time all inputs."""
        if self._batch is None or self._batch.task is not self.task:
            assert self.task is not None
            self._batch = ClusterBatch(self.task, {"builder": ClusterBuilder(self.timeout), "runner": self})
        return self._batch(measure_inputs)

    def measured(self) -> list[Record]:
        """Return all measurements of the workers in this tuning run, whoever requested them."""
        found = (_record(entry) for entry in self.connection.journaled() if entry["record"]["config"] is not None)
        return [record for record in found if record is not None]

    def networks_in_turns(self, libraries: Sequence[bytes]) -> list[NetworkRun]:
        """Measure whole networks, passed as libraries, alternating on one worker."""
        answer = self.connection.ask(site.networks, {"wanted": self._wanted, "libraries": list(libraries)})
        if "refused" in answer:
            raise TilewrightError(answer["refused"])
        return [NetworkRun(outputs, seconds) for outputs, seconds in answer["runs"]]

    def wait(self, seconds: float | None = None) -> bool:
        """Wait up to ``seconds`` for the result of a trial; return False if none came."""
        came = self.connection.wait(seconds)
        for trial, entry in came:
            trial.owner.arrive(trial, entry)
        return bool(came)

    def close(self) -> None:
        """Leave the cluster."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class ClusterBatch(MeasureBatch):
    """Trials of one task on a cluster, as many pending as it has capacity for."""

    def __init__(self, task: Task, option: Mapping[str, Any]) -> None:
        super().__init__(task, option)
        self.cluster: ClusterRunner = option["runner"]
        self._sent: dict[str, MeasureInput] = {}
        self._arrived: list[tuple[str, dict[str, Any]]] = []
        self._untuned_entry: dict[str, Any] | None = None
        self._reference_seconds = 0.0
        assert task.target is not None
        self._task, self._wanted = _task_json(task), wanted_for(task.target)
        self._untuned_build = self._build_request(None)

    @property
    def n_parallel(self) -> int:
        """Return how many trials are worth having under way."""
        return self.cluster.connection.slots

    @n_parallel.setter
    def n_parallel(self, _: int) -> None:
        pass

    @property
    def pending(self) -> int:
        """Return how many were submitted and not collected."""
        return len(self._sent)

    def submit(self, measure_inputs: Sequence[MeasureInput]) -> None:
        """Send inputs to the cluster."""
        for inp in measure_inputs:
            trial = self._trial(inp)
            self._sent[trial.id] = inp
            self.cluster.connection.send(trial)

    def collect(self, wait: bool = True) -> list[Record]:
        """Return the finished measurements; with ``wait``, wait until there is one."""
        self.cluster.wait(0)
        while wait and self._sent and not self._arrived:
            self.cluster.wait()
        arrived, self._arrived = self._arrived, []
        return [(self._sent.pop(ident), _result(entry)) for ident, entry in arrived]

    def arrive(self, trial: Trial, entry: dict[str, Any]) -> None:
        """A result has come."""
        if trial.run["config"] is None:
            self._untuned_entry = entry
            return
        if entry.get("flop"):
            self.task.flop = entry["flop"]
        self._arrived.append((trial.id, entry))

    def cancel(self) -> None:
        """Trials that have not begun need not be measured."""
        self.cluster.connection.cancel(list(self._sent))
        self._sent.clear()
        self._arrived.clear()

    def wait(self, seconds: float) -> None:
        """Wait until a result of any task is ready."""
        self.cluster.wait(seconds)

    def __call__(self, measure_inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        self.measure_untuned()
        self.submit(measure_inputs)
        found: dict[str, MeasureResult] = {}
        while self.pending:
            found.update((str(inp.config), result) for inp, result in self.collect())
        return [found[str(inp.config)] for inp in measure_inputs]

    def begin_untuned(self) -> None:
        """Send the untuned choice."""
        if self._untuned_entry is None and self._folder is None:
            self._folder = "sent"
            self.cluster.connection.send(self._trial(None))

    def measure_untuned(self) -> MeasureResult | None:
        """Return the result of the untuned choice, measured once in a tuning run; None if it fails."""
        if self._untuned_entry is None:
            self.begin_untuned()
            while self._untuned_entry is None:
                self.cluster.wait()
        entry = self._untuned_entry
        result = _result(entry)
        if result.error_no != MeasureErrorNo.NO_ERROR:
            return None
        if self.untuned is None:
            self._reference_seconds = entry["reference"]
            self.task.flop = entry["flop"]
            arguments = tuple((tuple(shape), dtype) for shape, dtype in entry["arguments"])
            self.untuned = Untuned(BuildResult(None, arguments, None, 0.0), "", result)
        return result

    def in_turns(self, inputs: Sequence[MeasureInput], turns: int) -> list[list[float]]:
        """Return the seconds of the untuned choice and of each input in turns, on one machine; infinite for
        failures.
        """
        connection = self.cluster.connection
        requests = [self._untuned_build, *(self._build_request(inp.config) for inp in inputs)]
        futures = [connection.build(request) for request in requests]
        asked = {**self._run_request(None), "turns": turns}
        answer = connection.ask(site.in_turns, asked, futures)
        if "refused" in answer:
            raise TilewrightError(answer["refused"])
        return [list(times) for times in answer["seconds"]]

    def describe(self, inp: MeasureInput) -> str:
        """The lowered program of a configuration, as a worker makes it."""
        return str(self.cluster.connection.ask(site.program, self._build_request(inp.config)))

    def _trial(self, inp: MeasureInput | None) -> Trial:
        from tilewright.tuning.cluster.connection import Trial

        config = None if inp is None else inp.config
        return Trial(self._build_request(config), self._run_request(config), self._untuned_build, self)

    def _build_request(self, config: Any) -> dict[str, Any]:
        return {
            "id": self._identity(config), "wanted": self._wanted, "task": self._task,
            "config": None if config is None else config.to_json_dict(), "timeout": self.builder.timeout,
            "options": self.builder.build_kwargs,
        }  # fmt: skip

    def _run_request(self, config: Any) -> dict[str, Any]:
        assert self.task.target is not None
        return {
            **self.cluster.options, "id": self._identity(config), "run": self.cluster.run_name,
            "wanted": self._wanted, "config": None if config is None else config.to_json_dict(),
            "record": self._record(config), "device": self.task.target.kind.device_name,
            "timeout": self.cluster.timeout, "check": self.cluster.check, "reference_seconds": self._reference_seconds,
            "tolerance": TOLERANCE.get(_dtype(self.task), 2e-3),
        }  # fmt: skip

    def _record(self, config: Any) -> dict[str, Any]:
        """The record line of a configuration without its result."""
        if config is None:
            return {"config": None}
        assert self.task.target is not None
        line = encode(MeasureInput(self.task.target, self.task, config), MeasureResult((0.0,), 0, 0.0, 0.0))
        record: dict[str, Any] = json.loads(line)
        return record

    def _identity(self, config: Any) -> str:
        """Return the identifier of a measurement in its run."""
        entity = None if config is None else config.to_json_dict()["entity"]
        parts = [self._task, self.cluster.options, self.builder.build_kwargs, entity]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:24]


def _task_json(task: Task) -> dict[str, Any]:
    """Return a task as JSON from which a worker recreates it; raises TilewrightError if its template is in
    no module.
    """
    assert task.target is not None
    template = task.func
    functions = (template.fcustomized, template.fcompute, template.fschedule)
    modules = sorted({f.__module__ for f in functions if f is not None})
    if "__main__" in modules:
        raise TilewrightError(
            f"the template {task.name} is of the script {sys.argv[0]!r}, which workers cannot import: "
            "put it into a module that they have"
        )
    host = None if task.target_host is None else str(task.target_host)
    args = json.loads(json.dumps(task.args))
    return {"name": task.name, "args": args, "target": str(task.target), "host": host, "modules": modules}


def _dtype(task: Task) -> str:
    tensors = [a for a in task.args if isinstance(a, tuple) and a and a[0] == "TENSOR"]
    return str(tensors[0][2]) if tensors else "float32"


def _result(entry: dict[str, Any]) -> MeasureResult:
    """Return the result that a worker reported."""
    number = MeasureErrorNo(entry["error_no"])
    if number == MeasureErrorNo.NO_ERROR:
        return MeasureResult(tuple(entry["costs"]), 0, entry["seconds"], entry["timestamp"])
    refused = number == MeasureErrorNo.INSTANTIATION_ERROR
    message = entry["message"]
    error = InstantiationError(message) if refused else CandidateError(message, entry["traceback"])
    return failure(error, number, entry["seconds"])._replace(timestamp=entry["timestamp"])


def _record(entry: dict[str, Any]) -> Record | None:
    """Return the record of a journal entry."""
    result = _result(entry)
    found = decode(json.dumps(entry["record"]))
    return None if found is None else (found[0], result)
