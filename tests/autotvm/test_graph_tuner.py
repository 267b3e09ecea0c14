"""Which record of each convolution makes a network fastest, conversions between layouts included."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import autotvm, relay
from tilewright.autotvm.task.space import ConfigEntity
from tilewright.relay.op.strategy.wrappers import conv2d_task
from tilewright.relay.visitor import post_order
from tilewright.tuning.graph_tuner import BaseGraphTuner, DPTuner, PBQPTuner
from tilewright.tuning.graph_tuner.problem import LayoutProblem, solve_by_reduction, solve_exactly
from tilewright.tuning.measure import MeasureInput, MeasureResult

CONV = relay.op.get("nn.conv2d")


def random_problem(seed: int) -> LayoutProblem:
    """Up to six nodes of up to four choices, and any edges among them."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, rng.integers(1, 7))
    problem = LayoutProblem({10 * i: rng.random(size) for i, size in enumerate(sizes)})
    for a, b in itertools.product(range(len(sizes)), repeat=2):
        if rng.random() < 0.4:
            problem.add_edge(10 * a, 10 * b, rng.random((sizes[a], sizes[b])))
    return problem


def least(problem: LayoutProblem) -> float:
    """By trying everything."""
    nodes = list(problem.costs)
    choices = itertools.product(*(range(len(problem.costs[n])) for n in nodes))
    return min(problem.total(dict(zip(nodes, choice, strict=True))) for choice in choices)


@pytest.mark.parametrize("seed", range(20))
def test_dynamic_programming_finds_the_optimum(seed: int) -> None:
    problem = random_problem(seed)
    assert problem.total(solve_exactly(problem)) == pytest.approx(least(problem))


@pytest.mark.parametrize("seed", range(20))
def test_reductions_find_a_choice_and_know_when_it_is_the_optimum(seed: int) -> None:
    problem = random_problem(seed)
    chosen, exact = solve_by_reduction(problem)
    assert chosen.keys() == problem.costs.keys()
    assert problem.total(chosen) < 1.6 * least(problem)
    if exact:
        assert problem.total(chosen) == pytest.approx(least(problem))


