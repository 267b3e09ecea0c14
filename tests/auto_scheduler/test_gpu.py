"""The auto-scheduler on GPUs: sketches, limits of the hardware, programs without races, and a search on a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.auto_scheduler.workloads import (
    WORKLOADS,
    matmul_as,
    matmul_relu_as,
    padded_conv_as,
    softmax_as,
    sum_all_as,
)
from tests.gpu import GPU, GPU_TARGET, need_gpu

import tilewright as tvm
from tilewright import auto_scheduler
from tilewright.auto_scheduler.gpu_population import fits_hardware
from tilewright.auto_scheduler.loop_bounds import LoopBounds
from tilewright.auto_scheduler.loop_nest import ITER, THREAD_X, VTHREAD, StateObject
from tilewright.auto_scheduler.measure import MeasureErrorNo
from tilewright.auto_scheduler.population import rebuilt
from tilewright.auto_scheduler.search_task import SearchTask
from tilewright.auto_scheduler.transform_step import SplitStep
from tilewright.testing.block_emulator import run_schedule


def policy_of(function: Any, args: tuple[int, ...], target: str = "cuda", seed: int = 1) -> auto_scheduler.SketchPolicy:
    return auto_scheduler.SketchPolicy(SearchTask(func=function, args=args, target=target), seed=seed, verbose=0)


def drawn(policy: auto_scheduler.SketchPolicy, count: int) -> list[StateObject]:
    found: dict[Any, StateObject] = {}
    for _ in range(count * 20):
        state = policy.random_state()
        if state is not None and fits_hardware(policy.search_task, state):
            found[state.transform_steps] = state
        if len(found) == count:
            break
    return list(found.values())


@pytest.mark.parametrize(
    ("function", "args", "count"),
    [
        (matmul_as, (512, 512, 512), 1),  # tiled
        (matmul_as, (8, 8, 1024), 2),  # or threads that share the reduction
        (matmul_relu_as, (64, 64, 64), 1),
        (padded_conv_as, (16, 28, 32), 1),
        (softmax_as, (2, 1024), 4),  # two reductions, each with or without threads that share it
        (sum_all_as, (4096,), 2),
    ],
)
def test_sketches_are_those_of_the_rules(function: Any, args: tuple[int, ...], count: int) -> None:
    assert len(policy_of(function, args).generate_sketches()) == count


def test_a_tiled_sketch_fetches_both_matrices_and_keeps_its_sums() -> None:
    (sketch,) = policy_of(matmul_as, (512, 512, 512)).generate_sketches()
    where = {stage.op.name: stage.compute_at for stage in sketch.stages}
    assert list(where) == ["A", "A.shared", "B", "B.shared", "C.local", "C"]
    assert [where[name] for name in ("A.shared", "B.shared", "C.local")] == [ITER] * 3
    sums = sketch.stages[4]
    assert [it.name[0] for it in sums.iters] == [*"ijijij", *"kk", *"ij", "k", *"ij"]  # SSSRRSRS


@pytest.mark.parametrize(
    ("target", "threads", "shared", "vthreads", "warp"),
    [
        ("cuda -arch=sm_80", 1024, 48 << 10, 8, 32),
        ("cuda -arch=sm_80 -max_num_threads=512 -shared_memory_per_block=16384", 512, 16 << 10, 8, 32),
        ("opencl", 256, 32 << 10, 8, 32),
        ("opencl -device=mali", 256, 32 << 10, 1, 1),
    ],
)
def test_what_the_hardware_has_is_said_by_the_target(
    target: str, threads: int, shared: int, vthreads: int, warp: int
) -> None:
    found = auto_scheduler.HardwareParams(target=target)
    assert (found.max_threads_per_block, found.max_shared_memory_per_block) == (threads, shared)
    assert (found.max_vthread_extent, found.warp_size) == (vthreads, warp)


def test_drawn_tiles_have_threads_that_fit() -> None:
    """Most draws do at once: of 40 nearly all are programs, though a product has few tiles that fit."""
    policy = policy_of(matmul_as, (64, 64, 64), "cuda")
    states = [s for s in (policy.random_state() for _ in range(40)) if s is not None]
    assert len(states) >= 36
    for state in states:
        threads = {it.extent for stage in state.stages for it in stage.iters if it.annotation == THREAD_X}
        virtual = [it.extent for stage in state.stages for it in stage.iters if it.annotation == VTHREAD]
        assert len(threads) == 1 and 32 <= threads.pop() <= 1024 and max(virtual) <= 8


def with_lengths(policy: auto_scheduler.SketchPolicy, state: StateObject, number: int, lengths: tuple[int, ...]) -> Any:
    """``state`` with other lengths in its split step ``number``, counted among split steps."""
    steps = list(state.transform_steps)
    splits = [i for i, step in enumerate(steps) if isinstance(step, SplitStep)]
    steps[splits[number]] = replace(steps[splits[number]], lengths=lengths)
    return rebuilt(policy, steps)


@pytest.mark.parametrize(
    ("i", "j", "k", "vector", "fits"),
    [
        ((1, 16, 1, 4), (1, 16, 1, 4), (2, 8), 1, True),
        ((1, 64, 1, 1), (1, 32, 1, 1), (2, 8), 1, False),  # 2048 threads
        ((4, 16, 1, 1), (4, 16, 1, 1), (2, 8), 1, False),  # 16 virtual threads
        ((1, 16, 1, 4), (1, 16, 1, 4), (2, 64), 1, False),  # 64 KiB and more of shared memory
        ((1, 16, 1, 4), (1, 16, 1, 4), (2, 8), 4, True),
        ((1, 16, 1, 4), (1, 16, 1, 4), (2, 8), 8, False),  # vectors of 32 bytes
    ],
)
def test_programs_that_no_block_could_run_are_left_out(
    i: tuple[int, ...], j: tuple[int, ...], k: tuple[int, ...], vector: int, fits: bool
) -> None:
    policy = policy_of(matmul_as, (512, 512, 512), "cuda")
    (state,) = drawn(policy, 1)
    for number, lengths in enumerate([i, j, k]):
        state = with_lengths(policy, state, number, lengths)
    fetch = next(n for n, step in enumerate(s for s in state.transform_steps if isinstance(s, SplitStep))
                 if n > 2 and len(step.lengths) == 1)  # fmt: skip
    state = with_lengths(policy, state, fetch, (vector,))
    assert fits_hardware(policy.search_task, state) is fits
    assert len(policy._valid([state])) == fits


@pytest.mark.parametrize("name", WORKLOADS)
def test_loops_are_as_long_as_the_schedule_makes_them(name: str) -> None:
    work = WORKLOADS[name]
    policy = policy_of(work.function, work.args, seed=5)
    dag = policy.search_task.compute_dag
    for state in drawn(policy, 4):
        assert str(LoopBounds(state, dag).bounded()) == str(dag.infer_bound(state))


PROGRAMS = ["matmul", "small matmul of a long reduction", "matmul and relu", "convolution, bias, relu", "norm"]
MORE = [name for name in WORKLOADS if name not in PROGRAMS]


@pytest.mark.parametrize("name", [*PROGRAMS, *(pytest.param(n, marks=pytest.mark.soak) for n in MORE)])
def test_drawn_programs_compute_what_numpy_does_without_races(name: str) -> None:
    work = WORKLOADS[name]
    policy = policy_of(work.function, work.args, seed=3)
    dag = policy.search_task.compute_dag
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal([int(d) for d in t.shape]).astype("float32") for t in dag.tensors[:-1]]
    expected = np.asarray(work.expected(*inputs))
    states = drawn(policy, 3)
    assert states
    for state in states:
        schedule, args = dag.apply_steps_from_state(state)
        found = np.full(expected.shape, 77, "float32")
        run_schedule(schedule, args, *inputs, found, target="cuda")
        assert abs(found - expected).max() <= 1e-5 * max(1.0, float(abs(expected).max())), f"{state}"


def test_a_search_on_a_gpu_ends_in_a_right_program(tmp_path: Path) -> None:
    need_gpu()
    log = str(tmp_path / "records.json")
    task = SearchTask(func=matmul_relu_as, args=(48, 32, 40), target=GPU_TARGET)
    runner = auto_scheduler.LocalRunner(number=1, repeat=1, min_repeat_ms=0, timeout=60)
    options = auto_scheduler.TuningOptions(
        6, num_measures_per_round=3, verbose=0, builder=auto_scheduler.LocalBuilder(timeout=120), runner=runner,
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )  # fmt: skip
    params = {"evolutionary_search_population": 16, "sample_init_min_population": 8}
    task.tune(options, auto_scheduler.SketchPolicy(task, auto_scheduler.XGBModel(), params, seed=1, verbose=0))
    pairs = list(auto_scheduler.load_records(log))
    assert [res.error_msg for _, res in pairs if res.error_no != MeasureErrorNo.NO_ERROR] == []
    assert len({inp.state.transform_steps for inp, _ in pairs}) == len(pairs) == 6
    for inp, _ in pairs:
        again = auto_scheduler.measure.recover_measure_input(inp, rebuild_state=True)
        assert any(it.annotation == THREAD_X for stage in again.state.stages for it in stage.iters)
    schedule, args = task.apply_best(log)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((48, 40)).astype("float32"), rng.standard_normal((40, 32)).astype("float32")
    out = tvm.nd.array(np.full((48, 32), np.nan, "float32"), GPU)
    tvm.build(schedule, args, GPU_TARGET)(tvm.nd.array(a, GPU), tvm.nd.array(b, GPU), out)
    np.testing.assert_allclose(out.numpy(), np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)
