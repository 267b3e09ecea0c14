"""Tuners find what is fast, measure nothing twice, and learn from the past; speeds are made up here."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.autotvm.templates import sample_task

from tilewright import autotvm
from tilewright.tuning.measure import Builder, MeasureInput, MeasureResult, Runner
from tilewright.tuning.tuner import GATuner, GridSearchTuner, RandomTuner, XGBTuner
from tilewright.tuning.tuner.features import TaskFeatures, exact_features
from tilewright.tuning.tuner.metric import average_recall, cover_curve, max_curve, recall_curve
from tilewright.tuning.tuner.model_based_tuner import submodular_pick
from tilewright.tuning.tuner.points import knob2point, knobs_to_points, point2knob, points_to_knobs

BEST = 0.001  # seconds


def made_up_seconds(config: autotvm.ConfigEntity) -> float:
    """Fastest for tiles of 8 by 16, not unrolled."""
    y, x = config["tile_y"].size[-1], config["tile_x"].size[-1]
    return BEST * (1 + abs(np.log2(y / 8)) + abs(np.log2(x / 16)) + config["unroll"].val)


class MadeUp(Runner):
    """Says ``made_up_seconds``."""

    def get_build_kwargs(self) -> dict[str, Any]:
        return {}

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[MeasureResult]:
        return [MeasureResult((made_up_seconds(i.config),), 0, 0.1, time.time()) for i in measure_inputs]


class NoBuilder(Builder):
    """Builds nothing."""

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[Any]:
        return [None] * len(measure_inputs)


def option(n_parallel: int = 8) -> dict[str, Any]:
    return autotvm.measure_option(NoBuilder(n_parallel=n_parallel), MadeUp())


TUNERS = [RandomTuner, GridSearchTuner, lambda t: GATuner(t, pop_size=10), lambda t: XGBTuner(t, plan_size=16)]


@pytest.mark.parametrize("make", TUNERS, ids=["random", "grid", "genetic", "xgb"])
def test_every_configuration_is_measured_once(make: Any) -> None:
    measured: list[int] = []
    tuner = make(sample_task())
    tuner.tune(1000, option(), callbacks=[lambda _, inputs, __: measured.extend(i.config.index for i in inputs)])
    assert sorted(measured) == list(range(98))
    assert not tuner.has_next()
    assert tuner.best_config["tile_y"].size == [-1, 8]
    assert tuner.best_config["tile_x"].size == [-1, 16]
    assert tuner.best_flops == pytest.approx(2 * 64**3 / BEST, rel=0.6)  # the constant that is added counts


@pytest.mark.parametrize("feature_type", ["itervar", "knob", "curve"])
def test_the_model_finds_the_best_in_fewer_trials_than_there_are(feature_type: str) -> None:
    tuner = XGBTuner(sample_task(), plan_size=16, feature_type=feature_type)
    np.random.seed(0)
    tuner.tune(60, option())
    assert tuner.best_iter < 60
    assert tuner.best_config is not None
    assert made_up_seconds(tuner.best_config) <= 2 * BEST


def test_tuning_stops_early_where_nothing_gets_better() -> None:
    tuner = GridSearchTuner(sample_task(), range_idx=(0, 97))
    seen: list[int] = []
    tuner.tune(98, option(1), early_stopping=5, callbacks=[lambda t, inputs, _: seen.append(len(inputs))])
    assert len(seen) == tuner.best_iter + 5


def test_history_plans_the_first_trials() -> None:
    task = sample_task(32)
    records = []
    assert task.config_space is not None
    for index in range(len(task.config_space)):
        inp = MeasureInput(task.target, task, task.config_space.get(index))  # type: ignore[arg-type]
        records.append((inp, MeasureResult((made_up_seconds(inp.config),), 0, 0.1, 0.0)))
    tuner = XGBTuner(sample_task(64), plan_size=16)
    tuner.load_history(records, min_seed_records=99)
    assert tuner.cost_model.base_model is None  # type: ignore[attr-defined]
    assert not tuner.trials
    tuner.load_history(records, min_seed_records=50)
    first = [made_up_seconds(c) for c in tuner.next_batch(8)]
    everything = [made_up_seconds(tuner.space.get(i)) for i in range(98)]
    assert np.mean(first) < np.quantile(everything, 0.25)


def test_records_of_all_trials_are_written_and_read_back() -> None:
    file = io.StringIO()
    tuner = RandomTuner(sample_task())
    tuner.tune(9, option(), callbacks=[autotvm.callback.log_to_file(file)])
    lines = file.getvalue().splitlines()
    assert len(lines) == 9
    assert all(json.loads(line)["input"][1] == "tests/matmul" for line in lines)
    with autotvm.apply_history_best(io.StringIO(file.getvalue())) as best:
        chosen = best.query(tuner.task.target, tuner.task.workload)
    assert repr(chosen["tile_x"]) == repr(tuner.best_config["tile_x"])  # type: ignore[index]


def test_what_was_not_tuned_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    file = io.StringIO()
    tuner = RandomTuner(sample_task())
    tuner.tune(2, option(), callbacks=[autotvm.callback.log_to_file(file)])
    with autotvm.apply_history_best(io.StringIO(file.getvalue())) as best:
        for workload in (tuner.task.workload, ("tests/matmul", 7, ""), ("tests/matmul", 7, ""), ("other", 1)):
            best.query(tuner.task.target, workload)
    said = [r.getMessage() for r in caplog.records if "no record" in r.getMessage()]
    assert len(said) == 1
    assert "the first 7, '' (tests/matmul)" in said[0]


def test_the_progress_bar_tells_of_speed_and_trials(capsys: pytest.CaptureFixture[str]) -> None:
    bar = autotvm.callback.progress_bar(10, prefix="[Task  1/ 1]")
    RandomTuner(sample_task()).tune(10, option(2), callbacks=[bar])
    del bar
    said = capsys.readouterr().out
    assert "[Task  1/ 1] Current/Best:" in said
    assert "(10/10)" in said
    assert said.endswith(" s\n")


def test_features_by_sums_are_those_of_the_loops() -> None:
    task = sample_task()
    assert task.config_space is not None
    features = TaskFeatures(task, "itervar")
    points = np.random.default_rng(0).choice(98, 20, replace=False)
    found = features(points)
    assert features.lowered < 98 / 2
    knobs = found.shape[1] - len(exact_features(task, task.config_space.get(0), "itervar") or [])
    close = [
        np.isclose(row[knobs:], exact_features(task, task.config_space.get(int(p)), "itervar"), atol=0.2).mean()
        for p, row in zip(points, found, strict=True)
    ]
    assert np.mean(close) > 0.95


def test_ten_thousand_configurations_have_features_in_seconds() -> None:
    began = time.process_time()
    features = TaskFeatures(sample_task(), "itervar")
    assert len(features(np.arange(10_000) % 98)) == 10_000
    assert time.process_time() - began < 5


def test_points_are_numbers_of_choices() -> None:
    dims = [3, 1, 5]
    points = np.arange(15)
    knobs = points_to_knobs(points, dims)
    assert [list(row) for row in knobs] == [point2knob(p, dims) for p in range(15)]
    assert [knob2point(row, dims) for row in knobs] == list(range(15))
    np.testing.assert_array_equal(knobs_to_points(knobs, dims), points)
    large = [2**20] * 4
    assert knobs_to_points(points_to_knobs(np.array([2**70 + 5], object), large), large)[0] == 2**70 + 5


def test_curves_of_rankings() -> None:
    ranks = np.array([1, 0, 3, 2])
    np.testing.assert_allclose(recall_curve(ranks), [0, 1, 2 / 3, 1])
    np.testing.assert_allclose(recall_curve(ranks, 2), [0.5, 1, 1, 1])
    np.testing.assert_allclose(cover_curve(ranks), [0, 1, 2 / 3, 1])
    np.testing.assert_allclose(max_curve(np.array([1, 3, 2])), [1, 3, 3])
    labels = np.array([0.1, 0.9, 0.5])
    assert average_recall(labels, labels, 3) == 1.0
    assert average_recall(-labels, labels, 1) == 0.0


def test_picks_differ_in_their_choices() -> None:
    knobs = np.array([[0, 0], [0, 0], [0, 1], [1, 1]])
    assert submodular_pick(np.zeros(4), knobs, 2) == [0, 3]
    assert submodular_pick(np.array([0, 0, 9, 0]), knobs, 1) == [2]
