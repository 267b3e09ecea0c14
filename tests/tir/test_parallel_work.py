"""How the work of kernels is shared among cores, by the model of their loops."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from benchmarks.imbalance import kernels_of

import tilewright as tvm
from tilewright import relay, runtime, te
from tilewright.tir.parallel_work import Part, imbalance, most_tasks, parts_of
from tilewright.tir.stmt import For, ForKind
from tilewright.tir.visitor import post_order_visit


def _rows(count: int, columns: int, parallel: bool = True) -> tuple[Any, list[Any]]:
    x = te.placeholder((count, columns), name="x")
    y = te.compute(x.shape, lambda i, j: x[i, j] + 1.0, name="y")
    schedule = te.create_schedule(y.op)
    if parallel:
        schedule[y].parallel(y.op.axis[0])
    return schedule, [x, y]


def _parts(schedule: Any, args: list[Any]) -> list[Part]:
    return parts_of(tvm.lower(schedule, args)["main"], 256)


def test_iterations_of_a_parallel_loop_are_one_part() -> None:
    (part,) = _parts(*_rows(6, 80))
    assert (len(part.costs), part.launched, part.total) == (6, True, 6 * 80 * 3)  # load, add, store
    assert part.on(4) == 2 * 80 * 3
    assert imbalance([([part], 5)], 4) == pytest.approx(2 * 4 / 6 - 1)
    assert imbalance([([part], 5)], 6) == 0


def test_what_is_not_parallel_runs_on_one_core() -> None:
    (part,) = _parts(*_rows(6, 80, parallel=False))
    assert not part.launched
    assert part.on(64) == part.total


def test_iterations_may_differ() -> None:
    x = te.placeholder((4, 4), name="x")
    k = te.reduce_axis((0, 4), name="k")
    y = te.compute((4,), lambda i: te.sum(x[i, k], axis=k, where=k <= i), name="y")
    schedule = te.create_schedule(y.op)
    schedule[y].parallel(y.op.axis[0])
    (part,) = _parts(schedule, [x, y])
    steps = np.diff(part.costs)
    assert (steps >= 0).all()
    assert part.costs[3] > part.costs[0]


def test_a_launch_has_no_more_tasks_than_work() -> None:
    loops: list[For] = []
    schedule, args = _rows(64, 100)
    post_order_visit(tvm.lower(schedule, args)["main"].body, lambda s: loops.append(s) if isinstance(s, For) else None)
    (shared,) = (loop for loop in loops if loop.kind == ForKind.PARALLEL)
    assert most_tasks(shared, 256, 64 * 100 * 3 / 5) == 5
    assert most_tasks(shared, 256, 1e9) == 2


@pytest.mark.parametrize(("rows", "tasks"), [(16, r"i32 5\)"), (6400, r"i32 0\)")])
def test_code_for_many_cores_wakes_few_for_small_loops(rows: int, tasks: str) -> None:
    schedule, args = _rows(rows, 500)
    kernel = tvm.build(schedule, args, "llvm -num-cores=64")
    (launch,) = re.findall(r"ptr @\S+\.lambda\", .*", kernel.get_source("ll"))
    assert re.search(tasks, launch)
    given, result = np.random.rand(rows, 500).astype("float32"), runtime.array(np.zeros((rows, 500), "float32"))
    for threads in (2, 3, 70):
        runtime.set_num_threads(threads)
        kernel(runtime.array(given), result)
        np.testing.assert_array_equal(result.numpy(), given + 1)
    runtime.set_num_threads(0)


@pytest.mark.parametrize("cores", [32, 64])
def test_layers_share_their_work_evenly(cores: int) -> None:
    x, image = relay.var("x", shape=(128, 768)), relay.var("image", shape=(1, 64, 28, 28))
    weight, filters = relay.const(np.ones((768, 768), "float32")), relay.const(np.ones((64, 64, 3, 3), "float32"))
    layers = relay.Tuple([relay.nn.dense(x, weight), relay.nn.conv2d(image, filters, padding=1)])
    kernels = kernels_of(tvm.IRModule.from_expr(relay.Function([x, image], layers)), {}, f"llvm -num-cores={cores}")
    assert imbalance(list(kernels.values()), cores) < 0.1
