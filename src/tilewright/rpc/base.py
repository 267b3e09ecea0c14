"""The protocol shared by all parts of RPC: TVM 0.8's numbers, and messages of trackers.

A connection to a server begins with a greeting on both sides (``native/src/rpc/socket.c``,
``security.py``); one to a tracker with
``TRACKER_MAGIC`` on both sides, then texts of JSON, each after its size as a little-endian i32.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import json
import secrets
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Any, TypeVar

from tilewright.runtime.error import RPCError

RPC_MAGIC = 0xFF271
RPC_TRACKER_MAGIC = 0x2F271
RPC_CODE_SUCCESS = RPC_MAGIC
RPC_CODE_DUPLICATE = RPC_MAGIC + 1
RPC_CODE_MISMATCH = RPC_MAGIC + 2

GREETING_SECONDS = 5.0
"""How long the other side of a new connection may take to say what it wants."""

_MAX_KEY = 4096
_MAX_MESSAGE = 1 << 20

Address = tuple[str, int]
T = TypeVar("T")


class TrackerCode(IntEnum):
    """The first item of a message to a tracker."""

    FAIL = -1
    SUCCESS = 0
    PING = 1
    STOP = 2
    PUT = 3
    REQUEST = 4
    UPDATE_INFO = 5
    SUMMARY = 6
    GET_PENDING_MATCHKEYS = 7


def random_key(prefix: str) -> str:
    """Return a key that nobody guesses: the prefix and 16 hexadecimal digits."""
    return prefix + secrets.token_hex(8)


# ---- sizes and numbers ----


def _number(data: bytes) -> int:
    return int(struct.unpack("<i", data)[0])


def _bounded(size: int, limit: int) -> int:
    if not 0 <= size <= limit:
        raise RPCError(f"a message of {size} bytes is announced; at most {limit} are taken")
    return size


def _encode(data: Any) -> bytes:
    text = json.dumps(data).encode()
    return struct.pack("<i", len(text)) + text


def greeting(key: str) -> bytes:
    """Return the greeting that opens or accepts a connection, with the key of its sender."""
    return struct.pack("<ii", RPC_MAGIC, len(key.encode())) + key.encode()


def refusal(code: int, reason: str = "") -> bytes:
    """Return a refusal; TVM's clients do not read the reason."""
    data = reason.encode()
    return struct.pack("<i", code) + (struct.pack("<i", len(data)) + data if data else b"")


# ---- for code that waits (clients) ----


def receive_exactly(sock: socket.socket, size: int) -> bytes:
    """Return the next ``size`` bytes.

    Raises:
        ConnectionError: the other side closed before.
    """
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise ConnectionError("the other side closed the connection")
        data += piece
    return bytes(data)


def receive_number(sock: socket.socket) -> int:
    """Return the next i32."""
    return _number(receive_exactly(sock, 4))


def send_json(sock: socket.socket, data: Any) -> None:
    """Send a message to a tracker."""
    sock.sendall(_encode(data))


def receive_json(sock: socket.socket) -> Any:
    """Return a tracker's next message."""
    return json.loads(receive_exactly(sock, _bounded(receive_number(sock), _MAX_MESSAGE)))


def receive_key(sock: socket.socket) -> str:
    """Return the other side's key."""
    return receive_exactly(sock, _bounded(receive_number(sock), _MAX_KEY)).decode()


def check_answer(sock: socket.socket, code: int, key: str, what: str) -> None:
    """Look at the code that answers a client's greeting.

    Raises:
        RPCError: the key is refused, or the other side is no server.
    """
    if code == RPC_CODE_DUPLICATE:
        raise RPCError(f"the key {key!r} is in use at {what}")
    if code == RPC_CODE_MISMATCH:
        reason = ""
        with contextlib.suppress(OSError, RPCError, UnicodeDecodeError):
            reason = receive_key(sock)
        raise RPCError(f"{what} refuses: {reason}" if reason else f"no server at {what} has the key {key!r}")
    if code != RPC_CODE_SUCCESS:
        raise RPCError(f"{what} is no RPC server")


