"""The simulation of a cluster: what it says can be computed by hand."""

from __future__ import annotations

import pytest
from benchmarks.cluster import Costs, Simulation


def speed(workers: int, threads: int, tuner: float = 1e-6, scheduler: float = 1e-6) -> float:
    costs = Costs([0.3], [0.1], {"64": tuner / 2}, tuner / 2, scheduler)
    return Simulation(costs, workers, threads, 100 * workers).run()


def test_one_thread_builds_and_runs_in_turn() -> None:
    assert speed(1, 1) == pytest.approx(1 / 0.4, rel=0.02)


def test_two_threads_build_side_by_side_and_run_alone() -> None:
    assert speed(1, 2) == pytest.approx(2 / (0.3 + 2 * 0.1), rel=0.02)


def test_workers_add_up_until_the_tuner_or_the_scheduler_is_busy() -> None:
    assert speed(20, 1) == pytest.approx(20 / 0.4, rel=0.03)
    assert speed(20, 1, tuner=0.05) == pytest.approx(1 / 0.05, rel=0.03)
    assert speed(20, 1, scheduler=0.1) == pytest.approx(1 / 0.1, rel=0.03)
