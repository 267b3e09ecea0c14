"""Several worker processes that answer requests, each within a time; who fails to is replaced."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tilewright.tuning.processes.process import Worker

Status = Literal["done", "error", "crash", "timeout"]
_RECYCLE = 500  # answers of a process before it is replaced: memory that candidates lose is not lost for long


@dataclass(frozen=True)
class Outcome:
    """The outcome of a request.

    ``status``: "done", and ``value`` is the answer; "error": the worker raised ``kind`` (name of the exception's class)
    with the message ``error``; "crash": the process died, and ``error`` says how; "timeout". ``seconds``: what it took.
    """

    status: Status
    value: Any = None
    error: str = ""
    kind: str = ""
    traceback: str = ""
    seconds: float = 0.0


class Pool:
    """Pool of ``size`` processes, started on demand.

    Parameters
    ----------
    start : starts one of them
    size : how many work at once
    timeout : seconds that a request may take; a process that takes longer is killed
    """

    def __init__(self, start: Callable[[], Worker], size: int, timeout: float) -> None:
        self.size, self.timeout = max(1, size), timeout
        self._start = start
        self._idle: list[Worker] = []

    def map(self, requests: Sequence[Any], each: Callable[[int, Outcome], None] | None = None) -> list[Outcome]:
        """Return the answers to all requests, in order; ``each`` is called with every one as it arrives.

        A process that dies or takes too long costs the one request that it worked on.
        """
        outcomes: list[Outcome | None] = [None] * len(requests)
        waiting = list(reversed(range(len(requests))))
        busy: dict[Worker, tuple[int, float]] = {}

        def settle(worker: Worker, outcome: Outcome) -> None:
            index, began = busy.pop(worker)
            outcomes[index] = Outcome(**{**vars(outcome), "seconds": time.monotonic() - began})
            if outcome.status in ("crash", "timeout") or worker.answered >= _RECYCLE:
                worker.close()
            else:
                self._idle.append(worker)
            if each is not None:
                each(index, outcomes[index])  # type: ignore[arg-type]

        try:
            while waiting or busy:
                while waiting and len(busy) < self.size:
                    index = waiting.pop()
                    busy[self._ask(requests[index])] = index, time.monotonic()
                for worker in self._ready(busy):
                    outcome = self._outcome(worker, busy[worker][1])
                    if outcome is not None:
                        settle(worker, outcome)
        except BaseException:
            for worker in busy:
                worker.close()
            raise
        return [outcome for outcome in outcomes if outcome is not None]

    def _ask(self, request: Any) -> Worker:
        """Send a request to an idle process, or to a new one if that is gone."""
        while self._idle:
            worker = self._idle.pop()
            try:
                worker.send(request)
                return worker
            except OSError:
                worker.close()
        worker = self._start()
        worker.send(request)
        return worker

    def _ready(self, busy: dict[Worker, tuple[int, float]]) -> list[Worker]:
        """Return the processes with output, or past their time."""
        now = time.monotonic()
        left = min(began for _, began in busy.values()) + self.timeout - now
        readable = select.select([w.reader for w in busy], [], [], max(0.0, left))[0]
        now = time.monotonic()
        return [w for w, (_, began) in busy.items() if w.reader in readable or now - began >= self.timeout]

    def _outcome(self, worker: Worker, began: float) -> Outcome | None:
        """Return a process' outcome; None while its answer is incomplete."""
        if select.select([worker.reader], [], [], 0)[0]:
            try:
                answer = worker.receive()
            except (EOFError, OSError):
                return Outcome("crash", error=f"the process {worker.fate()}")
            if answer is None:
                return None
            if "value" in answer:
                return Outcome("done", answer["value"])
            return Outcome("error", error=answer["error"], kind=answer["kind"], traceback=answer["traceback"])
        if time.monotonic() - began >= self.timeout:
            return Outcome("timeout", error=f"took longer than {self.timeout:g} s")
        return None

    def close(self) -> None:
        """End the processes; new ones start when the pool is used again."""
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        self.close()
