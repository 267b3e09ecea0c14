"""How fast calls, copies and measurements through RPC are, over loopback, beside a raw socket.

    python -m benchmarks.rpc

The server is a process of its own, and so is the raw socket's other end. Copies go to and from arrays that were used
before, as the raw socket's buffers were. An upload ends in a file that was not there before and a download in new
memory; so do "to a file" and "from a file" of the raw socket, which are what they are compared with. Each figure is the
median of runs in turns. The last line measures 100 libraries one after the other, each
uploaded, loaded, its kernel timed, and removed; the sum is that of all runs of the kernel, the first of each
included.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tilewright as tvm
from tilewright import rpc, te
from tilewright.rpc.client import RPCSession

_TURNS = 9
_CALLS = 2000
_KERNEL_SECONDS = 0.01
_RUNS = 3  # timed, of each kernel
_CHUNK = 1 << 20
_PIECE = 256 << 10  # between socket and file


def timed(run: Callable[[], object]) -> float:
    """Seconds of one run."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def call_seconds(session: RPCSession) -> float:
    """Seconds of a call of a C function of the server that does nothing."""
    empty = session.get_function("cache_flush_cpu_non_first_arg")  # of no arrays
    empty()

    def calls() -> None:
        for _ in range(_CALLS):
            empty()

    return statistics.median(timed(calls) for _ in range(_TURNS)) / _CALLS


class RawSocket:
    """A socket whose other end, a process, swallows or gives ``nbytes``."""

    def __init__(self, nbytes: int) -> None:
        self._buffer = bytearray(nbytes)
        self._socket, end = _tcp_pair()
        self._process = multiprocessing.get_context("fork").Process(
            target=_other_end, args=(self._socket, end, nbytes), daemon=True
        )
        self._process.start()
        end.close()

    def send(self) -> None:
        """Send, until the other end has all in memory."""
        self._send(b"s")

    def send_to_file(self) -> None:
        """Send, until the other end has all in a new file."""
        self._send(b"f")

    def _send(self, order: bytes) -> None:
        self._socket.sendall(order)
        self._socket.sendall(self._buffer)
        self._socket.recv(1)

    def receive(self) -> None:
        """Ask for the bytes, until they are here."""
        self._socket.sendall(b"r")
        _receive(self._socket, self._buffer)

    def receive_from_file(self) -> None:
        """Ask for the bytes of the file, until they are here in new memory."""
        self._socket.sendall(b"g")
        _receive(self._socket, bytearray(len(self._buffer)))

    def close(self) -> None:
        """Both ends."""
        self._socket.close()
        self._process.join()


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    return one, other


def _other_end(this_end: socket.socket, end: socket.socket, nbytes: int) -> None:
    this_end.close()  # the copy of this process: the other's must be the last
    memory = bytearray(nbytes)
    with tempfile.TemporaryDirectory() as folder, end:
        path = os.path.join(folder, "file")
        while order := end.recv(1):
            if order == b"s":
                _receive(end, memory)
                end.sendall(b".")
            elif order == b"f":
                _receive_file(end, path, nbytes)
                end.sendall(b".")
            elif order == b"r":
                end.sendall(memory)
            else:
                _send_file(end, path)


def _receive(end: socket.socket, memory: bytearray) -> None:
    view = memoryview(memory)
    while view:
        view = view[end.recv_into(view, min(len(view), _CHUNK)) :]


def _receive_file(end: socket.socket, path: str, nbytes: int) -> None:
    piece = memoryview(bytearray(_PIECE))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with open(path, "wb", buffering=0) as file:
        while nbytes:
            nbytes -= file.write(piece[: end.recv_into(piece, min(nbytes, _PIECE))])


def _send_file(end: socket.socket, path: str) -> None:
    piece = memoryview(bytearray(_PIECE))
    with open(path, "rb", buffering=0) as file:
        while size := file.readinto(piece):
            end.sendall(piece[:size])


