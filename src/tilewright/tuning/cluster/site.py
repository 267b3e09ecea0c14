"""Worker side of the cluster: the functions here are its Dask tasks, or are called on it by the tuner.

Builds run in processes of the worker, several at once. One candidate of a machine runs at a time, whatever the number
of its workers, and nothing is built meanwhile: a lock file keeps the others out.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import queue
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilewright.autotvm.measurement import MeasureErrorNo, MeasureResult
from tilewright.runtime.device import cpu
from tilewright.runtime.module import load_module
from tilewright.tuning.cluster.journal import Journal, remove_old
from tilewright.tuning.cluster.processor import refusal
from tilewright.tuning.measure.measure_methods import build_failure, measured
from tilewright.tuning.processes import LocalRuns, Outcome, Pool, RunRequest, start_worker
from tilewright.tuning.processes.networks import networks_in_turns

_STARTING = 120.0  # seconds for a process to load Tilewright and to collect a task's space
_PREPARED = 16  # untuned choices that are kept

Built = dict[str, Any]


@dataclass(frozen=True)
class _Untuned:
    """The untuned choice of a task on this machine: its files, and the results of its run."""

    library: str
    results: str
    result: MeasureResult
    reference: float


class _Site:
    """This worker's processes and files."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-site-")
        self._idle: queue.SimpleQueue[Pool] = queue.SimpleQueue()
        self._runs = LocalRuns()
        self._untuned: dict[str, _Untuned] = {}
        remove_old()

    def path(self, name: str) -> str:
        """A file of this worker."""
        return os.path.join(self._folder.name, name)

    @contextlib.contextmanager
    def builder(self) -> Iterator[Pool]:
        """Lend a building process; start a new one if all are busy."""
        try:
            pool = self._idle.get_nowait()
        except queue.Empty:
            pool = Pool(lambda: start_worker("tilewright.tuning.cluster.build_worker"), 1, _STARTING)
        try:
            yield pool
        finally:
            self._idle.put(pool)

    def ask_builder(self, request: dict[str, Any]) -> Outcome:
        """Return a building process' answer to a request."""
        with self.builder() as pool:
            pool.timeout = _STARTING
            ready = pool.map([{"task": request["task"], "prepare": True}])[0]
            if ready.status != "done":
                return ready
            pool.timeout = request["timeout"]
            return pool.map([request])[0]

    def run(self, request: dict[str, Any], built: Built, untuned: Built | None) -> tuple[MeasureResult, float]:
        """The result of a candidate, and the least time of the reference kernel around it (0 without one)."""
        known = self._prepared(request, untuned) if untuned is not None else None
        if request["config"] is None and known is not None:
            return known.result, known.reference
        same = known is not None and untuned is not None and untuned["arguments"] == built["arguments"]
        asked = self._request(request, built, self._library(built))
        if known is not None and untuned is not None:
            more: dict[str, Any] = {
                "compare_to": known.results if same and request["check"] else "",
                "reference": known.library,
                "reference_arguments": untuned["arguments"],
                "reference_seconds": request["reference_seconds"],
            }
            asked = RunRequest(**{**vars(asked), **more})
        try:
            return self._ran(asked, built)
        finally:
            os.unlink(asked.library)

    def _prepared(self, request: dict[str, Any], untuned: Built) -> _Untuned | None:
        """Return the untuned choice after a run on this machine; None if it fails."""
        known = self._untuned.get(untuned["id"])
        if known is None:
            library, results = self._library(untuned), self.path(f"{untuned['id']}.npz")
            asked = self._request(request, untuned, library)
            own = {"reference": library, "reference_arguments": untuned["arguments"], "save_results": results}
            result, reference = self._ran(RunRequest(**{**vars(asked), **own}), untuned)
            known = self._untuned[untuned["id"]] = _Untuned(library, results, result, reference)
            if len(self._untuned) > _PREPARED:
                self._forget(next(iter(self._untuned)))
        return known if known.result.error_no == MeasureErrorNo.NO_ERROR or request["config"] is None else None

    def _forget(self, untuned: str) -> None:
        gone = self._untuned.pop(untuned)
        for path in (gone.library, gone.results):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _library(self, built: Built) -> str:
        """The library that arrived, as a file of its own."""
        path = self.path(f"{built['id']}.{threading.get_ident()}.so")
        with open(path, "wb") as file:
            file.write(built["library"])
        return path

    def _request(self, request: dict[str, Any], built: Built, library: str) -> RunRequest:
        options = {name: request[name] for name in ("device", "number", "repeat", "min_repeat_ms", "flush")}
        outputs, tolerance = tuple(built["outputs"]), (request["tolerance"],)
        return RunRequest(library, built["arguments"], outputs=outputs, tolerance=tolerance, **options)

    def _ran(self, asked: RunRequest, built: Built) -> tuple[MeasureResult, float]:
        outcome = self._runs.run([asked])[0]
        reference = min(outcome.value.reference, default=0.0) if outcome.status == "done" else 0.0
        return measured(outcome, built["seconds"]), reference

    def time_limit(self, seconds: float) -> None:
        """Set the time limit of the next runs."""
        self._runs.timeout = seconds


_lock = threading.Lock()


@functools.cache
def _journal(run_name: str) -> Journal:
    return Journal(run_name)


@functools.cache
def _made() -> _Site:
    return _Site()


def _site() -> _Site:
    with _lock:
        return _made()


