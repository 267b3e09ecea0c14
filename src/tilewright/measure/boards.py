"""Runs on boards that a tracker of remote devices gives: what is asked and answered is as of runs on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.measure.local import RunAnswer, RunRequest
from tilewright.measure.pool import Outcome, Pool
from tilewright.measure.process import fork_worker
from tilewright.rpc.client import connect_tracker
from tilewright.runtime.ndarray import array, empty

_FLUSH = "cache_flush_cpu_non_first_arg"
_FILL = "tvm.contrib.random.random_fill"


class BoardRuns:
    """Libraries run on boards, each on one; a session is had by a process of its own, so that what hangs is ended.

    Parameters
    ----------
    key, host, port, priority : of boards, where the tracker is, and of requests
    timeout : seconds that a session may take
    boards : how many are used at once
    waiting : seconds for a board to be free and a library to arrive, beside the session
    cooldown : seconds to wait after each run

    Of a ``RunRequest`` results are not compared, and no reference is run.
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

    def session(self) -> Any:
        """A session with a board."""
        tracker = connect_tracker(self.host, self.port)
        try:
            return tracker.request(self.key, priority=self.priority, session_timeout=self.timeout)
        finally:
            tracker.close()

    def run(self, requests: Sequence[RunRequest]) -> list[Outcome]:
        """The outcome of each; the value of one that is done is a ``RunAnswer``."""
        outcomes = self._pool.map([asdict(r) for r in requests])
        return [_answer(outcome) for outcome in outcomes]

    def _work(self, message: dict[str, Any]) -> list[float]:
        """In a process of the pool: one library on one board."""
        request, remote = RunRequest(**message), self.session()
        name = Path(request.library).name
        remote.upload(request.library)
        try:
            module, device = remote.load_module(name), remote.device(request.device)
            evaluate = module.time_evaluator(
                request.function or module.entry_name, device, request.number, request.repeat, request.min_repeat_ms,
                _FLUSH if request.flush else "",
            )  # fmt: skip
            costs = [float(c) for c in evaluate(*_arguments(request, remote, device)).results]
        finally:
            remote.remove(name)
        time.sleep(self.cooldown)
        return costs

    def close(self) -> None:
        """End the processes."""
        self._pool.close()


def _arguments(request: RunRequest, remote: Any, device: Any) -> list[Any]:
    """Arrays on the board: the values that are given, then random ones."""
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


def _answer(outcome: Outcome) -> Outcome:
    if outcome.status != "done":
        return outcome
    return Outcome("done", RunAnswer(tuple(outcome.value)), seconds=outcome.seconds)
