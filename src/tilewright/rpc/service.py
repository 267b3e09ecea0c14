"""Servers, trackers and proxies as processes: each is a coroutine that a child process runs.

The child is told what to do by a line of JSON on its standard input, reports its port by another on its standard
output, and ends when its standard input closes, which it does however this process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import importlib
import json
import logging
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

from tilewright.runtime.error import RPCError
from tilewright.runtime.partial_files import is_alive


class Service:
    """A child process that runs ``tilewright.rpc.KIND.run(config, report)``.

    ``reported`` is its message when it became ready.

    Raises:
        RPCError: it could not start; the message is its own.
    """

    def __init__(self, kind: str, config: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tilewright.rpc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _end, self._process)
        assert self._process.stdin is not None and self._process.stdout is not None
        line = json.dumps({"kind": kind, "path": sys.path, "config": config})
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        self.reported = self._read_report(kind)

    def _read_report(self, kind: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        report: dict[str, Any] = (
            json.loads(line) if line else {"error": f"its process ended with {self._process.wait()}"}
        )
        if "error" in report:
            self.terminate()
            raise RPCError(f"the {kind} did not start: {report['error']}")
        return report

    def terminate(self) -> None:
        """End the process and those that it started."""
        self._end()


_FOLDERS = f"tilewright-rpc-{platform.node()}-"  # the process that made it follows


def session_folder() -> str:
    """Return a new folder for a session of this process."""
    return tempfile.mkdtemp(prefix=f"{_FOLDERS}{os.getpid()}-")


def remove_abandoned() -> None:
    """Remove folders of sessions whose servers, processes of this machine, were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{glob.escape(_FOLDERS)}*"):
        process = re.fullmatch(r"(\d+)-\w+", folder.name.removeprefix(_FOLDERS))
        if process and not is_alive(int(process[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        remove_abandoned()


def _report(data: dict[str, Any]) -> None:
    print(json.dumps(data), flush=True)


async def _run(kind: str, config: dict[str, Any]) -> None:
    """Run a service until it ends or the standard input does."""
    main = asyncio.ensure_future(importlib.import_module(f"tilewright.rpc.{kind}").run(config, _report))
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    parent = asyncio.ensure_future(reader.read())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, main.cancel)
    await asyncio.wait([main, parent], return_when=asyncio.FIRST_COMPLETED)
    main.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await main


def main() -> int:
    """Read the configuration, run the service, and return the process's status."""
    line = os.read(0, 1 << 20)
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 20)
        if not piece:
            return 1
        line += piece
    order = json.loads(line)
    sys.path[:] = order["path"]
    config = order["config"]
    logging.basicConfig(level=logging.ERROR if config.get("silent") else logging.WARNING)
    try:
        asyncio.run(_run(order["kind"], config))
    except Exception as error:
        _report({"error": f"{type(error).__name__}: {error}"})
        return 1
    return 0
