"""Runs on boards from a tracker of remote devices, with the requests and answers of local runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.ir.errors import TilewrightError
from tilewright.rpc.client import connect_tracker
from tilewright.runtime.ndarray import array, empty
from tilewright.tuning.processes.local import RunAnswer, RunRequest
from tilewright.tuning.processes.pool import Outcome, Pool
from tilewright.tuning.processes.process import fork_worker
from tilewright.tuning.processes.run_worker import difference, fill_strange

FLUSH = "cache_flush_cpu_non_first_arg"
_FILL = "tvm.contrib.random.random_fill"


class BoardRuns:
    """Runs libraries on boards, each on one; sessions have processes of their own, so that hanging runs can be killed.

    Parameters
    ----------
    key, host, port, priority : of boards, where the tracker is, and of requests
    timeout : seconds that a session may take
    boards : how many are used at once
    waiting : seconds for a board to be free and a library to arrive, beside the session
    cooldown : seconds to wait after each run

    Of a ``RunRequest`` results are not compared, and no reference is run: ``in_turns`` compares.
    """

    def __init__(
        self,
        key: str,
        host: str,
        port: int,
        priority: int = 1,
        timeout: float = 10,
        boards: int = 1,
        waiting: float = 60.0,
        cooldown: float = 0.0,
    ) -> None:
        self.key, self.host, self.port, self.priority = key, host, port, priority
        self.timeout, self.cooldown = timeout, cooldown
        self._pool = Pool(lambda: fork_worker(self._work), boards, timeout + waiting)

    def session(self, timeout: float | None = None) -> Any:
        """Open a session with a board, of a run's seconds or ``timeout``; 0 sets no limit."""
        timeout = self.timeout if timeout is None else timeout
        tracker = connect_tracker(self.host, self.port)
        try:
            return tracker.request(self.key, priority=self.priority, session_timeout=timeout)
        finally:
            tracker.close()

    def run(self, requests: Sequence[RunRequest], each: Callable[[int, Outcome], None] | None = None) -> list[Outcome]:
        """Return the outcome of each request, as ``LocalRuns.run`` does."""
        outcomes = self._pool.map([asdict(r) for r in requests], each)
        return [answer(outcome) for outcome in outcomes]

    def in_turns(self, requests: Sequence[RunRequest], turns: int) -> list[list[float]]:
        """Return the least seconds of each library, in turns on one board; infinite for failures.

        So is one whose results differ from the first one's, where its arguments are the same.
        """
        whole, self._pool.timeout = self._pool.timeout, self._pool.timeout + self.timeout * turns * len(requests)
        try:
            (outcome,) = self._pool.map([{"turns": turns, "requests": [asdict(r) for r in requests]}])
        finally:
            self._pool.timeout = whole
        if outcome.status != "done":
            raise TilewrightError(f"a board of the kind {self.key!r} compares nothing: {outcome.error}")
        return [[float("inf") if t is None else t for t in times] for times in outcome.value]

    def _turns(self, requests: Sequence[RunRequest], turns: int) -> list[list[float | None]]:
        """Run libraries alternating on one board; runs in a process of the pool."""
        remote = self.session(self.timeout * turns * len(requests))
        timers = _timers(requests, remote)
        times: list[list[float | None]] = [[] for _ in requests]
        for _ in range(turns):
            for taken, timer in zip(times, timers, strict=True):
                taken.append(None if timer is None else min(timer()))
        for request in requests:
            remote.remove(Path(request.library).name)
        return times

    def _work(self, message: dict[str, Any]) -> Any:
        """Run one library on one board, or several alternating; runs in a process of the pool."""
        if "turns" in message:
            return self._turns([RunRequest(**r) for r in message["requests"]], message["turns"])
        request, remote = RunRequest(**message), self.session()
        name = Path(request.library).name
        remote.upload(request.library)
        try:
            module, device = remote.load_module(name), remote.device(request.device)
            evaluate = module.time_evaluator(
                request.function or module.entry_name, device, request.number, request.repeat, request.min_repeat_ms,
                FLUSH if request.flush else "",
            )  # fmt: skip
            costs = [float(c) for c in evaluate(*arguments_there(request, remote, device)).results]
        finally:
            remote.remove(name)
        time.sleep(self.cooldown)
        return costs

    def close(self) -> None:
        """End the processes."""
        self._pool.close()


def arguments_there(request: RunRequest, remote: Any, device: Any) -> list[Any]:
    """Return arrays on the board: the passed values, then random ones."""
    given: list[Any] = []
    if request.inputs:
        with np.load(request.inputs) as file:
            given = [file[name] for name in file.files]
    fill = remote.get_function(_FILL)
    arrays = [array(v.astype(dtype), device) for v, (_, dtype) in zip(given, request.arguments, strict=False)]
    for shape, dtype in request.arguments[len(arrays) :]:
        arrays.append(empty(tuple(shape), dtype, device))
        fill(arrays[-1])
    return arrays


def _timers(requests: Sequence[RunRequest], remote: Any) -> list[Callable[[], Sequence[float]] | None]:
    """Return a timer for each library; None for one whose results differ from the first's."""
    timers: list[Callable[[], Sequence[float]] | None] = []
    expected: list[Any] = []
    first = requests[0]
    arrays = arguments_there(first, remote, remote.device(first.device))
    for number, request in enumerate(requests):
        remote.upload(request.library)
        module, device = remote.load_module(Path(request.library).name), remote.device(request.device)
        same = number == 0 or (request.arguments, request.outputs) == (first.arguments, first.outputs)
        mine = arrays if same else arguments_there(request, remote, device)
        results = _results(module[request.function or module.entry_name], mine, request.outputs) if same else []
        expected = expected or results
        if same and difference(results, expected, list(request.tolerance)) is not None:
            timers.append(None)
            continue
        evaluate = module.time_evaluator(
            request.function or module.entry_name, device, request.number, request.repeat, request.min_repeat_ms,
            FLUSH if request.flush else "",
        )  # fmt: skip
        timers.append(partial(_seconds, evaluate, mine))
    return timers


def _seconds(evaluate: Any, arrays: Sequence[Any]) -> Sequence[float]:
    return [float(c) for c in evaluate(*arrays).results]


def _results(function: Any, arrays: Sequence[Any], outputs: Sequence[int]) -> list[Any]:
    """Return the results of a function, whose outputs were filled with a marker before."""
    for i in outputs:
        fill_strange(arrays[i])
    function(*arrays)
    return [arrays[i].numpy() for i in outputs]


def answer(outcome: Outcome) -> Outcome:
    """Return the outcome of a run, whose value is its seconds, with a ``RunAnswer``."""
    if outcome.status != "done":
        return outcome
    return Outcome("done", RunAnswer(tuple(outcome.value)), seconds=outcome.seconds)
