"""Functions in processes of their own: results, exceptions, time-outs, deaths."""

from __future__ import annotations

import math
import os
import threading
import time
from pathlib import Path

import pytest

from tilewright.contrib import utils
from tilewright.contrib.popen_pool import PopenPoolExecutor, PopenWorker, StatusKind


def test_a_worker_survives_errors_and_is_replaced_after_deaths() -> None:
    worker = PopenWorker(os.putenv, ("TILEWRIGHT_TEST_VALUE", "7"))
    worker.send(math.hypot, (3, 4))
    assert worker.recv() == 5 and worker.is_alive()
    worker.send(int, ("no number",))
    with pytest.raises(ValueError, match="no number"):
        worker.recv()
    worker.send(int, ("ff",), {"base": 16})
    assert worker.recv() == 255
    worker.send(os._exit, (3,))
    with pytest.raises(ChildProcessError, match="code 3"):
        worker.recv()
    worker.send(time.sleep, (60,), timeout=0.2)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no result within 0\.2 s"):
        worker.recv()
    assert time.monotonic() - began < 30 and not worker.is_alive()
    with pytest.raises(TypeError, match="initializer is a function, not int"):
        PopenWorker(3)  # type: ignore[arg-type]


def test_a_pool_catches_what_ends_calls() -> None:
    pool = PopenPoolExecutor(max_workers=2, timeout=5)
    found = list(pool.map_with_error_catching(math.sqrt, [4.0, -1.0, 9.0]))
    assert [result.status for result in found] == [StatusKind.COMPLETE, StatusKind.EXCEPTION, StatusKind.COMPLETE]
    assert (found[0].value, found[2].value) == (2, 3) and isinstance(found[1].value, ValueError)
    assert pool.submit(pow, 2, 10).result() == 1024


def test_locks_and_names_of_files(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = utils.filelock(str(path))
    worker = PopenWorker()
    worker.send(_try_lock, (str(path),))
    assert worker.recv() == "held by another"
    held.release()
    worker.send(_try_lock, (str(path),))
    assert worker.recv() == "free"
    worker.kill()
    assert utils.is_source_path("a.cc") and not utils.is_source_path("a.so")
    assert utils.which("sh") and utils.which("no_such_program_of_this_name") is None
    with utils.tempdir() as folder:
        assert folder / "x" == Path(folder.path) / "x"
    assert threading.active_count() < 50


def _try_lock(path: str) -> str:
    import fcntl

    with open(path, "w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return "held by another"
        return "free"
