"""Dispatch contexts belong to threads: builds under different records go on at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import autotvm, relay, te
from tilewright.autotvm.task.dispatcher import ApplyConfig, DispatchContext
from tilewright.contrib import graph_executor
from tilewright.target.target import Target

TARGET = "llvm -mcpu=haswell -num-cores=2"
ROWS, COLUMNS, DEPTH = 24, 64, 48


class PointOfSpace(DispatchContext):
    """Every workload gets the point ``index`` of its space; waits for the other thread first."""

    def __init__(self, index: int, together: threading.Barrier) -> None:
        self.index, self.together = index, together

    def _query_inside(self, target: Any, workload: Any) -> Any:
        with autotvm.FallbackContext():
            space = autotvm.create(workload[0], workload[1:], target).config_space
        assert space is not None
        self.together.wait(60)
        return space.get(self.index % len(space))


def network() -> tvm.IRModule:
    x = relay.var("x", shape=(ROWS, DEPTH))
    weight = relay.const(np.linspace(-1, 1, COLUMNS * DEPTH, dtype="float32").reshape(COLUMNS, DEPTH))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, weight)))


def test_two_threads_build_under_different_contexts() -> None:
    together = threading.Barrier(2)

    def build(index: int) -> Any:
        with tvm.transform.PassContext(opt_level=3), PointOfSpace(index, together):
            return relay.build(network(), TARGET)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(build, (0, 7))
    assert first.build_report.schedules != second.build_report.schedules
    plain = relay.build(network(), TARGET)
    x = np.linspace(-1, 1, ROWS * DEPTH, dtype="float32").reshape(ROWS, DEPTH)
    expected = x @ np.linspace(-1, 1, COLUMNS * DEPTH, dtype="float32").reshape(COLUMNS, DEPTH).T
    for library in (first, second, plain):
        run = graph_executor.GraphModule(library["default"](tvm.cpu()))
        run.run(x=x)
        np.testing.assert_allclose(run.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-4)


def test_a_context_is_in_force_in_its_thread_alone() -> None:
    with ThreadPoolExecutor(1) as pool, ApplyConfig(autotvm.FallbackConfigEntity()) as context:
        assert DispatchContext.current is context
        assert pool.submit(lambda: DispatchContext.current.is_fallback()).result(60)
    assert DispatchContext.current.is_fallback()


def test_one_context_serves_two_threads() -> None:
    """Each asks the contexts around it in its own thread."""
    config, shared = autotvm.FallbackConfigEntity(), autotvm.apply_history_best(None)
    together = threading.Barrier(2)

    def ask(inside: bool) -> bool:
        outer = ApplyConfig(config) if inside else autotvm.FallbackContext()
        with outer, shared:
            together.wait(60)
            found = DispatchContext.current.query(TARGET, ("anything",))
            together.wait(60)
            return found is config

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, (True, False))) == [True, False]


def test_a_context_entered_twice_asks_what_is_between() -> None:
    outer, inner = autotvm.FallbackConfigEntity(), autotvm.FallbackConfigEntity()
    twice = autotvm.apply_history_best(None)
    with ApplyConfig(outer), twice:
        assert twice.query(TARGET, ("w",)) is outer
        with ApplyConfig(inner), twice:
            assert twice.query(TARGET, ("w",)) is inner
        assert twice.query(TARGET, ("w",)) is outer
    assert twice.query(TARGET, ("w",)) is not outer


@autotvm.template("thread_template")
def scaled(n: int, factor: float) -> Any:
    x = te.placeholder((n,), name="x")
    y = te.compute((n,), lambda i: x[i] * factor, name="y")
    schedule = te.create_schedule(y.op)
    config = autotvm.get_config()
    config.define_knob("split", [1, 2, 4])
    return schedule, [x, y]


def test_templates_of_two_threads_do_not_see_one_another() -> None:
    together = threading.Barrier(2)
    seen: dict[str, Any] = {}

    class Watching(DispatchContext):
        def _query_inside(self, target: Any, workload: Any) -> Any:
            together.wait(60)
            seen[threading.current_thread().name] = workload
            together.wait(60)
            return autotvm.FallbackConfigEntity()

    def run(n: int) -> tuple[int, Any]:
        with Target(TARGET), Watching():
            scaled(n, 2.0)
        return n, seen[threading.current_thread().name]

    with ThreadPoolExecutor(2) as pool:
        for n, workload in pool.map(run, (3, 5)):
            assert workload[1] == n
