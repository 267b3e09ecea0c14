"""Candidates run on boards that a tracker gives; here a server of this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.autotvm.templates import sample_task

from tilewright import autotvm, rpc
from tilewright.autotvm.tuner import GridSearchTuner
from tilewright.ir.errors import TilewrightError
from tilewright.rpc.tracker import Tracker


@pytest.fixture
def tracker() -> Iterator[Tracker]:
    """A tracker that knows one board."""
    running = Tracker(silent=True)
    board = rpc.Server("127.0.0.1", key="board", tracker_addr=("127.0.0.1", running.port), silent=True)
    end = time.monotonic() + 10
    client = rpc.connect_tracker("127.0.0.1", running.port)
    while not client.summary()["server_info"] and time.monotonic() < end:
        time.sleep(0.05)
    yield running
    board.terminate()
    running.terminate()


def test_candidates_are_timed_on_a_board(tracker: Tracker) -> None:
    runner = autotvm.RPCRunner(
        "board", "127.0.0.1", tracker.port, number=2, repeat=2, cooldown_interval=0, enable_cpu_cache_flush=True
    )
    assert runner.n_parallel == 1
    results: list[autotvm.MeasureResult] = []
    tuner = GridSearchTuner(sample_task(16, "die"), range_idx=(0, 3))
    option = autotvm.measure_option(autotvm.LocalBuilder(timeout=20), runner)
    tuner.tune(4, option, callbacks=[lambda _, __, found: results.extend(found)])
    runner.close()
    assert [r.error_no for r in results] == [0, 2, 0, 2]  # what dies when it is built is not run
    assert all(len(r.costs) == 2 and min(r.costs) > 0 for r in results if r.error_no == 0)


def test_a_kind_of_board_that_nobody_knows_is_said(tracker: Tracker) -> None:
    with pytest.raises(TilewrightError, match="no board of the kind 'other'"):
        autotvm.RPCRunner("other", "127.0.0.1", tracker.port)
