"""Real measurements: what fails is told, wrong answers are no candidates, and nothing harms the tuner."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.autotvm.templates import sample_task

from tilewright import autotvm
from tilewright.tuning.measure import MeasureErrorNo, MeasureResult
from tilewright.tuning.tuner import GridSearchTuner, RandomTuner
from tilewright.tuning.tuner.failures import NothingWorks

UNROLLED = {"refuse": 1, "raise": 2, "die": 2, "wrong": 5, "hang": 6}


def option(build_seconds: float = 20, **runner: Any) -> dict[str, Any]:
    return autotvm.measure_option(
        autotvm.LocalBuilder(timeout=build_seconds), autotvm.LocalRunner(number=1, repeat=2, timeout=20, **runner)
    )


@pytest.mark.parametrize("trouble", UNROLLED)
def test_configurations_fail_alone_and_say_why(trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    results: list[MeasureResult] = []
    tuner = GridSearchTuner(sample_task(8, trouble), range_idx=(0, 3))
    with caplog.at_level(logging.INFO, "autotvm"):
        tuner.tune(5, option(5 if trouble == "hang" else 20), callbacks=[lambda _, __, r: results.extend(r)])
    numbers = [int(r.error_no) for r in results]
    assert numbers == [0, 0, UNROLLED[trouble], 0, UNROLLED[trouble]]  # the untuned choice comes first
    assert all(r.costs[0] > 0 for r in results if r.error_no == 0)
    assert tuner.failures.failed == 2
    assert len(tuner.failures.counts) == 1
    story = next(iter(tuner.failures.first.values()))
    assert "tests/matmul" in story
    assert "('unroll', 1)" in story
    assert "story" not in story
    if trouble == "raise":
        assert "misbehave" in story  # the traceback of the other process
    if trouble == "wrong":
        assert "results are wrong" in story
        assert "for (y.outer" in story or "for (k" in story  # the lowered program


def test_a_task_of_which_nothing_works_stops_with_the_reason() -> None:
    assert MeasureErrorNo.INSTANTIATION_ERROR == 1
    task = sample_task(64, "refuse")
    measured: list[int] = []

    class Unrolled(RandomTuner):
        """All that are refused."""

        def _next(self) -> int:
            super()._next()
            return 2 * self.counter - 1

    tuner = Unrolled(task)
    with pytest.raises(NothingWorks, match=r"(?s)first 32 trials failed.*unrolling is refused"):
        tuner.tune(40, option(), callbacks=[lambda _, inputs, __: measured.extend(i.config.index for i in inputs)])
    assert len(measured) == 33  # with the untuned choice


def test_the_untuned_choice_is_measured_and_flushing_works() -> None:
    tuner = RandomTuner(sample_task(32))
    tuner.tune(3, option(enable_cpu_cache_flush=True))
    assert tuner.best_flops > 0
    assert tuner.own_seconds < tuner.all_seconds
