"""The client's side: sessions on servers, and trackers."""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tilewright.runtime.device import RPC_SESS_MASK, Device, device
from tilewright.runtime.error import RPCError, RPCSessionTimeoutError, TVMError
from tilewright.runtime.module import Module
from tilewright.runtime.packed_func import PackedFunc
from tilewright.runtime.registry import need_global_func

from . import base, security
from .base import TrackerCode
from .popen import popen_session
from .result_buffer import call_for_bytes

T = TypeVar("T")

_CONNECT_SECONDS = 10.0
_RESTART_SECONDS = 10.0  # for a tracker to come back
_ANSWER_SECONDS = 10.0  # for what a tracker knows at once
_RETRY_SECONDS = 0.3
_TURN_SECONDS = 60.0  # a server serves one client at a time
_MAPPED_FROM = 1 << 20  # bytes of a file from which on mapping it costs less than reading it


class RemoteDevice(Device):
    """A device of a session, which it keeps."""

    session: RPCSession

    @property
    def _rpc_sess(self) -> RPCSession:  # TVM's name
        return self.session


class RPCSession:
    """A session on a server: its functions, files, modules and devices. :func:`connect` makes one.

    Calls wait for their results; several threads may make them, and take turns. The session ends when nothing of it is
    left: neither this object nor a device, array, module or function that came from it.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._index: int = need_global_func("rpc.SessTableIndex")(module)
        self._functions: dict[str, PackedFunc] = {}

    def get_function(self, name: str) -> PackedFunc:
        """Return a global function of the server.

        Raises:
            AttributeError: there is none.
        """
        return self._module.get_function(name)

    def _function(self, name: str) -> PackedFunc:
        if name not in self._functions:
            self._functions[name] = self.get_function(f"tvm.rpc.server.{name}")
        return self._functions[name]

    def _call(self, name: str, *args: Any) -> Any:
        return self._function(name)(*args)

    def system_lib(self) -> Module:
        """Return the module that is linked into the server's program."""
        module: Module = self.get_function("runtime.SystemLib")()
        return module

    def upload(self, data: str | Path | bytes | bytearray, target: str | None = None) -> None:
        """Send a file, or bytes, to the server's folder.

        Args:
            data: the file's path, or the contents.
            target: the name it gets; a file's own by default.

        Raises:
            ValueError: bytes without a name.
        """
        if isinstance(data, (bytes, bytearray)):
            if not target:
                raise ValueError("bytes need a target: the name of the file on the server")
            self._call("upload", target, data)
            return
        name, file = target or os.path.basename(data), Path(data)
        if file.stat().st_size < _MAPPED_FROM:
            self._call("upload", name, file.read_bytes())
            return
        with file.open("rb") as opened:
            mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        self._call("upload", name, memoryview(mapped))  # it is unmapped when nothing holds it any more

    def download(self, path: str) -> bytearray:
        """Return the contents of a file in the server's folder."""
        return call_for_bytes(self._function("download"), path)

    def remove(self, path: str) -> None:
        """Remove a file from the server's folder."""
        self._call("remove", path)

    def load_module(self, path: str) -> Module:
        """Load a library that was uploaded; its functions run on the server, on arrays of the session's devices."""
        module: Module = need_global_func("rpc.LoadRemoteModule")(self._module, path)
        return module

    def download_linked_module(self, path: str) -> bytearray:
        """Let the server link an uploaded object (.o) or archive of objects (.tar), and return the library."""
        return call_for_bytes(self._function("download_linked_module"), path)

    def device(self, dev_type: Any, dev_id: int = 0) -> RemoteDevice:
        """Return a device of the server, by name or number as in ``tvm.device``."""
        local = device(dev_type, dev_id)
        remote = RemoteDevice(local.device_type + RPC_SESS_MASK * (self._index + 1), dev_id)
        remote.session = self
        return remote

    def cpu(self, dev_id: int = 0) -> RemoteDevice:
        """Return the server's CPU."""
        return self.device(1, dev_id)

    def cuda(self, dev_id: int = 0) -> RemoteDevice:
        """Return an NVIDIA GPU of the server."""
        return self.device(2, dev_id)

    def cl(self, dev_id: int = 0) -> RemoteDevice:
        """Return an OpenCL device of the server."""
        return self.device(4, dev_id)

    def vulkan(self, dev_id: int = 0) -> RemoteDevice:
        """Return a Vulkan device of the server."""
        return self.device(7, dev_id)

    def metal(self, dev_id: int = 0) -> RemoteDevice:
        """Return a Metal device of the server."""
        return self.device(8, dev_id)

    def rocm(self, dev_id: int = 0) -> RemoteDevice:
        """Return an AMD GPU of the server."""
        return self.device(10, dev_id)

    def ext_dev(self, dev_id: int = 0) -> RemoteDevice:
        """Return an extension device (accelerator) of the server."""
        return self.device(12, dev_id)

    def hexagon(self, dev_id: int = 0) -> RemoteDevice:
        """Return a Hexagon device of the server."""
        return self.device(14, dev_id)

    def webgpu(self, dev_id: int = 0) -> RemoteDevice:
        """Return a WebGPU device of the server."""
        return self.device(15, dev_id)


