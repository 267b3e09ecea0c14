"""A cluster of processes on this machine: a scheduler and workers that tests end by signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ports import free_port

ROOT = Path(__file__).parents[2]


class Fleet:
    """A scheduler, and workers of it, as processes; what they write goes to a file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.environment = {
            **os.environ, "XDG_CACHE_HOME": str(folder), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            "TMPDIR": str(folder),
        }  # fmt: skip
        self.scheduler = self.start_scheduler()

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{module}.{len(self.processes)}.log", "wb") as log:
            command = [sys.executable, "-m", f"distributed.cli.dask_{module}", *arguments, "--no-dashboard"]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, start_new_session=True)
        self.processes.append(process)
        return process

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        """A scheduler at the fleet's address."""
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--dashboard-address", ":0"
        )
        return self.scheduler

    def start_worker(self) -> subprocess.Popen[bytes]:
        """One more worker."""
        folder = str(self.folder / "dask")
        return self._start("worker", self.address, "--no-nanny", "--nthreads", "1", "--local-directory", folder)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process."""
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)

    def close(self) -> None:
        """Kill all."""
        for process in self.processes:
            if process.poll() is None:
                self.end(process)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A scheduler that no worker has joined."""
    made = Fleet(tmp_path)
    yield made
    made.close()
