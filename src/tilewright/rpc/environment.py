"""Environment of a session's process: a folder for files, modules loaded from it, and the functions of ``testing``."""

from __future__ import annotations

import ctypes
import socket
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory

from tilewright.runtime import _ffi
from tilewright.runtime.export import link_for_loading
from tilewright.runtime.module import Module, load_module
from tilewright.runtime.registry import need_global_func, register_func

from . import channel, testing
from .popen import popen_session

__all__ = ["load_libraries", "prepare", "serve", "testing"]


def load_libraries(names: str | None) -> None:
    """Load shared libraries, with ":" between their paths, for the functions that they register."""
    for name in (names or "").split(":"):
        if name:
            ctypes.CDLL(name, ctypes.RTLD_GLOBAL)


def prepare(folder: Path) -> None:
    """Register the functions that clients of a server call, over files in a folder."""

    def workpath(name: str) -> str:
        return str(folder / name)

    def load(name: str) -> Module:
        return load_module(str(folder / name))

    def download_linked_module(name: str) -> bytes:
        path = folder / name
        if path.suffix in (".so", ".dylib"):
            return path.read_bytes()
        with TemporaryDirectory() as parts:
            return link_for_loading(path, Path(parts)).read_bytes()

    register_func("tvm.rpc.server.workpath", workpath, override=True)
    register_func("tvm.rpc.server.load_module", load, override=True)
    register_func("tvm.rpc.server.download_linked_module", download_linked_module, override=True)


@register_func("tvm.rpc.server.told_error", override=True)
def _told_error() -> None:
    _ffi.forget_exception()


@register_func("rpc.PopenSession", override=True)
def _popen_session(binary: str | bytes) -> Module:
    return popen_session(binary)


def serve(sock: socket.socket) -> None:
    """Serve the client at the other end of a connected socket until it leaves."""
    if isinstance(sock, ssl.SSLSocket):
        channel.serve(sock)
    else:
        need_global_func("rpc.ServerLoop")(sock.fileno())
