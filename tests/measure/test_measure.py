"""Candidates that fail cost themselves and nothing else; what is run is timed, compared and flushed as was asked."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.runtime.registry import get_global_func
from tilewright.tuning.measure.programs import Timed
from tilewright.tuning.processes import LocalRuns, Outcome, Pool, RunRequest, fork_worker

SIZE = 37


def misbehave(request: Any) -> Any:
    """Does what it is asked to."""
    match request:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "leave":
            os.write(1, b"no reason")  # past pytest's capture
            os._exit(3)
        case "hang":
            time.sleep(60)
        case "raise":
            raise KeyError("a reason")
    return [request, 2 * request]


def test_what_fails_costs_one_request() -> None:
    pool = Pool(lambda: fork_worker(misbehave), 2, timeout=2.0)
    came: list[int] = []
    requests: list[Any] = [1, "die", 2, "leave", "raise", 3, "hang", 4]
    outcomes = pool.map(requests, lambda i, _: came.append(i))
    pool.close()
    assert [o.status for o in outcomes] == ["done", "crash", "done", "crash", "error", "done", "timeout", "done"]
    assert [o.value for o in outcomes if o.status == "done"] == [[k, 2 * k] for k in (1, 2, 3, 4)]
    assert "SIGKILL" in outcomes[1].error
    assert "status 3: no reason" in outcomes[3].error
    assert outcomes[4].kind == "KeyError"
    assert "misbehave" in outcomes[4].traceback
    assert sorted(came) == list(range(8))
    assert 2.0 <= outcomes[6].seconds < 30


def test_processes_stay_between_batches() -> None:
    pool = Pool(lambda: fork_worker(lambda _: os.getpid()), 1, timeout=60.0)
    first, second = (pool.map([0, 0])[0].value for _ in range(2))
    assert first == second != os.getpid()
    pool.close()
    with pytest.raises(ChildProcessError):
        os.waitpid(first, 0)


def test_a_long_answer_arrives_whole() -> None:
    pool = Pool(lambda: fork_worker(lambda n: "x" * n), 1, timeout=60.0)
    assert pool.map([3_000_000])[0].value == "x" * 3_000_000
    pool.close()


def library(folder: Path, name: str, value: float) -> RunRequest:
    """A library that adds ``value`` to its first argument."""
    a = te.placeholder((SIZE,), name="a")
    out = te.compute((SIZE,), lambda i: a[i] + te.const(value, "float32"))
    s = te.create_schedule(out.op)
    path = str(folder / f"{name}.so")
    tvm.build(s, [a, out], "llvm").export_library(path)
    return RunRequest(path, [((SIZE,), "float32")] * 2, number=2, repeat=3)


def test_runs_are_timed_and_their_results_compared(tmp_path: Path) -> None:
    right, wrong = library(tmp_path, "right", 1.0), library(tmp_path, "wrong", 1.5)
    broken = RunRequest(str(tmp_path / "none.so"), right.arguments)
    results, inputs = str(tmp_path / "results.npz"), str(tmp_path / "inputs.npz")
    np.savez(inputs, np.arange(SIZE, dtype="float32"))
    runs = LocalRuns(timeout=60)

    def asked(request: RunRequest, **more: Any) -> RunRequest:
        return RunRequest(**{**vars(request), "inputs": inputs, **more})

    def outcomes(*requests: RunRequest) -> list[Outcome]:
        return runs.run(requests)

    (first,) = outcomes(asked(right, save_results=results))
    assert first.status == "done"
    assert len(first.value.costs) == 3
    assert all(0 < c < 1 for c in first.value.costs)
    with np.load(results) as file:
        np.testing.assert_array_equal(file["arr_0"], np.arange(SIZE, dtype="float32") + 1)
    reference = {"reference": right.library, "reference_arguments": right.arguments}
    again, bad, none = outcomes(
        asked(right, compare_to=results, flush=True, **reference), asked(wrong, compare_to=results), broken
    )
    runs.close()
    assert again.value.wrong is None
    assert len(again.value.reference) == 6
    assert "37 of 37 results are wrong; result 0[0] is 1.5, not 1.0" in bad.value.wrong
    assert bad.value.costs == ()
    assert none.status == "error"
    assert "none.so" in none.error


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("float32", 0, 1), ("float64", 0, 1), ("float16", 0.25, 0.5), ("int8", 0, 15), ("uint16", 0, 15), ("bool", 0, 1)],
)
def test_random_data_have_a_known_range_and_differ(dtype: str, low: float, high: float) -> None:
    fill = get_global_func("tvm.contrib.random.random_fill")
    first, second = tvm.nd.empty((11, 97), dtype), tvm.nd.empty((11, 97), dtype)
    fill(first)
    fill(second)
    values = first.numpy().astype("float64")
    assert values.min() >= low
    assert values.max() <= high
    assert values.std() > (high - low) / 8
    assert not np.array_equal(values, second.numpy())


def test_flushing_keeps_values() -> None:
    flush = get_global_func("cache_flush_cpu_non_first_arg")
    arrays = [tvm.nd.array(np.arange(n, dtype="float32")) for n in (0, 1, 1023)]
    flush(*arrays)
    for array, n in zip(arrays, (0, 1, 1023), strict=True):
        np.testing.assert_array_equal(array.numpy(), np.arange(n, dtype="float32"))


def test_threads_that_measure_have_a_core_each() -> None:
    """In a process of its own: pinning is for life."""
    program = """
import os, threading
from tilewright.tuning.processes.pinning import PinnedThreads
before = threading.Event()
threading.Thread(target=before.wait, daemon=True).start()  # of somebody else
threads = PinnedThreads()
threads._cores = threads._cores or [0]
allowed = os.sched_getaffinity(0)
threads.update()
assert threads.pinned == {}, threads.pinned  # there is no pool
go = threading.Event()
pool = [threading.Thread(target=go.wait, daemon=True) for _ in range(len(threads._cores) - 1)]
for thread in pool:
    thread.start()
threads.update()
if pool:
    assert len(set(threads.pinned.values())) == len(pool) + 1
    assert os.sched_getaffinity(os.getpid()) == {threads._cores[0]}
    assert all(os.sched_getaffinity(t.native_id) == {threads.pinned[t.native_id]} for t in pool)
more = [threading.Thread(target=go.wait, daemon=True) for _ in range(99)]
for thread in more:
    thread.start()
pinned = dict(threads.pinned)
threads.update()
assert threads.pinned == pinned  # more threads than cores
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_runner_waits_after_each_library(tmp_path: Path) -> None:
    runs = LocalRuns(20, cooldown=0.05)
    came: list[float] = []
    requests = [library(tmp_path, f"cool{i}", 1.0) for i in range(2)]
    outcomes = runs.run(requests, lambda index, outcome: came.append(time.monotonic()))
    runs.close()
    assert [o.status for o in outcomes] == ["done", "done"]
    assert came[1] - came[0] > 0.05


def test_equal_values_of_arguments_are_one_file() -> None:
    timed = Timed(1, 1, 0, 0.0, False)
    target = tvm.target.Target("llvm")
    first, again, other = (
        timed.request("x.so", [((2,), "float32")], target, [np.full(2, value, "float32")]) for value in (1, 1, 2)
    )
    assert first.inputs == again.inputs != other.inputs
    with np.load(other.inputs) as file:
        assert [file[name].tolist() for name in file.files] == [[2.0, 2.0]]
    assert timed.request("x.so", [((2,), "float32")], target).inputs == ""