# ---- for services ----


async def read_number(reader: asyncio.StreamReader) -> int:
    """Return the next i32."""
    return _number(await reader.readexactly(4))


async def read_json(reader: asyncio.StreamReader) -> Any:
    """Return the next message."""
    return json.loads(await reader.readexactly(_bounded(await read_number(reader), _MAX_MESSAGE)))


async def write_json(writer: asyncio.StreamWriter, data: Any) -> None:
    """Send a message."""
    writer.write(_encode(data))
    await writer.drain()


async def read_greeting(read: Callable[[int], Awaitable[bytes]]) -> str | None:
    """Return the key that a new connection requests, or None when it does not speak RPC.

    Args:
        read: returns the next bytes of the connection, of a number.
    """
    async with asyncio.timeout(GREETING_SECONDS):
        if _number(await read(4)) != RPC_MAGIC:
            return None
        return (await read(_bounded(_number(await read(4)), _MAX_KEY))).decode()


async def until_done(sock: socket.socket, step: Callable[[], T]) -> T:
    """Repeat a step on a socket that does not block until it needs to wait no more; TLS waits in both directions."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return step()
        except (ssl.SSLWantReadError, BlockingIOError):
            add, remove = loop.add_reader, loop.remove_reader
        except ssl.SSLWantWriteError:
            add, remove = loop.add_writer, loop.remove_writer
        ready = asyncio.Event()
        add(sock, ready.set)
        try:
            await ready.wait()
        finally:
            remove(sock)


async def receive(sock: socket.socket, size: int) -> bytes:
    """Return the next bytes of a socket that no stream reads.

    Raises:
        EOFError: the other side closed before.
    """
    data = b""
    while len(data) < size:
        piece = await until_done(sock, functools.partial(sock.recv, size - len(data)))
        if not piece:
            raise EOFError
        data += piece
    return data


async def send(sock: socket.socket, data: bytes) -> None:
    """Send a few bytes, which the socket's buffer holds, on one that no stream writes to."""
    while data:
        data = data[await until_done(sock, functools.partial(sock.send, data)) :]


def option(key: str, name: str) -> str | None:
    """The value of an option ``-name=value`` that follows a key, or None."""
    for word in key.split()[1:]:
        if word.startswith(f"-{name}="):
            return word.partition("=")[2]
    return None


def session_seconds(key: str) -> float | None:
    """The option ``-timeout=60`` of a key, or None."""
    seconds = float(option(key, "timeout") or 0)
    return seconds if seconds > 0 else None


# ---- sockets ----


def tune(sock: socket.socket) -> None:
    """Disable delays, and detect within 4 seconds that the other side is gone (``tune`` of ``socket.c`` in C)."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("KEEPIDLE", 2), ("KEEPINTVL", 1), ("KEEPCNT", 2), ("USER_TIMEOUT", 4_000)):
        option = getattr(socket, f"TCP_{name}", None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def listen(host: str, port: int, port_end: int) -> socket.socket:
    """Return a socket that listens on the first free port of a range.

    Raises:
        RPCError: no port of the range is free, or this machine has no such address.
    """
    last = max(port_end, port + 1) - 1
    for candidate in range(port, last + 1):
        try:
            return _listen_on(host, candidate)
        except (OSError, OverflowError) as error:
            taken = isinstance(error, PermissionError) or getattr(error, "errno", 0) == errno.EADDRINUSE
            if not taken:
                raise RPCError(f"cannot listen on {host}:{candidate}: {error}") from error
    ports = f"port {port}" if last == port else f"every port from {port} to {last}"
    raise RPCError(f"{ports} of {host} is in use, or not for this user to take; choose another (--port, --port-end)")


def _listen_on(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)[0][0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(64)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    return host in ("localhost", "::1") or host.startswith("127.")
