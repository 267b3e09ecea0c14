"""Packets over what Python reads and writes, TLS among it: C does it by callbacks on its own memory."""

from __future__ import annotations

import ctypes
import itertools
import math
import ssl
import time
from collections.abc import Sequence
from typing import Any, Protocol

from tilewright.runtime._ffi import LIB, Finalizer, Receive, RpcCallbacks, Send, check_call, set_last_error
from tilewright.runtime.module import Module
from tilewright.runtime.packed_func import pack_args

_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.argtypes, _view.restype = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int), ctypes.py_object
_READ, _WRITE = 0x100, 0x200


class Channel(Protocol):
    """Bytes in both directions. What ``send`` and ``receive`` raise ends the session."""

    def send(self, data: memoryview) -> None:
        """Send all bytes."""

    def receive(self, buffer: memoryview, least: int) -> int:
        """Receive at least so many bytes into the buffer, fewer only at the end; return how many."""


class _Socket:
    """A socket, and until when to wait for it."""

    def __init__(self, sock: ssl.SSLSocket, deadline: float) -> None:
        self._socket, self._deadline = sock, deadline

    def _wait_no_longer(self) -> None:
        if self._deadline < math.inf:
            self._socket.settimeout(max(self._deadline - time.monotonic(), 1e-3))

    def send(self, data: memoryview) -> None:
        while data:
            self._wait_no_longer()
            data = data[self._socket.send(data) :]

    def receive(self, buffer: memoryview, least: int) -> int:
        got = 0
        while got < least:
            self._wait_no_longer()
            size = self._socket.recv_into(buffer[got:])
            if size == 0:
                break
            got += size
        return got


_channels: dict[int, Channel] = {}
_numbers = itertools.count(1)


def _fail(error: BaseException) -> int:
    if isinstance(error, OSError):  # TLS's errors among them
        text = f"RPCError: the connection to the other side is lost: {error.strerror or error}"
        LIB.TVMAPISetLastError(text.encode("utf-8", "replace"))
    else:
        set_last_error(error)
    return -1


@Send
def _send(number: int, data: int, size: int) -> int:
    try:
        _channels[number].send(_view(data, size, _READ))
    except BaseException as error:
        return _fail(error)
    return 0


@Receive
def _receive(number: int, data: int, least: int, most: int, received: Any) -> int:
    try:
        received[0] = _channels[number].receive(_view(data, most, _WRITE), least)
    except BaseException as error:
        return _fail(error)
    return 0


@Finalizer
def _close(number: int) -> None:
    if _channels is not None:  # when Python ends, it takes modules apart before what C still holds
        _channels.pop(number, None)


_CALLBACKS = RpcCallbacks(_send, _receive, _close)


def _enter(channel: Channel) -> int:
    number = next(_numbers)
    _channels[number] = channel
    return number


def _over(sock: ssl.SSLSocket, deadline: float = math.inf) -> Channel:
    sock.settimeout(None)
    return _Socket(sock, deadline)


def serve(sock: ssl.SSLSocket) -> None:
    """Serve the client at the other end until it leaves."""
    check_call(LIB.TilewrightRpcServeOver(_CALLBACKS, _enter(_over(sock))))


def session_over(sock: ssl.SSLSocket, seconds: float, deadline: float, constructor: Sequence[Any]) -> Module:
    """Return a session with the server at the other end, which ends after some seconds (0: never).

    Args:
        deadline: on the monotonic clock; nothing is waited for longer than that.
        constructor: name and arguments of the server's function that makes the session; none for its own.
    """
    return connect(_over(sock, deadline), seconds, constructor)


def connect(channel: Channel, seconds: float = 0, constructor: Sequence[Any] = ()) -> Module:
    """Return a session with the server at the other end of a channel; other arguments as of ``session_over``."""
    values, codes, keep = pack_args(constructor)
    out = ctypes.c_void_p()
    number = _enter(channel)
    check_call(LIB.TilewrightRpcConnectOver(_CALLBACKS, number, seconds, values, codes, len(constructor), out))
    del keep
    assert out.value is not None
    return Module(out.value)
