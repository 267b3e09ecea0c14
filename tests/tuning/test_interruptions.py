"""``tilewright tune`` under abuse: Ctrl-C at any time, a full disk, files of other versions, what is killed."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.autotvm.templates import sample_task
from tests.driver.command import fails, tilewright
from tests.tiers import full

from tilewright import autotvm
from tilewright.autotvm.record import load_from_file
from tilewright.tuning.network import NetworkTuner
from tilewright.tuning.tuner import GridSearchTuner, RandomTuner
from tilewright.tuning.tuner.tuner import Tuner


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A network of one product."""
    weights = numpy_helper.from_array(np.ones((96, 67), "float32"), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [5, m]) for n, m in (("x", 96), ("y", 67)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def network_tuner(log: Path, *tuners: Tuner) -> NetworkTuner:
    option = autotvm.measure_option(
        autotvm.LocalBuilder(timeout=30), autotvm.LocalRunner(number=1, repeat=1, timeout=30)
    )
    made = {id(tuner.task): tuner for tuner in tuners}
    return NetworkTuner([(t.task, 1) for t in tuners], lambda task: made[id(task)], option, None, log)


def left_behind(mark: str) -> list[int]:
    """Processes that have a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("when", ["searching", *full("loading")])
def test_an_interrupt_keeps_all_trials_and_leaves_no_process(model: Path, tmp_path: Path, when: str) -> None:
    mark, log = uuid.uuid4().hex, tmp_path / "r.trials.jsonl"
    program = "import sys; from tilewright.driver import main; sys.stderr.write('ready\\n'); sys.stderr.flush(); main()"
    command = [sys.executable, "-c", program, "tune", str(model)]
    command += ["-o", str(tmp_path / "r.jsonl"), "--tuner", "random", "--trials", "100000"]
    environment = {**os.environ, "TILEWRIGHT_TEST_MARK": mark}
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"ready\n"
        end = time.monotonic() + 240
        while when == "searching" and not (log.exists() and log.read_text().count("\n") > 3):
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert b"Traceback" not in said, said
    if when == "searching":  # it goes to the finals, and ends well
        assert process.returncode == 0, said
        assert len(list(load_from_file(log))) > 3
        assert (tmp_path / "r.jsonl").exists()
    else:
        assert process.returncode == 130 or log.exists()  # a fast machine has loaded it, and searches
    end = time.monotonic() + 60
    while left_behind(mark) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left_behind(mark)


def test_a_full_disk_is_said(model: Path, tmp_path: Path) -> None:
    log, limit = tmp_path / "r.trials.jsonl", 1 << 20
    log.write_text("# " + "x" * (limit - 1000) + "\n")  # room for a part of a trial
    asked = ("tune", model, "-o", tmp_path / "r.jsonl", "--tuner", "grid", "--trials", "4")
    full = tilewright(*asked, limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    fails(full, "r.trials.jsonl", "File too large", "run the same command again")


def test_trials_of_other_versions_are_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "trials.jsonl"
    network_tuner(log, GridSearchTuner(sample_task(8, ""), range_idx=(0, 3))).run(5)
    good = [line for line in log.read_text().splitlines() if '"index"' in line]
    older = good[2].replace('"code_hash": null', '"code_hash": "another"')
    strange = ['{"v": 0.1}', "[1, 2", good[1].replace("tests/matmul", "of/nobody"), older, "\x00\xff"]
    log.write_bytes("\n".join([*good[:2], *strange, good[3][:40]]).encode())  # the last was being written
    tuner = network_tuner(log, GridSearchTuner(sample_task(8, ""), range_idx=(0, 3)))
    tuner.run(5)
    assert "lines that are no records of this version" in caplog.text
    numbers = [inp.config.index for inp, _ in tuner.states[0].trials]
    assert numbers[:2] == [i.config.index for i, _ in map(autotvm.record.decode, good[:2])]  # type: ignore[misc]
    assert set(numbers) == {0, 1, 2, 3}


def test_a_runner_that_is_killed_between_batches_costs_nothing(tmp_path: Path) -> None:
    tuner = network_tuner(tmp_path / "trials.jsonl", RandomTuner(sample_task(8, "")))
    killed: list[int] = []

    def kill(network: NetworkTuner) -> None:
        for worker in network.option["runner"].runs._pool._idle:
            if len(killed) < 3:
                os.kill(worker.pid, signal.SIGKILL)
                killed.append(worker.pid)

    tuner.watch = kill
    tuner.run(10)
    tuner.close()
    assert len(killed) == 3
    assert [int(r.error_no) for _, r in tuner.states[0].trials] == [0] * 10


def test_a_task_of_which_nothing_builds_stops_and_others_go_on(tmp_path: Path) -> None:
    class Refused(RandomTuner):
        """Those that are refused."""

        def _next(self) -> int:
            super()._next()
            return 2 * self.counter - 1

    tuner = network_tuner(
        tmp_path / "trials.jsonl", Refused(sample_task(64, "refuse")), GridSearchTuner(sample_task(8, ""), (0, 5))
    )
    records = tuner.run(100)
    tuner.close()
    bad, good = tuner.states
    assert 0 in [r.error_no for _, r in bad.trials]  # the untuned choice, which is no finalist: it would meet itself
    assert bad.note.startswith("stopped: all of the first 32 trials failed")
    assert tuner._finalists(bad) == []
    assert bad.record is None
    assert {i.config.index for i, _ in good.trials} == set(range(6))
    assert all(inp.task is good.task for inp, _ in records)


def test_untuned_choices_that_take_all_the_time_leave_some_to_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuner = network_tuner(tmp_path / "trials.jsonl", RandomTuner(sample_task(8, "")))
    begin = tuner._begin
    monkeypatch.setattr(tuner, "_begin", lambda: (begin(), time.sleep(0.3)))
    tuner.run(100, minutes=0.3 / 60)
    tuner.close()
    assert tuner.trials_done
