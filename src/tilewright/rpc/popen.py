"""Programs that serve their pipes, as sessions."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tilewright.runtime.error import RPCError
from tilewright.runtime.module import Module
from tilewright.runtime.registry import need_global_func


def popen_session(binary: str | bytes | bytearray) -> Module:
    """Start a program and return its session; the constructor "rpc.PopenSession" of servers."""
    if isinstance(binary, str):
        path = os.path.abspath(binary)
        if not os.path.isfile(path):
            raise RPCError(f"there is no program {path}")
        module: Module = need_global_func("rpc.CreatePipeClient")(path)
        return module
    with tempfile.TemporaryDirectory(prefix="tilewright-rpc-") as folder:
        program = Path(folder) / "server"
        program.write_bytes(binary)
        program.chmod(0o700)
        started: Module = need_global_func("rpc.CreatePipeClient")(str(program))
        return started
