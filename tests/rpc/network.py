"""A bad network between clients and a server: a process that passes bytes on late, not at all, or wrong.

It runs as ``python -m tests.rpc.network PORT`` and is told by lines of JSON on its standard input what happens to the
connections that follow; ``Network`` starts one.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Fault:
    """What happens to a connection.

    ``how``, after so many bytes in a ``direction`` ("there" or "back"):

    - ``close``: both sides see an end; ``reset``: both sides see a reset;
    - ``half``: the receiving side sees an end, and the other hears no more;
    - ``stall``: nothing passes any more, in both directions, and no side is told;
    - ``drop``: the next ``count`` bytes are lost; ``flip``: they arrive with all bits changed.
    """

    delay: float = 0.0  # seconds that a byte takes, in both directions
    how: str = ""
    direction: str = "there"
    after: int = 0
    count: int = 1


class Network:
    """The process, in front of the server at ``port``; clients use its own ``port``."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "tests.rpc.network", str(port)]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
        self.port = int(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def set(self, fault: Fault) -> None:
        """Let connections from now on have a fault."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(fault)) + "\n")
        self._process.stdin.flush()
        assert self._read() == "set\n"

    def passed(self) -> dict[str, int]:
        """How many bytes of the last connection have passed, by direction."""
        assert self._process.stdin is not None
        self._process.stdin.write("null\n")
        self._process.stdin.flush()
        found: dict[str, int] = json.loads(self._read())
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def network(port: int) -> Iterator[Network]:
    """A network in front of a port, for the block."""
    made = Network(port)
    try:
        yield made
    finally:
        made.close()


# ---- the process ----


class _Connection:
    def __init__(self, client: socket.socket, server: socket.socket, fault: Fault) -> None:
        self._ends = {"there": (client, server), "back": (server, client)}
        self._fault = fault
        self.passed = {"there": 0, "back": 0}
        self._stalled = threading.Event()
        for direction in self._ends:
            late: queue.Queue[tuple[float, bytes]] = queue.Queue()
            threading.Thread(target=self._take, args=(direction, late), daemon=True).start()
            threading.Thread(target=self._give, args=(direction, late), daemon=True).start()

    def _take(self, direction: str, late: queue.Queue[tuple[float, bytes]]) -> None:
        data = b"."
        while data:
            try:
                data = self._ends[direction][0].recv(1 << 16)
            except OSError:
                data = b""
            late.put((time.monotonic() + self._fault.delay, data))

    def _give(self, direction: str, late: queue.Queue[tuple[float, bytes]]) -> None:
        end = self._ends[direction][1]
        with contextlib.suppress(OSError):
            while True:
                due, data = late.get()
                time.sleep(max(due - time.monotonic(), 0))
                if not data:
                    end.shutdown(socket.SHUT_WR)
                    return
                self._pass(direction, end, data)

    def _pass(self, direction: str, end: socket.socket, data: bytes) -> None:
        fault, before = self._fault, self.passed[direction]
        self.passed[direction] += len(data)
        if fault.how and fault.direction == direction and before <= fault.after < before + len(data):
            data = self._fail(end, data, fault.after - before)
        if not self._stalled.is_set():
            end.sendall(data)

    def _fail(self, end: socket.socket, data: bytes, at: int) -> bytes:
        """Let the fault happen at a place of what is passed; return what to pass on."""
        how, rest = self._fault.how, at + self._fault.count
        if how == "drop":
            return data[:at] + data[rest:]
        if how == "flip":
            return data[:at] + bytes(byte ^ 0xFF for byte in data[at:rest]) + data[rest:]
        end.sendall(data[:at])
        self._stalled.set()
        if how == "half":
            end.shutdown(socket.SHUT_RDWR)
        elif how != "stall":
            for one in self._ends["there"]:
                _end(one, reset=how == "reset")
        return b""


def _end(end: socket.socket, reset: bool) -> None:
    with contextlib.suppress(OSError):
        if not reset:
            end.shutdown(socket.SHUT_RDWR)
            return
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RD)  # nobody reads it any more: closing is the end of it
        end.close()


def _main(port: int) -> None:
    listener = socket.create_server((HOST, 0))
    print(listener.getsockname()[1], flush=True)
    state: dict[str, Fault] = {"fault": Fault()}
    last: list[_Connection] = []

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            server = socket.create_connection((HOST, port))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            last.append(_Connection(client, server, state["fault"]))

    threading.Thread(target=accept, daemon=True).start()
    for line in sys.stdin:
        order = json.loads(line)
        if order is None:
            print(json.dumps(last[-1].passed), flush=True)
        else:
            state["fault"] = Fault(**order)
            print("set", flush=True)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