class LocalSession(RPCSession):
    """A session on this process, with a folder of its own, for code written for servers."""

    def __init__(self) -> None:
        import tempfile

        from . import environment

        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-rpc-")
        environment.prepare(Path(self._folder.name))
        super().__init__(need_global_func("rpc.LocalSession")())


class PopenSession(RPCSession):
    """A session on a program that serves its pipes; :func:`with_minrpc` links one.

    Args:
        binary: the program's path, or its contents.

    Raises:
        RPCError: there is no such program, or it cannot be run.
    """

    def __init__(self, binary: str | bytes | bytearray) -> None:
        super().__init__(popen_session(binary))


def connect(
    url: str,
    port: int,
    key: str = "",
    session_timeout: float = 0,
    session_constructor_args: Sequence[Any] | None = None,
    secret: str | None = None,
    pairing: str | None = None,
) -> RPCSession:
    """Connect to a server.

    Args:
        url: its host.
        port: its port.
        key: the key that it was started with.
        session_timeout: seconds after which the server ends the session, whatever it does; 0 for no end.
        session_constructor_args: name and arguments of a function of the server that makes the session: with
            ``["rpc.Connect", host, port, key]`` the server itself is a client, of one that this machine cannot reach.
        secret: the server's secret; ``TILEWRIGHT_RPC_SECRET`` by default.
        pairing: the code that the server printed; by default that stored by ``tilewright rpc-pair``. Data then goes
            through TLS, to that server only.

    Raises:
        RPCError: there is no such server, or it refuses, or it is not the one of the pairing; at the latest after some
            seconds.
        RPCSessionTimeoutError: from any use of the session, after its time.
    """
    if session_timeout:
        key += f" -timeout={session_timeout}"
    arguments = list(session_constructor_args or ())
    access = security.Access.to((url, port), secret, pairing)
    if not access.exchanges():
        return RPCSession(need_global_func("rpc.Connect")(url, port, key, *arguments))
    what = f"{url}:{port}"
    try:
        sock = socket.create_connection((url, port), _CONNECT_SECONDS)
        base.tune(sock)
        sock.settimeout(_TURN_SECONDS)
        sock = access.greet(sock, key, what)
    except OSError as error:
        raise RPCError(f"cannot connect to {what}: {error}") from None
    return RPCSession(security.session_over(sock, float(session_timeout), arguments))


