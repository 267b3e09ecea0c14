"""Runs on boards from a tracker of remote devices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tilewright import rpc
from tilewright.autotvm.measurement import MeasureInput, MeasureResult
from tilewright.ir.errors import TilewrightError
from tilewright.tuning.measure.measure_methods import BuildResult, LibraryRunner
from tilewright.tuning.measure.programs import Timed
from tilewright.tuning.processes.boards import BoardRuns


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
        self.host = host or os.environ.get("TVM_TRACKER_HOST", "127.0.0.1")
        self.port = port or int(os.environ.get("TVM_TRACKER_PORT", "9190"))
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