def copy_seconds(session: RPCSession, nbytes: int) -> dict[str, list[float]]:
    """Seconds of copies, by kind, in turns."""
    raw, host = RawSocket(nbytes), tvm.nd.array(np.zeros(nbytes, np.uint8))
    remote = tvm.nd.empty((nbytes,), "uint8", session.cpu(0))
    data = host.numpy().tobytes()
    kinds: dict[str, Callable[[], object]] = {
        "raw socket, there": raw.send,
        "array, there": lambda: host.copyto(remote),
        "raw socket, back": raw.receive,
        "array, back": lambda: remote.copyto(host),
        "raw socket to a file": raw.send_to_file,
        "upload": lambda: session.upload(data, "data"),
        "raw socket from a file": raw.receive_from_file,
        "download": lambda: session.download("data"),
    }
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(_TURNS + 1):
        for kind, run in kinds.items():
            seconds = timed(run)
            if turn:
                taken[kind].append(seconds)
    raw.close()
    return taken


def _kernel(folder: Path) -> tuple[Path, list[tvm.nd.NDArray]]:
    """A library whose function takes about 10 ms here, and its arguments."""
    length, rows = 4096, 64
    while True:
        x = te.placeholder((rows, length), name="x")
        k = te.reduce_axis((0, length), name="k")
        y = te.compute((rows,), lambda i, x=x, k=k: te.sum(te.sqrt(x[i, k]), axis=k), name="y")
        module = tvm.build(te.create_schedule(y.op), [x, y], "llvm")
        arguments = [tvm.nd.array(np.ones((rows, length), "float32")), tvm.nd.array(np.zeros(rows, "float32"))]
        seconds = module.time_evaluator(module.entry_name, tvm.cpu(0), number=3)(*arguments).mean
        if seconds > 0.7 * _KERNEL_SECONDS:
            path = folder / "kernel.so"
            module.export_library(str(path))
            return path, arguments
        rows = max(rows + 1, int(rows * min(_KERNEL_SECONDS / seconds, 16.0)))


def measuring(session: RPCSession, count: int) -> tuple[float, float]:
    """Seconds of measuring ``count`` libraries, and of all runs of their kernels."""
    with tempfile.TemporaryDirectory() as folder:
        path, local = _kernel(Path(folder))
        data = path.read_bytes()
    remote = [tvm.nd.array(a, session.cpu(0)) for a in local]
    runs = 0.0
    begin = time.perf_counter()
    for i in range(count):
        name = f"kernel{i}.so"
        session.upload(data, name)
        module = session.load_module(name)
        evaluate = module.time_evaluator(module.entry_name, session.cpu(0), number=1, repeat=_RUNS)
        costs = evaluate(*remote).results
        runs += sum(costs) + costs[0]  # there is one run before those that are timed
        session.remove(name)
    return time.perf_counter() - begin, runs


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mebibytes", type=int, default=64, help="size of a copy (default: 64)")
    parser.add_argument("--kernels", type=int, default=100, help="how many libraries are measured (default: 100)")
    options = parser.parse_args()
    server = rpc.Server(host="127.0.0.1", silent=True)
    try:
        session = rpc.connect("127.0.0.1", server.port)
        print(f"empty call             {1e6 * call_seconds(session):8.1f} us")
        nbytes = options.mebibytes << 20
        taken = {kind: statistics.median(times) for kind, times in copy_seconds(session, nbytes).items()}
        raw = 0.0
        for kind, seconds in taken.items():
            raw = seconds if kind.startswith("raw") else raw
            of_raw = "" if kind.startswith("raw") else f"  {100 * raw / seconds:5.0f} % of that"
            print(f"{kind:22s} {nbytes / seconds / 1e9:8.2f} GB/s{of_raw}")
        whole, runs = measuring(session, options.kernels)
        print(
            f"{options.kernels} measurements {whole:15.2f} s, {whole / runs:.3f} times the {runs:.2f} s of their runs"
        )
    finally:
        server.terminate()


if __name__ == "__main__":
    main()
