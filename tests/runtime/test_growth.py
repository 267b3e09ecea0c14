"""Servers run for months: loads, runs and threads leave nothing behind. By ``make soak``."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilewright

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
PIXELS = {"pixels": np.random.default_rng(0).random((1, 1, 8, 8), dtype="float32")}


def resident_and_open() -> tuple[int, int]:
    """Return this process's bytes of memory, and how many files it has open."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE"), len(os.listdir("/proc/self/fd"))


def grows(act: Callable[[], object], times: int, warm_up: int) -> tuple[int, int]:
    """Return by how many bytes and open files the process grows while it acts so many times."""
    for _ in range(warm_up):
        act()
    before = resident_and_open()
    for _ in range(times):
        act()
    after = resident_and_open()
    return after[0] - before[0], after[1] - before[1]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("growth") / "digits.so"
    tilewright.compile(DIGITS).save(path)
    return path


@pytest.mark.soak
def test_a_thousand_loads_leave_nothing(library: Path) -> None:
    nbytes, files = grows(lambda: tilewright.load(library).run(PIXELS), 1000, warm_up=100)
    assert nbytes < 2_000_000 and files == 0


@pytest.mark.soak
def test_ten_thousand_runs_leave_nothing(library: Path) -> None:
    model = tilewright.load(library)
    nbytes, files = grows(lambda: model.run(PIXELS), 10_000, warm_up=200)
    assert nbytes < 2_000_000 and files == 0


@pytest.mark.soak
def test_a_hundred_threads_at_a_time_leave_nothing_and_agree(library: Path) -> None:
    model = tilewright.load(library)
    (expected,) = model.run(PIXELS).values()
    wrong: list[int] = []

    def serve() -> None:
        for turn in range(20):
            (found,) = model.run(PIXELS).values()
            if not np.array_equal(found, expected):
                wrong.append(turn)

    def act() -> None:
        threads = [threading.Thread(target=serve) for _ in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    nbytes, files = grows(act, 6, warm_up=2)
    assert not wrong and nbytes < 4_000_000 and files == 0
