"""The search: what sketches there are, that evolution finds what a model likes, that tuning ends in a right program."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.auto_scheduler.workloads import matmul_as, padded_conv_as, softmax_as, sum_all_as

import tilewright as tvm
from tilewright import auto_scheduler, te
from tilewright.auto_scheduler import feature
from tilewright.auto_scheduler.cost_model import PythonBasedModel
from tilewright.auto_scheduler.loop_nest import VECTORIZE
from tilewright.auto_scheduler.measure import MeasureErrorNo, ProgramMeasurer
from tilewright.auto_scheduler.register_tiles import vector_lanes
from tilewright.auto_scheduler.search_task import SearchTask
from tilewright.ir.errors import TilewrightError


def task_of(function: Any, *args: int, cores: int = 4) -> SearchTask:
    hardware = auto_scheduler.HardwareParams(num_cores=cores, target="llvm")
    return SearchTask(func=function, args=args, target="llvm", hardware_params=hardware)


@pytest.mark.parametrize(
    ("function", "args", "count"),
    [
        (matmul_as, (64, 64, 64), 3),  # tiled; with a cache at the first or at the second level
        (matmul_as, (8, 8, 512), 5),  # and two ways to make part of the reduction an axis
        (padded_conv_as, (16, 28, 32), 3),
        (softmax_as, (1, 1024), 9),
        (sum_all_as, (128,), 3),
    ],
)
def test_sketches_are_those_of_the_rules(function: Any, args: tuple[int, ...], count: int) -> None:
    policy = auto_scheduler.SketchPolicy(task_of(function, *args), verbose=0)
    assert len(policy.generate_sketches()) == count


def test_a_users_rule_comes_first() -> None:
    def meets(policy: Any, state: Any, stage: int) -> int:
        return auto_scheduler.PreloadCustomSketchRule.APPLY_AND_SKIP_REST

    def apply(policy: Any, state: Any, stage: int) -> list[list[Any]]:
        edited = auto_scheduler.loop_state.State(state, policy.search_task.compute_dag)
        c = edited.stage_ops[2]
        edited.split(c, edited[c].iters[0], [8, 2])
        return [[edited.state_object, -1]]

    rule = auto_scheduler.PreloadCustomSketchRule(meets, apply)
    policy = auto_scheduler.SketchPolicy(task_of(matmul_as, 64, 64, 64), verbose=0, init_search_callbacks=[rule])
    (sketch,) = policy.generate_sketches()
    assert [it.range.extent for it in sketch.stages[2].iters] == [4, 8, 2, 64, 64]


def test_a_thousand_programs_are_drawn_and_ranked_in_seconds() -> None:
    """In processor time of one core; a fifth of them here."""
    policy = auto_scheduler.SketchPolicy(task_of(padded_conv_as, 16, 28, 32), seed=1, verbose=0)
    policy.sketches()
    began = time.process_time()
    states = [s for s in (policy.random_state() for _ in range(200)) if s is not None]
    rows = feature.get_per_store_features_from_states(states, policy.search_task)
    assert time.process_time() - began < 20 / 5
    assert len(rows) > 150 and all(r.any() for r in rows)


class LikesSixteen(PythonBasedModel):
    """Scores programs by the length of their vectors."""

    def predict(self, task: Any, states: Sequence[Any]) -> list[float]:
        return [float("vectorize" in str(s) and "(0,16)" in str(s).split("vectorize")[-1]) for s in states]


def test_evolution_finds_what_the_model_likes() -> None:
    policy = auto_scheduler.SketchPolicy(task_of(matmul_as, 64, 64, 64), LikesSixteen(), seed=1, verbose=0)
    disliked = [s for s in policy.sample_initial_population() if not LikesSixteen().predict(None, [s])[0]]
    best = policy.evolutionary_search(disliked, 10)
    assert LikesSixteen().predict(None, best[:1]) == [1.0]


def test_features_say_what_the_loops_do() -> None:
    """parallel i.0 < 32, parallel j.0 < 64, unroll k < 512, vectorize j.1 < 8, i.1 < 16: C[i, j] += A[i, k]*B[k, j]."""
    task = task_of(matmul_as, 512, 512, 512)
    s = task.compute_dag.get_init_state()
    c = s.stage_ops[2]
    i, j, k = s[c].iters
    io, ii = s.split(c, i, [16])
    jo, ji = s.split(c, j, [8])
    s.reorder(c, [io, jo, k, ji, ii])
    s.vectorize(c, ji)
    s.parallel(c, io)
    s.parallel(c, jo)
    s.unroll(c, k)
    names = feature.get_per_store_feature_names()
    (rows,) = feature.get_per_store_features_from_states([s], task)
    assert len(names) == 164 and rows.shape == (1, 164)
    row = dict(zip(names, rows[0], strict=True))
    assert row["float_mul"] == pytest.approx(math.log2(512**3 + 1))
    assert row["parallel_prod"] == pytest.approx(math.log2(32 * 64 + 1))
    assert row["vec_len"] == pytest.approx(math.log2(8 + 1))
    assert row["B0.acc_type.kReadWrite"] == 1  # C is touched most: its inner loop jumps from row to row
    assert row["B0.stride"] == pytest.approx(math.log2(512 + 1))
    assert row["B0.reuse_dis_iter"] == pytest.approx(math.log2(8 * 16 + 1))
    assert row["B0.reuse_dis_bytes"] == pytest.approx(math.log2((8 * 16 + 8 + 16) * 4 + 1))
    assert row["B0.reuse_ct"] == pytest.approx(math.log2(512 + 1))


def test_the_learned_model_ranks_programs_by_their_speed() -> None:
    """Of programs that differ, those with the larger made-up speed score higher."""
    task = task_of(matmul_as, 128, 128, 128)
    policy = auto_scheduler.SketchPolicy(task, params={"sample_init_min_population": 80}, seed=2, verbose=0)
    states = policy.sample_initial_population()
    speeds = np.array([1.0 + s.stages[2].iters[-1].extent for s in states])
    inputs = [auto_scheduler.MeasureInput(task, s) for s in states]
    results = [auto_scheduler.MeasureResult([1e-3 / v], 0, "", 0.1, 0) for v in speeds]
    model = auto_scheduler.XGBModel(num_warmup_sample=-1)
    model.update(inputs[:60], results[:60])
    scores = np.array(model.predict(task, states[60:80]))
    assert np.corrcoef(scores, speeds[60:80])[0, 1] > 0.5


def test_programs_whose_code_is_long_are_not_drawn() -> None:
    task = task_of(matmul_as, 60, 64, 36, cores=2)
    policy = auto_scheduler.SketchPolicy(task, params={"sample_init_min_population": 64}, seed=1, verbose=0)
    drawn = policy.sample_initial_population()
    assert any(stage.auto_unroll_max_step == 512 for state in drawn for stage in state.stages)
    for state in drawn:
        for stage in state.stages:
            written, lanes = 1, 1
            for it in reversed(stage.iters):
                if it.annotation == VECTORIZE:
                    lanes *= it.extent
                elif (written := written * it.extent) > stage.auto_unroll_max_step:
                    break
                else:
                    assert written * lanes <= 1024 * vector_lanes(task)


def test_tuning_ends_in_a_fast_and_right_program(tmp_path: Path) -> None:
    log = str(tmp_path / "records.json")
    task = task_of(matmul_as, 60, 64, 36, cores=2)
    runner = auto_scheduler.LocalRunner(number=1, min_repeat_ms=0)
    options = auto_scheduler.TuningOptions(
        12, num_measures_per_round=6, verbose=0, builder=auto_scheduler.LocalBuilder(timeout=60), runner=runner,
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )  # fmt: skip
    params = {"evolutionary_search_population": 32}
    task.tune(options, auto_scheduler.SketchPolicy(task, auto_scheduler.XGBModel(), params, seed=1, verbose=0))
    pairs = list(auto_scheduler.load_records(log))
    assert len(pairs) == 12
    assert len({inp.state.transform_steps for inp, _ in pairs}) == 12
    assert all(res.error_no == MeasureErrorNo.NO_ERROR for _, res in pairs), [
        (r.error_no, r.error_msg[-300:]) for _, r in pairs if r.error_no
    ]
    schedule, args = task.apply_best(log)
    a, b = np.random.default_rng(0).random((60, 36), np.float32), np.random.default_rng(1).random((36, 64), np.float32)
    out = tvm.nd.array(np.zeros((60, 64), np.float32))
    tvm.build(schedule, args, "llvm")(tvm.nd.array(a), tvm.nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-5)
    again = auto_scheduler.SketchPolicy(task, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log)])
    assert set(again.measured) == {inp.state.transform_steps for inp, _ in pairs}


def test_what_cannot_be_built_is_told() -> None:
    """A vector loop that holds another stage has no code."""
    task = task_of(softmax_as, 4, 8)
    state = task.compute_dag.get_init_state()
    last = len(state.stages) - 1
    state.vectorize(last, state.stages[last].iters[0])
    state.compute_at(2, last, state.stages[last].iters[0])
    measurer = ProgramMeasurer(auto_scheduler.LocalBuilder(), auto_scheduler.LocalRunner(), None, 0)
    (result,) = measurer.measure(task, None, [auto_scheduler.MeasureInput(task, state)])
    assert result.error_no in (MeasureErrorNo.INSTANTIATION_ERROR, MeasureErrorNo.COMPILE_HOST)
    assert "Error" in result.error_msg


def test_programs_that_are_measured_leave_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    task = task_of(softmax_as, 4, 8)
    inputs = [auto_scheduler.MeasureInput(task, task.compute_dag.init_state)] * 2
    built = auto_scheduler.LocalBuilder(n_parallel=1).build(inputs, verbose=0)
    assert all(Path(b.filename).exists() for b in built)
    results = auto_scheduler.LocalRunner(number=1, min_repeat_ms=0).run(inputs, built, verbose=0)
    assert [r.error_no for r in results] == [0, 0]
    assert list(tmp_path.glob("auto_scheduler-*")) == []


def test_what_cannot_link_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="cross_compiler"):
        auto_scheduler.LocalBuilder(build_func="ndk")


def test_inputs_that_cannot_be_random_have_values() -> None:
    @auto_scheduler.register_workload("gather_as", override=True)
    def gather() -> list[te.Tensor]:
        x = te.placeholder((10,), name="x")
        index = te.placeholder((1,), "int32", name="index")
        return [x, index, te.compute((1,), lambda i: x[index[i]], name="taken")]

    value = tvm.nd.array(np.array([5], np.int32))
    task = SearchTask(
        func="gather_as", args=(), target="llvm", task_inputs={"index": value}, task_inputs_overwrite=True
    )
    runner = auto_scheduler.LocalRunner(number=1, min_repeat_ms=0)
    measurer = ProgramMeasurer(auto_scheduler.LocalBuilder(), runner, None, 0)
    (result,) = measurer.measure(task, None, [auto_scheduler.MeasureInput(task, task.compute_dag.init_state)])
    assert result.error_no == MeasureErrorNo.NO_ERROR


def test_computations_that_cannot_be_scheduled_are_refused() -> None:
    a = te.placeholder((10, 10), name="A")
    r, q = te.reduce_axis((0, 2), name="r"), te.reduce_axis((0, 2), name="r")
    b = te.compute((10,), lambda i: te.sum(a[i, r + q], axis=[r, q]), name="B")
    with pytest.raises(TilewrightError, match="two axes of B are called r"):
        auto_scheduler.ComputeDAG([a, b])


def test_programs_are_measured_on_devices_of_a_tracker(tmp_path: Path) -> None:
    log = tmp_path / "records.json"
    context = auto_scheduler.LocalRPCMeasureContext(min_repeat_ms=1)
    try:
        options = auto_scheduler.TuningOptions(
            num_measure_trials=2, runner=context.runner, verbose=0,
            measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
        )  # fmt: skip
        task_of(matmul_as, 16, 16, 16).tune(options)
    finally:
        context.close()
    results = [result for _, result in auto_scheduler.RecordReader(str(log))]
    assert [result.error_no for result in results] == [0, 0]
    assert all(cost.value > 0 for result in results for cost in result.costs)
