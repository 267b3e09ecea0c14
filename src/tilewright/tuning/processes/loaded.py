"""Runs on what a module loader opens, such as boards attached to this machine, with the requests of local runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from tilewright.tuning.processes.boards import FLUSH, answer, arguments_there
from tilewright.tuning.processes.local import RunRequest
from tilewright.tuning.processes.pool import Outcome, Pool
from tilewright.tuning.processes.process import fork_worker

ModuleLoader = Callable[[Any, Any], AbstractContextManager[tuple[Any, Any]]]


class LoadedRuns:
    """Runs libraries in order, each in a session of its own that ``loader`` opens, in a process of its own.

    Parameters
    ----------
    loader : called with None (this machine) and an object whose ``filename`` is what was built; a context of a session
        and its module
    timeout : seconds that a run may take
    cooldown : seconds to wait after each run
    waiting : seconds for a program to be built and to start, beside the run

    Results are not compared.
    """

    def __init__(self, loader: ModuleLoader, timeout: float, cooldown: float = 0.0, waiting: float = 60.0) -> None:
        self._loader, self._cooldown = loader, cooldown
        self._pool = Pool(lambda: fork_worker(self._work), 1, timeout + waiting)

    def run(self, requests: Sequence[RunRequest], each: Callable[[int, Outcome], None] | None = None) -> list[Outcome]:
        """Return the outcome of each request, as ``LocalRuns.run`` does."""
        return [answer(outcome) for outcome in self._pool.map([asdict(r) for r in requests], each)]

    def _work(self, message: dict[str, Any]) -> list[float]:
        """Run one library; runs in the process of the pool."""
        request = RunRequest(**message)
        with self._loader(None, SimpleNamespace(filename=request.library)) as (remote, module):
            device = remote.device(request.device)
            evaluate = module.time_evaluator(
                request.function or module.entry_name, device, request.number, request.repeat, request.min_repeat_ms,
                FLUSH if request.flush else "",
            )  # fmt: skip
            costs = [float(c) for c in evaluate(*arguments_there(request, remote, device)).results]
        time.sleep(self._cooldown)
        return costs

    def close(self) -> None:
        """End the process."""
        self._pool.close()
