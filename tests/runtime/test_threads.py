"""How many threads parallel loops use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tilewright as tvm
from tilewright import runtime, te

PROGRAM = "from tilewright import runtime; print(runtime.num_threads())"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TVM_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "5"}, 5),
        ({"TVM_NUM_THREADS": "2", "OMP_NUM_THREADS": "7"}, 2),
    ],
)
def test_environment_sets_the_number(variables: dict[str, str], expected: int) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")} | variables
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True)
    assert int(done.stdout) == expected


def test_config_threadpool_sets_the_number() -> None:
    default = runtime.num_threads()
    runtime.get_global_func("runtime.config_threadpool")(1, 3)
    assert runtime.num_threads() == 3
    runtime.set_num_threads(0)
    assert runtime.num_threads() == default >= 1
    with pytest.raises(runtime.TVMError, match="number of threads"):
        runtime.set_num_threads(-1)


@pytest.fixture
def parallel_add() -> Iterator[Callable[[], None]]:
    """A kernel with a parallel loop of 37 iterations, run and checked; three threads."""
    x = te.placeholder((37, 5), name="x")
    y = te.compute(x.shape, lambda i, j: x[i, j] + 1.0)
    schedule = te.create_schedule(y.op)
    schedule[y].parallel(y.op.axis[0])
    kernel = tvm.build(schedule, [x, y], "llvm")

    def run() -> None:
        given = np.arange(185, dtype="float32").reshape(37, 5)
        result = runtime.array(np.zeros_like(given))
        kernel(runtime.array(given), result)
        np.testing.assert_array_equal(result.numpy(), given + 1)

    runtime.set_num_threads(3)
    yield run
    runtime.set_thread_pool(None)
    runtime.set_num_threads(0)


def test_loops_run_on_the_threads_of_a_pool_that_the_program_gives(parallel_add: Callable[[], None]) -> None:
    counts = []
    with ThreadPoolExecutor(2) as pool:

        def launch(task: Callable[[int], None], count: int) -> None:
            counts.append(count)
            list(pool.map(task, range(count)))

        runtime.set_thread_pool(launch)
        parallel_add()
        assert counts == [3]
        runtime.set_thread_pool(None)
        parallel_add()
        assert counts == [3]


def test_an_error_of_the_pool_fails_the_run(parallel_add: Callable[[], None]) -> None:
    def launch(task: Callable[[int], None], count: int) -> None:
        raise RuntimeError("no threads left")

    runtime.set_thread_pool(launch)
    with pytest.raises(runtime.TVMError, match="RuntimeError: no threads left"):
        parallel_add()
    runtime.set_thread_pool(lambda task, count: task(0))
    with pytest.raises(runtime.TVMError, match="ran 1 of 3 tasks"):
        parallel_add()


def test_more_threads_than_cores_give_the_same_result(parallel_add: Callable[[], None]) -> None:
    for threads in (37, 64, 100):
        runtime.set_num_threads(threads)
        parallel_add()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_the_default_follows_affinity() -> None:
    program = (
        "import os; from tilewright import runtime; before = runtime.num_threads(); "
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); runtime.set_num_threads(0); "
        "print(before, runtime.num_threads())"
    )
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    before, after = map(int, done.stdout.split())
    assert (before >= 1, after) == (True, 1)
