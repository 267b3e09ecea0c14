"""Networks: which tasks they have, that records schedule their kernels, and which task is tuned next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.auto_scheduler.workloads import matmul_as

import tilewright as tvm
from tilewright import auto_scheduler, relay
from tilewright.auto_scheduler.measure import MeasureInput, MeasureResult, ProgramBuilder, ProgramRunner
from tilewright.auto_scheduler.task_scheduler import TaskSchedulerCallback
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TilewrightError


def network(layout: str = "NHWC") -> tuple[tvm.IRModule, dict[str, Any]]:
    """Two equal convolutions and one of its own, each with a relu."""
    rng = np.random.default_rng(0)
    shape, kernel = ((1, 9, 9, 8), "HWIO") if layout == "NHWC" else ((1, 8, 9, 9), "OIHW")
    data = relay.var("data", shape=shape)
    params = {}
    x = data
    for i, channels in enumerate((8, 8, 5)):
        extents = (3, 3, 8, channels) if kernel == "HWIO" else (channels, 8, 3, 3)
        params[f"w{i}"] = rng.standard_normal(extents).astype("float32") * 0.1
        weight = relay.var(f"w{i}", shape=extents)
        x = relay.nn.relu(
            relay.nn.conv2d(x, weight, padding=(1, 1), channels=channels, kernel_size=(3, 3), data_layout=layout,
                            kernel_layout=kernel)
        )  # fmt: skip
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(x), x)), params


def run(library: Any, data: np.ndarray) -> np.ndarray:
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.set_input("data", data)
    module.run()
    return module.get_output(0).numpy()


def test_tasks_of_a_network_are_counted_by_their_uses() -> None:
    tasks, weights = auto_scheduler.extract_tasks(*network(), "llvm")
    assert sorted(weights) == [1, 2]
    assert all("conv2d" in task.desc for task in tasks)
    assert {len(task.compute_dag.tensors) for task in tasks} == {3}


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_records_schedule_the_kernels_of_a_network(layout: str, tmp_path: Path, caplog: Any) -> None:
    mod, params = network(layout)
    tasks, _ = auto_scheduler.extract_tasks(mod, params, "llvm")
    log = str(tmp_path / "records.json")
    drawn = set()
    for task in tasks:
        state = auto_scheduler.SketchPolicy(task, seed=4, verbose=0).random_state()
        result = MeasureResult([1e-3], 0, "", 0.1, 0)
        auto_scheduler.save_records(log, [MeasureInput(task, state)], [result])
        drawn.add(task.workload_key)
    data = np.random.default_rng(1).standard_normal([int(d) for d in mod["main"].params[0].type_annotation.shape])
    plain = relay.build(mod, "llvm", params=params)
    config = {"relay.backend.use_auto_scheduler": True}
    with auto_scheduler.ApplyHistoryBest(log), tvm.transform.PassContext(opt_level=3, config=config):
        tuned = relay.build(mod, "llvm", params=params)
    assert not [r for r in caplog.records if "has no record" in r.message]
    expected = run(plain, data.astype("float32"))
    np.testing.assert_allclose(run(tuned, data.astype("float32")), expected, rtol=1e-4, atol=1e-5)


def layer(kind: str) -> tuple[tvm.IRModule, np.ndarray, np.ndarray]:
    """One layer with a weight, its data and its weight."""
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "conv2d NHWC": ((1, 7, 7, 6), (3, 3, 6, 8)),
        "conv2d NCHW": ((1, 6, 7, 7), (8, 6, 3, 3)),
        "conv3d NDHWC": ((1, 3, 5, 5, 4), (1, 3, 3, 4, 6)),
        "dense": ((5, 12), (16, 12)),
        "batch_matmul": ((2, 5, 12), (2, 9, 12)),
        "one column": ((3, 7), (1, 7)),
        "prime": ((3, 7), (13, 7)),
    }
    shape, weight_shape = shapes[kind]
    x, w = relay.var("data", shape=shape), relay.var("weight", shape=weight_shape)
    name, _, layout = kind.partition(" ")
    if name == "conv2d":
        kernel = "HWIO" if layout == "NHWC" else "OIHW"
        y = relay.nn.conv2d(x, w, kernel_size=(3, 3), channels=8, padding=(1, 1), data_layout=layout,
                            kernel_layout=kernel)  # fmt: skip
    elif name == "conv3d":
        y = relay.nn.conv3d(x, w, kernel_size=(1, 3, 3), channels=6, data_layout=layout, kernel_layout="DHWIO")
    else:
        y = relay.nn.batch_matmul(x, w) if kind == "batch_matmul" else relay.nn.dense(x, w)
    rng = np.random.default_rng(3)
    data, weight = (rng.standard_normal(s).astype("float32") for s in (shape, weight_shape))
    return tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(y))), data, weight


@pytest.mark.parametrize(
    "kind", ["conv2d NHWC", "conv2d NCHW", "conv3d NDHWC", "dense", "batch_matmul", "one column", "prime"]
)
def test_constant_weights_get_the_layout_that_the_record_reads(kind: str) -> None:
    mod, data, weight = layer(kind)
    (task,), _ = auto_scheduler.extract_tasks(mod, {"weight": weight}, "llvm")
    assert task.layout_rewrite_option == auto_scheduler.LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
    expected = run(relay.build(mod, "llvm", params={"weight": weight}), data)
    packed: list[tuple[int, ...]] = []
    for seed in range(20):
        state = auto_scheduler.SketchPolicy(task, seed=seed, verbose=0).random_state()
        records = [(MeasureInput(task, state), MeasureResult([1e-3], 0, "", 0.1, 0))]
        config = {"relay.backend.use_auto_scheduler": True}
        with auto_scheduler.ApplyHistoryBest(records), tvm.transform.PassContext(opt_level=3, config=config):
            library = relay.build(mod, "llvm", params={"weight": weight})
        np.testing.assert_allclose(run(library, data), expected, rtol=1e-4, atol=1e-5)
        packed += [p.shape for p in library.get_params().values() if p.shape != weight.shape]
        if packed or (kind in ("one column", "prime") and seed == 2):
            break
    assert packed or kind in ("one column", "prime")
    assert all(np.prod(shape) == weight.size for shape in packed)


def test_weights_that_are_not_constant_keep_their_layout() -> None:
    mod, data, weight = layer("dense")
    (task,), _ = auto_scheduler.extract_tasks(mod, None, "llvm")
    assert task.layout_rewrite_option == auto_scheduler.LayoutRewriteOption.NO_REWRITE
    state = auto_scheduler.SketchPolicy(task, seed=0, verbose=0).random_state()
    records = [(MeasureInput(task, state), MeasureResult([1e-3], 0, "", 0.1, 0))]
    config = {"relay.backend.use_auto_scheduler": True}
    with auto_scheduler.ApplyHistoryBest(records), tvm.transform.PassContext(opt_level=3, config=config):
        library = relay.build(mod, "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.set_input("data", data)
    module.set_input("weight", weight)
    module.run()
    np.testing.assert_allclose(module.get_output(0).numpy(), np.maximum(data @ weight.T, 0), rtol=1e-4, atol=1e-5)


def test_kernels_without_a_record_keep_their_schedule_and_are_named(caplog: Any) -> None:
    mod, params = network()
    config = {"relay.backend.use_auto_scheduler": True}
    with auto_scheduler.dispatcher.FallbackContext(), tvm.transform.PassContext(opt_level=3, config=config):
        library = relay.build(mod, "llvm", params=params)
    assert [r for r in caplog.records if "fused_nn_conv2d" in r.message and "has no record" in r.message]
    assert run(library, np.ones((1, 9, 9, 8), "float32")).shape == (1, 9, 9, 5)


def test_a_sampled_program_stands_in_for_a_missing_record() -> None:
    mod, params = network()
    config = {"relay.backend.use_auto_scheduler": True}
    with auto_scheduler.ApplyHistoryBestOrSample(None), tvm.transform.PassContext(opt_level=3, config=config):
        library = relay.build(mod, "llvm", params=params)
    data = np.random.default_rng(1).standard_normal((1, 9, 9, 8)).astype("float32")
    expected = run(relay.build(mod, "llvm", params=params), data)
    np.testing.assert_allclose(run(library, data), expected, rtol=1e-4, atol=1e-5)


def test_two_products_in_one_function_are_one_kernel_of_the_auto_scheduler_only() -> None:
    x, w = relay.var("x", shape=(4, 5)), relay.var("w", shape=(5, 5))
    inner = relay.Function([x, w], relay.nn.dense(relay.nn.dense(x, w), w)).with_attr("Primitive", 1)
    a, b = relay.var("a", shape=(4, 5)), relay.var("b", shape=(5, 5))
    mod = tvm.IRModule.from_expr(relay.Function([a, b], relay.Call(inner, [a, b])))
    tasks, _ = auto_scheduler.extract_tasks(mod, None, "llvm")
    assert len(tasks) == 1
    with pytest.raises(TilewrightError, match=r"nn\.dense and nn\.dense cannot share one kernel"):
        relay.build(mod, "llvm")


class MadeUp(ProgramBuilder, ProgramRunner):
    """Measures nothing: a task of size n takes as many seconds, and a hundredth less with each measurement."""

    def __init__(self) -> None:
        self.count: dict[str, int] = {}

    def build(self, measure_inputs: Any, verbose: int = 1) -> list[Any]:
        return [auto_scheduler.measure.BuildResult("", [], 0, "", 0.0) for _ in measure_inputs]

    def run(self, measure_inputs: Any, build_results: Any, verbose: int = 1) -> list[Any]:
        results = []
        for inp in measure_inputs:
            key = inp.task.workload_key
            self.count[key] = self.count.get(key, 0) + 1
            size = int(inp.task.compute_dag.tensors[0].shape[0])
            results.append(MeasureResult([size * 0.99 ** self.count[key]], 0, "", 0.0, 0))
        return results


class Order(TaskSchedulerCallback):
    def __init__(self) -> None:
        self.tasks: list[int] = []

    def pre_tune(self, task_scheduler: Any, task_id: int) -> None:
        self.tasks.append(task_id)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("round-robin", [0, 1, 2, 0, 1, 2, 0, 1]), ("gradient", [0, 1, 2, 2, 2, 2, 2, 2])],
)
def test_the_next_round_goes_where_most_is_gained(strategy: str, expected: list[int]) -> None:
    """The third task takes a thousand times as long as the others: all rounds after the first go to it."""
    tasks = [auto_scheduler.SearchTask(func=matmul_as, args=(n, 8, 8), target="llvm") for n in (1, 2, 2048)]
    order, made_up = Order(), MadeUp()
    scheduler = auto_scheduler.TaskScheduler(tasks, strategy=strategy, callbacks=[order])
    options = auto_scheduler.TuningOptions(
        16, num_measures_per_round=2, verbose=0, builder=made_up, runner=made_up
    )  # fmt: skip
    params = {"evolutionary_search_population": 8}
    scheduler.tune(options, "sketch.random", search_policy_params=params)
    assert order.tasks == expected
