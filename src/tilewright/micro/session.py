"""Sessions on boards: remote calls over a project's line."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from tilewright.contrib import graph_executor
from tilewright.contrib.debugger import debug_executor
from tilewright.micro.frames import FrameError, FrameReader, framed
from tilewright.micro.project import TemplateProject
from tilewright.micro.transport import (
    IoTimeoutError,
    Transport,
    TransportClosedError,
    TransportLogger,
    TransportTimeouts,
)
from tilewright.rpc import RPCSession
from tilewright.rpc.channel import connect
from tilewright.runtime.device import Device
from tilewright.runtime.error import TVMError
from tilewright.runtime.module import Module
from tilewright.runtime.registry import need_global_func

_READ_BYTES = 4096


class SessionTerminatedError(TVMError):
    """The board has ended the session, by a reset or by going away."""


class _Line:
    """A transport as a channel of remote calls, which reads and writes its memory."""

    def __init__(self, transport: Transport, timeouts: TransportTimeouts) -> None:
        self._transport, self._timeouts = transport, timeouts
        self._started, self._frames = False, FrameReader()

    def send(self, data: memoryview) -> None:
        """Write all bytes."""
        try:
            self._transport.write(framed(bytes(data)), self._seconds())
        except (IoTimeoutError, TransportClosedError, ConnectionError) as error:
            raise self._ended(error) from None

    def receive(self, buffer: memoryview, least: int) -> int:
        """Read at least so many bytes into the buffer; return how many."""
        while len(self._frames.data) < least:
            try:
                self._frames.add(self._transport.read(_READ_BYTES, self._seconds()))
            except FrameError as error:
                raise SessionTerminatedError(f"the line to the board is disturbed: {error}") from None
            except (IoTimeoutError, TransportClosedError, ConnectionError) as error:
                raise self._ended(error) from None
            self._started = True
        buffer[:least] = self._frames.data[:least]
        del self._frames.data[:least]
        return least

    def _seconds(self) -> float | None:
        limits = self._timeouts
        return (limits.session_established_timeout_sec if self._started else limits.session_start_timeout_sec) or None

    def _ended(self, error: Exception) -> SessionTerminatedError:
        if isinstance(error, IoTimeoutError):
            return SessionTerminatedError(f"the board has not answered for {self._seconds()} seconds")
        return SessionTerminatedError("the board has ended the session")


class Session:
    """A session on a board, inside a ``with`` block; ``device`` is the board's CPU.

    Parameters
    ----------
    transport_context_manager : the line to the board, ``project.transport()``
    session_name : its name in logs
    timeout_override : how long to wait for the board, in place of what the line says

    Raises
    ------
    SessionTerminatedError : from any use, when the board is gone or does not answer in time
    """

    def __init__(
        self,
        transport_context_manager: Transport,
        session_name: str = "micro-rpc",
        timeout_override: TransportTimeouts | None = None,
    ) -> None:
        self.transport_context_manager, self.session_name = transport_context_manager, session_name
        self.timeout_override = timeout_override
        self.folder: tempfile.TemporaryDirectory[str] | None = None  # of a project that goes with the session
        self._open = False

    def __enter__(self) -> Session:
        self.transport = TransportLogger(self.session_name, self.transport_context_manager, level=logging.DEBUG)
        self.transport.open()
        self._open = True
        try:
            timeouts = self.timeout_override or self.transport.timeouts()
            self._rpc = RPCSession(connect(_Line(self.transport, timeouts)))
            self.device: Device = self._rpc.cpu(0)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session."""
        if self._open:
            self._open = False
            self.transport.close()
        if self.folder is not None:
            self.folder.cleanup()

    def get_system_lib(self) -> Module:
        """Return the functions of the board's program."""
        return self._rpc.system_lib()


def create_local_graph_executor(graph_json_str: str, mod: Module, device: Device) -> graph_executor.GraphModule:
    """Return an executor on this machine, whose kernels and arrays are a board's.

    Parameters
    ----------
    graph_json_str : ``factory.get_graph_json()``
    mod : ``session.get_system_lib()``
    device : ``session.device``
    """
    create = need_global_func("tvm.graph_executor.create")
    return graph_executor.GraphModule(create(graph_json_str, mod, device))


def create_local_debug_executor(graph_json_str: str, mod: Module, device: Device, dump_root: str | None = None) -> Any:
    """Return a debug executor on this machine, whose kernels and arrays are a board's; parameters as above."""
    module = need_global_func("tvm.graph_executor_debug.create")(graph_json_str, mod, device)
    return debug_executor.GraphModuleDebug(module, [device], graph_json_str, dump_root)


def open_micro_session(
    archive: str | Path, template_project_dir: str | Path, options: dict[str, Any] | None
) -> Session:
    """Make, build and flash a project in a temporary folder, and return an open session on its board."""
    folder = tempfile.TemporaryDirectory(prefix="tilewright-micro-")
    template = TemplateProject.from_directory(template_project_dir)
    project = template.generate_project_from_mlf(archive, Path(folder.name) / "project", options)
    project.build()
    project.flash()
    session = Session(project.transport())
    session.folder = folder
    return session.__enter__()
