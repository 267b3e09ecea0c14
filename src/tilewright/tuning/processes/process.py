"""Worker processes: JSON messages to and from them, and their exit.

A message is four bytes of length, little-endian, and JSON text. A worker answers every request with
``{"value": ...}`` or ``{"error": message, "kind": exception's class, "traceback": text}``.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import IO, Any

_LENGTH = struct.Struct("<I")
_SAID = 2000  # bytes of a process' output that are reported

Handler = Callable[[Any], Any]


def _forget_others() -> None:
    """Close, in a forked child, the pipes to the parent's other workers."""
    for worker in list(_workers):
        worker.close_pipes()
    _workers.clear()


class Worker:
    """One process. ``send`` a request, wait until ``reader`` is readable, ``receive`` the answer."""

    def __init__(self, pid: int, reader: int, writer: int, said: IO[bytes]) -> None:
        self.pid, self.reader, self.writer = pid, reader, writer
        self.answered = 0
        self._said = said
        self._received = bytearray()
        self._status: int | None = None
        _workers.add(self)

    def send(self, request: Any) -> None:
        """Send a request; raises OSError when the process is gone."""
        _write_all(self.writer, request)

    def receive(self) -> dict[str, Any] | None:
        """An answer, or None while it is not whole. Raises EOFError when the process ended."""
        chunk = os.read(self.reader, 1 << 16)
        if not chunk:
            raise EOFError
        self._received += chunk
        if len(self._received) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._received)
        if len(self._received) < _LENGTH.size + length:
            return None
        answer: dict[str, Any] = json.loads(self._received[_LENGTH.size :])
        self._received.clear()
        self.answered += 1
        return answer

    def fate(self) -> str:
        """Describe how the process ended, with its last output."""
        status = self._wait(5.0)
        if status is None:
            how = "does not end"
        elif os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            how = f"was ended by {signal.Signals(number).name}" if number < signal.SIGRTMIN else f"by signal {number}"
        else:
            how = f"ended with status {os.WEXITSTATUS(status)}"
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - _SAID))
        text = self._said.read().decode(errors="replace").strip()
        return f"{how}: {text}" if text else how

    def _wait(self, seconds: float) -> int | None:
        """The process's status, once it ended; it is waited for as long."""
        end = time.monotonic() + seconds
        while self._status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._status = 0
                break
            if pid:
                self._status = status
            elif time.monotonic() > end:
                break
            else:
                time.sleep(0.001)
        return self._status

    def close_pipes(self) -> None:
        """Close the pipes: a worker that waits for a request then ends."""
        for fd in (self.reader, self.writer):
            with contextlib.suppress(OSError):
                os.close(fd)
        self.reader = self.writer = -1

    def close(self) -> None:
        """End the process at once."""
        if self._status is None:
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
        self.close_pipes()
        self._wait(5.0)
        self._said.close()
        _workers.discard(self)


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


def _write_all(fd: int, message: Any) -> None:
    data = json.dumps(message).encode()
    view = memoryview(_LENGTH.pack(len(data)) + data)
    while view:
        view = view[os.write(fd, view) :]


def _read_exactly(fd: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = os.read(fd, count - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


def serve(handle: Handler, reader: int, writer: int) -> None:
    """Answer requests by ``handle``, until the other side is gone."""
    while True:
        try:
            (length,) = _LENGTH.unpack(_read_exactly(reader, _LENGTH.size))
            request = json.loads(_read_exactly(reader, length))
        except EOFError:
            return
        try:
            answer = {"value": handle(request)}
        except Exception as error:
            answer = {"error": str(error), "kind": type(error).__name__, "traceback": traceback.format_exc()}
        try:
            _write_all(writer, answer)
        except BrokenPipeError:
            return


def fork_worker(handle: Handler, begin: Callable[[], None] | None = None) -> Worker:
    """Fork this process to answer requests by ``handle``, with all state of this process.

    It ignores Ctrl-C, which is this process's business, and ends when this process ends. ``begin`` is called
    in it first.
    """
    to_child, from_parent = os.pipe(), os.pipe()
    said = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the worker)
    sys.stdout.flush()
    sys.stderr.flush()
    with _no_llvm_call():
        pid = os.fork()
    if pid:
        os.close(to_child[0])
        os.close(from_parent[1])
        return Worker(pid, from_parent[0], to_child[1], said)
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        gc.freeze()  # what is shared with the parent is left alone
        _forget_others()
        os.close(to_child[1])
        os.close(from_parent[0])
        for fd in (1, 2):
            os.dup2(said.fileno(), fd)
        if begin is not None:
            begin()
        serve(handle, to_child[0], from_parent[1])
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _no_llvm_call() -> Any:
    """Return a context in which no thread of this process is inside LLVM: a fork would copy its lock held."""
    ffi = sys.modules.get("llvmlite.binding.ffi")
    lock = getattr(getattr(ffi, "lib", None), "_lock", None)
    return lock if lock is not None else contextlib.nullcontext()


def start_worker(program: str, arguments: Sequence[str] = ()) -> Worker:
    """A new Python process that runs the module ``program``, which serves on the descriptors that are its arguments."""
    to_child, from_parent = os.pipe(), os.pipe()
    said = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the worker)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", program, str(to_child[0]), str(from_parent[1]), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment,
            pass_fds=(to_child[0], from_parent[1]),
            start_new_session=True,
        )
    finally:
        os.close(to_child[0])
        os.close(from_parent[1])
    process.returncode = 0  # the worker waits for the process, not the object
    return Worker(process.pid, from_parent[0], to_child[1], said)