class TrackerSession:
    """A connection to a tracker. :func:`connect_tracker` makes one."""

    def __init__(self, addr: base.Address) -> None:
        self._address = addr
        self._socket: socket.socket | None = None
        self._connect()

    @property
    def _name(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    def _connect(self) -> socket.socket:
        if self._socket is None:
            what = self._name
            try:
                sock = socket.create_connection(self._address, _CONNECT_SECONDS)
                sock.sendall(base.refusal(base.RPC_TRACKER_MAGIC))
                magic = base.receive_number(sock)
            except OSError as error:
                raise RPCError(f"cannot connect to the tracker {what}: {error}") from None
            if magic != base.RPC_TRACKER_MAGIC:
                raise RPCError(f"{what} is no RPC tracker")
            base.tune(sock)
            self._socket = sock
        return self._socket

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __del__(self) -> None:
        if getattr(self, "_socket", None) is not None:
            self.close()

    def _ask(self, *message: Any) -> Any:
        """Send a message and return the answer; a tracker that has gone away has some seconds to come back."""
        end = None
        while True:
            try:
                sock = self._connect()
                sock.settimeout(None if message[0] == TrackerCode.REQUEST else _ANSWER_SECONDS)
                base.send_json(sock, message)
                answer = base.receive_json(sock)
                break
            except (OSError, RPCError) as error:
                self.close()
                end = end or time.monotonic() + _RESTART_SECONDS
                if time.monotonic() > end:
                    raise RPCError(f"the tracker {self._name} is gone: {error}") from None
                time.sleep(_RETRY_SECONDS)
        if not isinstance(answer, list) or answer[0] != TrackerCode.SUCCESS:
            raise RPCError(f"the tracker refused the request: {answer}")
        return answer[1]

    def summary(self) -> dict[str, Any]:
        """Return boards (``server_info``) and, by key, how many are free and how many clients wait (``queue_info``)."""
        found: dict[str, Any] = self._ask(TrackerCode.SUMMARY)
        return found

    def text_summary(self) -> str:
        """Return the summary as a table."""
        return format_summary(self.summary())

    def request(
        self,
        key: str,
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 5,
        session_constructor_args: Sequence[Any] | None = None,
        secret: str | None = None,
        pairing: str | None = None,
    ) -> RPCSession:
        """Wait for a board of a kind and return a session on it.

        Args:
            key: the kind.
            priority: who has a higher one is served first.
            session_timeout: seconds after which the board ends the session; 0 for no end.
            max_retry: how many unreachable boards of the tracker to try.
            session_constructor_args: as in :func:`connect`.
            secret, pairing: as in :func:`connect`.

        Raises:
            RPCError: no board could be reached.
        """
        last: Exception | None = None
        for _ in range(max_retry):
            host, port, match_key = self._ask(TrackerCode.REQUEST, key, "", priority)
            try:
                return connect(host, port, match_key, session_timeout, session_constructor_args, secret, pairing)
            except TVMError as error:
                last = error
        raise RPCError(f"none of {max_retry} boards of kind {key!r} could be used; of the last: {last}")

    def request_and_run(
        self,
        key: str,
        func: Callable[[RPCSession], T],
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 2,
    ) -> T:
        """Request a board and call a function with its session; when the board is lost, again with another.

        Raises:
            RPCSessionTimeoutError: the session's time was over.
            RPCError: every board was lost.
        """
        last: Exception | None = None
        for _ in range(max_retry):
            session = self.request(key, priority=priority, session_timeout=session_timeout)
            start = time.monotonic()
            try:
                return func(session)
            except RPCError as error:
                if session_timeout and time.monotonic() - start >= 0.95 * session_timeout:
                    name = getattr(func, "__name__", "the function")
                    raise RPCSessionTimeoutError(f"{name} took more than {session_timeout} s") from error
                last = error
        raise RPCError(f"{key!r} failed {max_retry} times; at last: {last}")


def format_summary(summary: dict[str, Any]) -> str:
    """Return a tracker's state as a table: each board, then each kind with its total, free and waiting."""
    boards = [
        (f"{item['addr'][0]}:{item['addr'][1]}", item["key"].partition(":")[2]) for item in summary["server_info"]
    ]
    queues = summary["queue_info"]
    rows = [("server-address", "key"), *sorted(boards)]
    kinds = [("key", "total", "free", "pending")]
    for key in sorted({*queues, *(kind for _, kind in boards)}):
        queue = queues.get(key, {"free": 0, "pending": 0})
        kinds.append((key, str(sum(kind == key for _, kind in boards)), str(queue["free"]), str(queue["pending"])))
    return "Server List\n" + _table(rows) + "\nQueue Status\n" + _table(kinds)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    rule = "-" * max(map(len, lines))
    return "\n".join([rule, lines[0], rule, *lines[1:], rule]) + "\n"


def connect_tracker(url: str, port: int) -> TrackerSession:
    """Connect to a tracker.

    Raises:
        RPCError: there is none.
    """
    return TrackerSession((url, port))


def tracker_address(host: str | None = None, port: int | None = None) -> tuple[str, int]:
    """Return a tracker's host and port; what is None is said by ``TVM_TRACKER_HOST`` and ``TVM_TRACKER_PORT``, or is
    port 9190 of this machine.
    """
    return (
        host or os.environ.get("TVM_TRACKER_HOST", "127.0.0.1"), port or int(os.environ.get("TVM_TRACKER_PORT", "9190"))
    )  # fmt: skip


def request_remote(
    device_key: str, host: str | None = None, port: int | None = None, priority: int = 1, timeout: float = 60
) -> RPCSession:
    """Return a session on a board of a kind, from a tracker.

    Args:
        device_key: the kind.
        host, port: of the tracker, as ``tracker_address`` completes them.
        priority: who has a higher one is served first.
        timeout: seconds after which the board ends the session; 0 for no end.

    Raises:
        RPCError: there is no tracker, or no board could be reached.
    """
    tracker = connect_tracker(*tracker_address(host, port))
    try:
        return tracker.request(device_key, priority, timeout)
    finally:
        tracker.close()