def test_chains_and_trees_are_reduced_exactly() -> None:
    rng = np.random.default_rng(0)
    problem = LayoutProblem({i: rng.random(3) for i in range(8)})
    for i in range(1, 8):
        problem.add_edge(i // 2, i, rng.random((3, 3)))
    chosen, exact = solve_by_reduction(problem)
    assert exact
    assert problem.total(chosen) == pytest.approx(least(problem))


def test_too_many_states_are_refused_before_they_take_memory() -> None:
    problem = LayoutProblem({i: np.zeros(50) for i in range(12)})
    for a, b in itertools.combinations(range(12), 2):
        problem.add_edge(a, b, np.zeros((50, 50)))
    with pytest.raises(RuntimeError, match="PBQPTuner"):
        solve_exactly(problem, 10**6)


def conv(x: Any, name: str, channels: int, size: int = 3) -> Any:
    """A convolution that keeps the image's extent."""
    pads = (size // 2, size // 2)
    return relay.nn.conv2d(x, relay.var(name), channels=channels, kernel_size=(size, size), padding=pads)


def residual() -> Any:
    """Two branches added, then concatenated with the first convolution; each convolution is a task of its own."""
    x = relay.var("x", shape=(1, 8, 7, 5))
    first = relay.nn.relu(conv(x, "w0", 16))
    second = relay.nn.relu(conv(first, "w1", 24))
    third = relay.add(conv(second, "w2", 16), first)
    joined = relay.concatenate([third, conv(x, "w3", 16, 1)], axis=1)
    out = relay.nn.max_pool2d(conv(joined, "w4", 4, 1), (2, 2))
    return relay.Function(relay.analysis.free_vars(out), out)


def record(workload: Any, data_block: int, out_block: int, cost: float) -> Any:
    """What TVM 0.8 writes of a convolution."""
    task = autotvm.task.Task(workload[0], workload[1:])
    entity = [["tile_ic", "sp", [-1, data_block]], ["tile_oc", "sp", [-1, out_block]], ["unroll_kw", "ot", True]]
    config = ConfigEntity.from_json_dict({"index": -1, "code_hash": None, "entity": entity})
    return MeasureInput(tvm.target.Target("llvm"), task, config), MeasureResult((cost,), 0, 0.1, 0.0)


def workloads(function: Any) -> list[Any]:
    """Of a network's convolutions, in order."""
    typed = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
    calls = [e for e in post_order(typed) if isinstance(e, relay.Call) and e.op == CONV]
    return [conv2d_task(c.attrs, *(a.checked_type for a in c.args)) for c in calls]


def records_of(function: Any, seed: int, without: int | None = None) -> list[Any]:
    """Four records of every convolution but one."""
    rng = np.random.default_rng(seed)
    found = []
    for number, workload in enumerate(workloads(function)):
        channels, filters = workload[1][1][1], workload[2][1][0]
        for data_block, out_block in itertools.product((2, 4), repeat=2):
            if number != without and channels % data_block == 0 and filters % out_block == 0:
                found.append(record(workload, data_block, out_block, 1e-5 * float(rng.random())))
    return found


def conversions(cost: float) -> list[Any]:
    """A record of one conversion, from which others are inferred."""
    workload = ("layout_transform", ("TENSOR", (1, 2, 4, 4, 4), "float32"), "NCHW4c", "NCHW8c")
    task = autotvm.task.Task(workload[0], workload[1:])
    config = ConfigEntity.from_json_dict({"index": 0, "code_hash": None, "entity": []})
    return [(MeasureInput(tvm.target.Target("llvm"), task, config), MeasureResult((cost,), 0, 0.1, 0.0))]


@pytest.mark.parametrize("tuner", [DPTuner, PBQPTuner])
@pytest.mark.parametrize("without", [None, 2])
def test_the_optimum_of_a_network(tmp_path: Path, tuner: type[BaseGraphTuner], without: int | None) -> None:
    function, log = residual(), str(tmp_path / "log")
    given = records_of(function, 3, without)
    found = tuner(function, {"x": (1, 8, 7, 5)}, given, [CONV], "llvm", log_file=log, verbose=False)
    found.benchmark_layout_transform(layout_records=conversions(1e-6), infer_layout=True)
    found.run()
    problem = found.problem()
    assert found.optimal_cost == pytest.approx(least(problem))
    assert len(problem.costs) == 5
    chosen = found.get_optimal_records()
    assert [i.task.workload for i, _ in chosen] == [w for k, w in enumerate(workloads(function)) if k != without]
    found.write_opt_sch2record_file(str(tmp_path / "best"))
    assert len(list(autotvm.record.load_from_file(str(tmp_path / "best")))) == len(chosen)


def test_what_a_choice_costs_is_its_records_and_the_conversions_between_them(tmp_path: Path) -> None:
    function = residual()
    blocks = [(8, 16), (8, 24), (8, 4), (8, 4), (2, 4)]
    given = [record(w, *b, 1e-3) for w, b in zip(workloads(function), blocks, strict=True)]
    tuner = DPTuner(function, {"x": (1, 8, 7, 5)}, given, [CONV], "llvm", log_file=str(tmp_path / "log"), verbose=False)
    tuner.benchmark_layout_transform(layout_records=conversions(128e-9), infer_layout=True)  # 1 ns for each element
    tuner.run()
    converted = 16 + 24  # channels: the first's results for the second, the second's for the third
    converted += 16  # the first's, to be added
    converted += 32  # what was concatenated, for the last
    assert tuner.optimal_cost == pytest.approx(5e-3 + converted * 35 * 1e-9, rel=1e-9)


def test_operators_alike_have_one_record_where_asked(tmp_path: Path) -> None:
    x = relay.var("x", shape=(1, 8, 5, 5))
    out = conv(conv(conv(x, "w0", 8), "w1", 8), "w2", 8)
    function = relay.Function(relay.analysis.free_vars(out), out)
    workload, *_ = workloads(function)
    given = [record(workload, *blocks, 1e-3) for blocks in ((2, 4), (4, 2), (2, 8), (4, 4))]
    given[-1] = record(workload, 4, 4, 1.1e-3)  # slower, and the only one that needs no conversions between equals
    tuner = DPTuner(function, {"x": (1, 8, 5, 5)}, given, [CONV], "llvm", log_file=str(tmp_path / "log"), verbose=False)
    tuner.benchmark_layout_transform(layout_records=conversions(128e-6), infer_layout=True)  # 0.2 ms each
    tuner.run()
    assert tuner.get_optimal_records() == [given[0], given[1], given[0]]
    assert tuner.optimal_cost == pytest.approx(3e-3)
    tuner.run(alike=True)
    assert tuner.get_optimal_records() == 3 * [given[3]]
    assert tuner.optimal_cost == pytest.approx(3.3e-3)


def test_records_whose_layouts_no_conversion_joins_are_passed_over(tmp_path: Path) -> None:
    x = relay.var("x", shape=(1, 4, 6, 6))
    out = relay.concatenate([conv(x, "w0", 2), conv(x, "w1", 3)], axis=1)
    function = relay.Function(relay.analysis.free_vars(out), out)
    first, second = workloads(function)
    given = [record(first, 2, 2, 1e-3), record(first, 2, 1, 2e-3), record(second, 2, 3, 1e-3)]
    tuner = DPTuner(function, {"x": (1, 4, 6, 6)}, given, [CONV], "llvm", log_file=str(tmp_path / "log"), verbose=False)
    tuner.benchmark_layout_transform(layout_records=conversions(1e-6), infer_layout=True)
    tuner.run()
    assert tuner.get_optimal_records() == given[1:]


def test_conversions_are_measured(tmp_path: Path) -> None:
    x = relay.var("x", shape=(1, 4, 9, 5))
    out = conv(conv(x, "w0", 8), "w1", 4, 1)
    function = relay.Function(relay.analysis.free_vars(out), out)
    first, second = workloads(function)
    given = [record(first, 4, 8, 1e-3), record(first, 4, 4, 1.1e-3), record(second, 4, 4, 1e-3)]
    tuner = PBQPTuner(
        function, {"x": (1, 4, 9, 5)}, given, [CONV], "llvm", log_file=str(tmp_path / "log"), verbose=False
    )
    with pytest.raises(RuntimeError, match="benchmark_layout_transform first"):
        tuner.run()
    tuner.benchmark_layout_transform(min_exec_num=10)
    ((workload, (_, result)),) = tuner.layout_transform_perf_records.items()
    assert workload == ("layout_transform", ("TENSOR", (1, 1, 9, 5, 8), "float32"), "NCHW8c", "NCHW4c")
    assert 0 < result.costs[0] < 1e-3
    tuner.run()
    assert [int(i.config["tile_oc"].size[-1]) for i, _ in tuner.get_optimal_records()] == [8, 4]


def test_a_network_without_the_operators_is_refused(tmp_path: Path) -> None:
    x = relay.var("x", shape=(2, 3))
    with pytest.raises(RuntimeError, match="none of the operators"):
        DPTuner(relay.Function([x], relay.nn.relu(x)), {"x": (2, 3)}, [], [CONV], "llvm", log_file=str(tmp_path / "l"))
