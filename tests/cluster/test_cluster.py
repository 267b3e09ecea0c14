"""Trials on a Dask cluster of real processes: what is killed, restarted or gone costs no measurement."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.autotvm.templates import sample_task
from tests.cluster.conftest import ROOT, Fleet
from tests.driver.command import tilewright

from tilewright import autotvm
from tilewright.autotvm.record import load_from_file
from tilewright.ir.errors import TilewrightError
from tilewright.tuning.cluster import ClusterBuilder, ClusterRunner
from tilewright.tuning.measure import MeasureInput
from tilewright.tuning.tuner import GridSearchTuner

distributed = pytest.importorskip("distributed")


def option(fleet: Fleet, **more: Any) -> dict[str, Any]:
    runner = ClusterRunner(fleet.address, timeout=60, number=1, repeat=2, patience=60, **more)
    return autotvm.measure_option(ClusterBuilder(timeout=60), runner)


def journaled(fleet: Fleet) -> Counter[str]:
    """How often the machine has measured each configuration, by its choices."""
    files = (fleet.folder / "tilewright" / "measured").glob("*.jsonl")
    lines = [line for file in files for line in file.read_text().splitlines()]
    records = [json.loads(line)["record"] for line in lines]
    return Counter(json.dumps(r["config"]["entity"]) for r in records if r["config"] is not None)


def tuned(fleet: Fleet, trials: int, trouble: str, after: int, then: Callable[[], Any]) -> list[tuple[int, int]]:
    """(configuration, error) of each trial of a search, in which ``then`` happens after some results."""
    results: list[tuple[int, int]] = []

    def each(_: Any, inputs: list[MeasureInput], found: list[Any]) -> None:
        before = len(results)
        results.extend((inp.config.index, int(r.error_no)) for inp, r in zip(inputs, found, strict=True))
        if before <= after < len(results):
            then()

    tuner = GridSearchTuner(sample_task(16, trouble))
    asked = option(fleet)
    tuner.tune(trials + 1, asked, callbacks=[each])
    asked["runner"].close()
    return results[1:]  # without the untuned choice


def test_two_workers_tune_and_one_is_killed_in_the_middle(fleet: Fleet) -> None:
    first = fleet.start_worker()
    fleet.start_worker()
    results = tuned(fleet, 14, "wrong", 4, lambda: fleet.end(first))
    assert sorted(results) == [(i, 5 if i % 2 else 0) for i in range(14)]  # wrong answers are no candidates
    assert set(journaled(fleet).values()) == {1}


@pytest.mark.full
def test_a_scheduler_that_is_restarted_gets_what_is_left(fleet: Fleet) -> None:
    worker = fleet.start_worker()

    def restart() -> None:
        fleet.end(fleet.scheduler)
        worker.wait(30)  # it ends without a scheduler; whoever runs a fleet starts it again
        fleet.start_scheduler()
        fleet.start_worker()

    results = tuned(fleet, 10, "", 3, restart)
    assert sorted(results) == [(i, 0) for i in range(10)]
    assert set(journaled(fleet).values()) == {1}


class GoneClient:
    """A client that has given up a scheduler which does not come back in time."""

    status = "closed"

    def submit(self, *task: Any, **options: Any) -> Any:
        raise RuntimeError("Client is closed.")


def test_what_is_sent_while_the_scheduler_is_gone_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.tuning.cluster.connection import Connection, Trial

    connection = Connection.__new__(Connection)
    fields = {"_client": GoneClient(), "_trials": {}, "_untuned": {}, "_refused": {}, "run_name": "r"}
    for name, value in fields.items():
        setattr(connection, name, value)
    connection.send(Trial({"id": "a"}, {"id": "b"}, {"id": "c"}, None))
    assert connection.pending == 1 and connection._looked == 0.0  # wait() looks at the scheduler at once
    monkeypatch.setattr(GoneClient, "status", "running")
    with pytest.raises(RuntimeError, match="closed"):
        connection.send(Trial({"id": "d"}, {"id": "e"}, {"id": "f"}, None))


CLIENT = """
import sys
from tests.autotvm.templates import sample_task
from tilewright import autotvm
from tilewright.tuning.measure.measure_methods import create_measure_batch
from tilewright.tuning.measure import MeasureInput
from tilewright.autotvm.record import load_from_file
from tilewright.tuning.cluster import ClusterBuilder, ClusterRunner
task = sample_task(16, "")
runner = ClusterRunner(sys.argv[1], timeout=60, number=1, repeat=2, run="mine")
batch = create_measure_batch(task, autotvm.measure_option(ClusterBuilder(timeout=60), runner))
batch.measure_untuned()
batch.submit([MeasureInput(task.target, task, task.config_space.get(i)) for i in range(6)])
batch.collect()
print("one", flush=True)
batch.wait(600)
"""


def test_a_tuner_that_was_killed_goes_on_where_it_was(fleet: Fleet) -> None:
    fleet.start_worker()
    command = [sys.executable, "-c", CLIENT, fleet.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=fleet.environment) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"one\n"
        os.kill(client.pid, signal.SIGKILL)
    before = sum(journaled(fleet).values())
    assert before >= 1
    asked = option(fleet, run="mine")
    task = sample_task(16, "")
    tuner = GridSearchTuner(task, range_idx=(0, 5))
    tuner.begin(asked)
    assert len(asked["runner"].measured()) >= before
    while tuner.advance(6):
        pass
    asked["runner"].close()
    assert tuner.done == 7  # with the untuned choice
    assert set(journaled(fleet).values()) == {1}
    assert len(journaled(fleet)) == 6


def test_a_worker_with_another_processor_measures_nothing(fleet: Fleet, tmp_path: Path) -> None:
    fleet.start_worker()
    task = sample_task(16, "")
    other = autotvm.create("tests/matmul", (16, ""), "llvm -mcpu=haswell -num-cores=333")
    runner = option(fleet)["runner"]
    with pytest.raises(TilewrightError, match=r"(?s)no worker of the cluster .* can measure .*that is tuned for|333"):
        runner.set_task(other)
    with pytest.raises(TilewrightError, match="give measure_option both"):
        runner.measure_batch(task, autotvm.measure_option(autotvm.LocalBuilder(), runner))


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system gives no process fewer cores")
def test_of_a_mixed_fleet_those_that_fit_measure(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one core")
    os.sched_setaffinity(0, {min(allowed)})
    try:
        fleet.start_worker()  # of one core
    finally:
        os.sched_setaffinity(0, allowed)
    fleet.start_worker()
    with distributed.Client(fleet.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
    results = tuned(fleet, 6, "", 0, lambda: None)
    assert sorted(results) == [(i, 0) for i in range(6)]
    assert "with 1 cores; what is tuned for has" in caplog.text
    assert len(list((fleet.folder / "tilewright" / "measured").glob("*.jsonl"))) == 1


@pytest.mark.full
def test_a_model_is_tuned_on_a_cluster_and_resumed(fleet: Fleet, tmp_path: Path) -> None:
    worker = fleet.start_worker()
    model = product(tmp_path / "net.onnx")
    records, log = tmp_path / "r.jsonl", tmp_path / "r.trials.jsonl"
    asked = ("tune", model, "-o", records, "--dask", fleet.address, "--tuner", "random", "--json", "--timeout", "60")
    first = tilewright(*asked, "--trials", "5", env=fleet.environment)
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout)
    assert told["trials"] == 5
    assert log.read_text().startswith("# run ")
    again = json.loads(tilewright(*asked, "--trials", "6", env=fleet.environment).stdout)
    assert again["trials"] == 6
    trials = list(load_from_file(log))
    counts = Counter(str(inp.config) for inp, _ in trials)
    untuned = str(trials[0][0].config)
    assert {n for config, n in counts.items() if config != untuned} == {1}
    assert worker.poll() is None


def product(path: Path) -> Path:
    """A network of one product."""
    weights = numpy_helper.from_array(np.ones((96, 67), "float32"), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 96])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 67])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_nobody_there_is_said(tmp_path: Path) -> None:
    from tilewright.target import Target
    from tilewright.tuning.cluster.connection import Connection
    from tilewright.tuning.cluster.processor import wanted_for

    began = time.monotonic()
    with pytest.raises(TilewrightError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        Connection("tcp://127.0.0.1:9", wanted_for(Target("llvm")), "x", patience=0.1)
    assert time.monotonic() - began < 30