@contextlib.contextmanager
def machine(alone: bool) -> Iterator[None]:
    """Hold this machine's lock, shared with other builds, or exclusive: for all processes of this user."""
    path = os.path.join(tempfile.gettempdir(), f"tilewright-measure-{os.getuid()}.lock")
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def greet(wanted: dict[str, Any]) -> str | None:
    """Return why this worker cannot measure for a processor, or None."""
    return refusal(wanted)


def build(request: dict[str, Any]) -> Built:
    """Build the library of a candidate, as a Dask task; return its bytes, or the failure.

    ``request`` has ``id``, ``wanted`` (processor), and what ``build_worker`` takes but the path.
    """
    refused = refusal(request["wanted"])
    if refused is not None:
        return {"status": "refused", "message": refused, "address": _address()}
    site = _site()
    path = site.path(f"{request['id']}.built.{threading.get_ident()}.so")
    with machine(alone=False):
        outcome = site.ask_builder({**request, "path": path})
    if outcome.status != "done":
        return {"status": "failed", **_report_fields(build_failure(outcome))}
    with open(path, "rb") as file:
        library = file.read()
    os.unlink(path)
    return {"status": "done", "id": request["id"], "library": library, "seconds": outcome.seconds, **outcome.value}


def run(request: dict[str, Any], built: Built, untuned: Built) -> dict[str, Any]:
    """Measure a built candidate, as a Dask task, once in a tuning run; the result goes to the journal first.

    ``untuned`` is the untuned choice, built: its results and its time are the reference. The result is reported to the
    scheduler before the task ends, under the topic of the run.
    """
    journal = _journal(request["run"])
    with machine(alone=True):
        known = journal.entries().get(request["id"])
        if known is None:
            known = _measure(request, built, untuned)
            if "refused" in known:
                return known
            journal.add(known)
    _tell(request["run"], known)
    return {"id": request["id"]}


def _measure(request: dict[str, Any], built: Built, untuned: Built) -> dict[str, Any]:
    refused = refusal(request["wanted"])
    if refused is not None:
        return {"id": request["id"], "refused": refused, "address": _address()}
    for part in (built, untuned):
        if part["status"] == "refused":
            return {"id": request["id"], "refused": part["message"], "address": part["address"]}
    report: dict[str, Any] = {"id": request["id"], "record": request["record"], "reference": 0.0}
    if built["status"] == "failed":
        return {**report, **{key: built[key] for key in _REPORTED}}
    site = _site()
    site.time_limit(request["timeout"])
    usable = untuned if untuned["status"] == "done" else None
    result, reference = site.run(request, built, usable)
    arguments = {"arguments": built["arguments"], "flop": built["flop"], "build_seconds": built["seconds"]}
    return {**report, **_report_fields(result), **arguments, "reference": reference}


_REPORTED = ("costs", "error_no", "message", "traceback", "seconds", "timestamp")


def _report_fields(result: MeasureResult) -> dict[str, Any]:
    """A result as JSON."""
    failed = result.error_no != MeasureErrorNo.NO_ERROR
    values = (
        [] if failed else list(result.costs), int(result.error_no), str(result.costs[0]) if failed else "",
        str(getattr(result.costs[0], "traceback", "")) if failed else "", result.all_cost, result.timestamp,
    )  # fmt: skip
    return dict(zip(_REPORTED, values, strict=True))


def in_turns(request: dict[str, Any], *field: Built) -> dict[str, Any]:
    """Dask task: several candidates of a task in turns on one machine; the least seconds of each by turn."""
    refused = refusal(request["wanted"])
    if refused is not None:
        return {"refused": refused, "address": _address()}
    site = _site()
    with machine(alone=True):
        site.time_limit(request["timeout"])
        seconds: list[list[float]] = [[] for _ in field]
        for _ in range(request["turns"]):
            for times, built in zip(seconds, field, strict=True):
                result, _ = site.run({**request, "config": {}}, built, None)
                times.append(min(result.costs) if result.error_no == MeasureErrorNo.NO_ERROR else float("inf"))
    return {"seconds": seconds, "at": time.time()}


def networks(request: dict[str, Any]) -> dict[str, Any]:
    """Measure whole networks in turns, as a Dask task; return each one's outputs and median seconds."""
    refused = refusal(request["wanted"])
    if refused is not None:
        return {"refused": refused, "address": _address()}
    with tempfile.TemporaryDirectory(prefix="tilewright-network-") as folder, machine(alone=True):
        paths = [os.path.join(folder, f"{i}.so") for i in range(len(request["libraries"]))]
        for path, library in zip(paths, request["libraries"], strict=True):
            with open(path, "wb") as file:
                file.write(library)
        runs = networks_in_turns([load_module(path) for path in paths], cpu(0))
    return {"runs": [(run.outputs, run.seconds) for run in runs]}


def program(request: dict[str, Any]) -> str:
    """Dask task: the lowered program of a candidate."""
    outcome = _site().ask_builder({**request, "path": None})
    return outcome.value if outcome.status == "done" else f"(it cannot be lowered: {outcome.error})"


def journaled(run_name: str) -> list[dict[str, Any]]:
    """Return this machine's measurements for a tuning run."""
    return list(_journal(run_name).entries().values())


def topic(run_name: str) -> str:
    """Return the topic under which the results of a tuning run are published."""
    return f"tilewright-{run_name}"


def _tell(run_name: str, entry: dict[str, Any]) -> None:
    from distributed import get_worker

    get_worker().log_event(topic(run_name), entry)


def _address() -> str:
    from distributed import get_worker

    return str(get_worker().address)
