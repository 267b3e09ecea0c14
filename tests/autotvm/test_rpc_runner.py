"""Candidates run on boards that a tracker gives; here a server of this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.autotvm.templates import sample_task
from tests.driver.command import tilewright

from tilewright import autotvm, rpc
from tilewright.autotvm.record import load_from_file
from tilewright.ir.errors import TilewrightError
from tilewright.rpc.tracker import Tracker
from tilewright.tuning.tuner import GridSearchTuner


@pytest.fixture
def tracker() -> Iterator[Tracker]:
    """A tracker that knows one board."""
    running = Tracker(port=0, port_end=1, silent=True)
    board = rpc.Server("127.0.0.1", key="board", tracker_addr=("127.0.0.1", running.port), silent=True)
    end = time.monotonic() + 60
    client = rpc.connect_tracker("127.0.0.1", running.port)
    while not client.summary()["server_info"] and time.monotonic() < end:
        time.sleep(0.05)
    yield running
    board.terminate()
    running.terminate()


def test_candidates_are_timed_on_a_board(tracker: Tracker) -> None:
    runner = autotvm.RPCRunner(
        "board", "127.0.0.1", tracker.port, number=2, repeat=2, cooldown_interval=0, enable_cpu_cache_flush=True
    )
    assert runner.n_parallel == 1
    results: list[autotvm.MeasureResult] = []
    tuner = GridSearchTuner(sample_task(16, "die"), range_idx=(0, 3))
    option = autotvm.measure_option(autotvm.LocalBuilder(timeout=20), runner)
    tuner.tune(4, option, callbacks=[lambda _, __, found: results.extend(found)])
    runner.close()
    assert [r.error_no for r in results] == [
        0,
        0,
        2,
        0,
    ]  # the untuned choice, and what dies when it is built is not run
    assert all(len(r.costs) == 2 and min(r.costs) > 0 for r in results if r.error_no == 0)


def test_a_kind_of_board_that_nobody_knows_is_said(tracker: Tracker) -> None:
    with pytest.raises(TilewrightError, match="no board of the kind 'other'"):
        autotvm.RPCRunner("other", "127.0.0.1", tracker.port)


def test_finalists_meet_the_untuned_choice_on_the_board(tracker: Tracker) -> None:
    runner = autotvm.RPCRunner("board", "127.0.0.1", tracker.port, number=1, repeat=2, cooldown_interval=0)
    task = sample_task(16, "wrong")
    tuner = GridSearchTuner(task)
    tuner.begin(autotvm.measure_option(autotvm.LocalBuilder(timeout=20), runner))
    assert tuner.measure.measure_untuned() is not None
    assert task.target is not None
    inputs = [autotvm.MeasureInput(task.target, task, task.config_space.get(i)) for i in (0, 1, 4)]
    untuned, right, wrong, other = tuner.measure.in_turns(inputs, 3)
    runner.close()
    assert all(len(times) == 3 and min(times) > 0 and max(times) < 1 for times in (untuned, right, other))
    assert wrong == [float("inf")] * 3  # its results are not those of the untuned choice


def test_a_model_is_compared_on_the_board(tracker: Tracker, tmp_path: Path) -> None:
    model, records = tmp_path / "net.onnx", tmp_path / "r.jsonl"
    weights = numpy_helper.from_array(np.ones((96, 67), "float32"), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [5, m]) for n, m in (("x", 96), ("y", 67)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), model)
    board = ("--tracker", f"127.0.0.1:{tracker.port}", "--rpc-key", "board")
    done = tilewright("tune", model, "-o", records, *board, "--trials", "4", "--tuner", "random", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert all(0 < task["untuned_seconds"] < 1 for task in told["tasks"])
    assert 0 < told["network"]["tuned_seconds"] <= told["network"]["untuned_seconds"] < 1
    assert told["network"]["records"] == len(list(load_from_file(records)))
