"""The methods of a program that manages projects, and the loop that serves it.

Such a program is a file ``microtvm_api_server.py`` in the folder of a template, and of each project made from it::

    class Handler(ProjectAPIHandler):
        def build(self, options): ...

    if __name__ == "__main__":
        main(Handler())
"""

from __future__ import annotations

import abc
import argparse
import base64
import io
import json
import logging
import os
import pathlib
import re
import select
import sys
import time
import traceback
import typing
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

from tilewright.micro.project_api.errors import (
    ErrorCode,
    IoTimeoutError,
    JSONRPCError,
    ServerError,
    TransportClosedError,
    UnsupportedTVMVersionError,
)

__all__ = [
    "ErrorCode",
    "IoTimeoutError",
    "JSONRPCError",
    "ProjectAPIHandler",
    "ProjectAPIServer",
    "ProjectOption",
    "ServerError",
    "ServerInfo",
    "TransportClosedError",
    "TransportTimeouts",
    "UnsupportedTVMVersionError",
    "main",
    "read_with_timeout",
    "write_with_timeout",
]

_LOG = logging.getLogger(__name__)


class ProjectOption(NamedTuple):
    """An option of a template: its name, what it may be (None: anything), and what it does."""

    name: str
    choices: Sequence[Any] | None = None
    help: str = ""


class ServerInfo(NamedTuple):
    """A server's description of itself; ``model_library_format_path`` is the archive in a generated project."""

    platform_name: str
    is_template: bool
    model_library_format_path: str | pathlib.Path | None
    project_options: Sequence[ProjectOption]


class TransportTimeouts(NamedTuple):
    """Seconds to wait for a board: until a session's start is tried again, until it has started, and for each answer
    then. 0: for ever.
    """

    session_start_retry_timeout_sec: float
    session_start_timeout_sec: float
    session_established_timeout_sec: float


class ProjectAPIHandler(metaclass=abc.ABCMeta):
    """The methods of a server; each ``options`` maps names of ``ProjectOption`` to values."""

    @abc.abstractmethod
    def server_info_query(self, tvm_version: str) -> ServerInfo:
        """Return what the server is; raises UnsupportedTVMVersionError for a client that it does not know."""

    @abc.abstractmethod
    def generate_project(
        self,
        model_library_format_path: pathlib.Path,
        standalone_crt_dir: pathlib.Path,
        project_dir: pathlib.Path,
        options: dict,
    ) -> None:
        """Make a project with a network, and this server, in a folder that does not exist yet."""

    @abc.abstractmethod
    def build(self, options: dict) -> None:
        """Build the project's program."""

    @abc.abstractmethod
    def flash(self, options: dict) -> None:
        """Write the program to the board."""

    @abc.abstractmethod
    def open_transport(self, options: dict) -> TransportTimeouts:
        """Open the line to the board."""

    @abc.abstractmethod
    def close_transport(self) -> None:
        """Close the line, if it is open."""

    @abc.abstractmethod
    def read_transport(self, n: int, timeout_sec: float | None) -> bytes:
        """Return up to ``n`` bytes, at least one; raises IoTimeoutError or TransportClosedError."""

    @abc.abstractmethod
    def write_transport(self, data: bytes, timeout_sec: float | None) -> None:
        """Write all bytes; raises IoTimeoutError or TransportClosedError."""


class ProjectAPIServer:
    """Serves the requests of one client, one at a time."""

    _PROTOCOL_VERSION = 1
    VALID_METHOD_RE = re.compile("^[a-zA-Z0-9_]+$")

    def __init__(self, read_file: BinaryIO, write_file: BinaryIO, handler: ProjectAPIHandler) -> None:
        self._read_file = io.TextIOWrapper(read_file, encoding="UTF-8", errors="strict")
        self._write_file = io.TextIOWrapper(write_file, encoding="UTF-8", errors="strict", write_through=True)
        self._handler = handler

    def serve_forever(self) -> None:
        """Serve until the client has gone, or sends what is no request."""
        while self.serve_one_request():
            pass

    def serve_one_request(self) -> bool:
        """Answer a request; return whether another can follow."""
        try:
            line = self._read_file.readline()
            if not line:
                return False
            request = json.loads(line)
        except (OSError, ValueError) as error:
            _LOG.error("a request cannot be read: %s", error)
            return False
        valid = False
        try:
            self._validate_request(request)
            valid = True
            self._dispatch_request(request)
        except JSONRPCError as error:
            if isinstance(error, ServerError):
                error.set_traceback(traceback.format_exception(error))
            self._write_reply(request["id"] if valid else None, error=error)
        except Exception as error:
            what = f"calling method {request['method']}" if valid else "validating request"
            failure = ServerError.from_exception(error, message=what)
            self._write_reply(request["id"] if valid else None, error=failure)
        return valid

    def _validate_request(self, request: Any) -> None:
        if not isinstance(request, dict):
            raise _invalid(f"request: want dict; got {request!r}")
        version, method, params = request.get("jsonrpc"), request.get("method"), request.get("params")
        if version != "2.0":
            raise _invalid(f'request["jsonrpc"]: want "2.0"; got {version!r}')
        if not isinstance(method, str):
            raise _invalid(f'request["method"]: want str; got {method!r}')
        if not self.VALID_METHOD_RE.match(method):
            raise _invalid(f'request["method"]: should match regex {self.VALID_METHOD_RE.pattern}; got {method!r}')
        if not isinstance(params, dict):
            raise _invalid(f'request["params"]: want dict; got {type(params)}')
        number = request.setdefault("id", None)
        if not isinstance(number, (str, int, type(None))):
            raise _invalid(f'request["id"]: want str, number, null; got {number!r}')

    def _dispatch_request(self, request: dict[str, Any]) -> None:
        name, given = request["method"], request["params"]
        declared = getattr(ProjectAPIHandler, name, None)
        if declared is None or name.startswith("_"):
            raise JSONRPCError(ErrorCode.METHOD_NOT_FOUND, f"{name}: no such method")
        prepared = getattr(self, f"_dispatch_{name}", None)
        kinds = {n: kind for n, kind in typing.get_type_hints(declared).items() if n != "return"}
        for parameter, kind in kinds.items():
            if parameter not in given:
                raise _wrong(f"method {name}: parameter {parameter} not given")
            if prepared is None and not isinstance(given[parameter], kind):
                found = type(given[parameter])
                raise _wrong(f"method {name}: parameter {parameter}: want {kind!r}, got {found!r}")
        if extra := [p for p in given if p not in kinds]:
            raise _wrong(f"{name}: extra parameters: {', '.join(extra)}")
        self._write_reply(request["id"], (prepared or getattr(self._handler, name))(**given))

    def _write_reply(self, request_id: Any, result: Any = None, error: JSONRPCError | None = None) -> None:
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id}
        reply |= {"result": result} if error is None else {"error": error.to_json()}
        self._write_file.write(json.dumps(reply) + "\n")

    def _dispatch_generate_project(
        self, model_library_format_path: str, standalone_crt_dir: str, project_dir: str, options: dict[str, Any]
    ) -> None:
        archive, crt = pathlib.Path(model_library_format_path), pathlib.Path(standalone_crt_dir)
        self._handler.generate_project(archive, crt, pathlib.Path(project_dir), options)

    def _dispatch_server_info_query(self, tvm_version: str) -> dict[str, Any]:
        info = self._handler.server_info_query(tvm_version)
        reply = {"protocol_version": self._PROTOCOL_VERSION, **info._asdict()}
        if info.model_library_format_path is not None:
            reply["model_library_format_path"] = str(info.model_library_format_path)
        reply["project_options"] = [option._asdict() for option in info.project_options]
        return reply

    def _dispatch_open_transport(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"timeouts": self._handler.open_transport(options)._asdict()}

    def _dispatch_read_transport(self, n: int, timeout_sec: float | None) -> dict[str, str]:
        return {"data": base64.b85encode(self._handler.read_transport(n, timeout_sec)).decode()}

    def _dispatch_write_transport(self, data: str, timeout_sec: float | None) -> None:
        self._handler.write_transport(base64.b85decode(data), timeout_sec)


def _invalid(message: str) -> JSONRPCError:
    return JSONRPCError(ErrorCode.INVALID_REQUEST, message)


def _wrong(message: str) -> JSONRPCError:
    return JSONRPCError(ErrorCode.INVALID_PARAMS, message)


def _wait(reads: list[int], writes: list[int], end: float | None) -> None:
    seconds = None if end is None else max(0.0, end - time.monotonic())
    if not any(select.select(reads, writes, reads + writes, seconds)):
        raise IoTimeoutError()


def read_with_timeout(fd: int, n: int, timeout_sec: float | None) -> bytes:
    """Return up to ``n`` bytes of a descriptor, at least one.

    Raises
    ------
    IoTimeoutError : none came in ``timeout_sec`` seconds (None: for ever)
    TransportClosedError : the other end is closed
    """
    _wait([fd], [], None if timeout_sec is None else time.monotonic() + timeout_sec)
    try:
        data = os.read(fd, n)
    except OSError:
        data = b""
    if not data:
        raise TransportClosedError()
    return data


def write_with_timeout(fd: int, data: bytes, timeout_sec: float | None) -> None:
    """Write all bytes to a descriptor that does not block.

    Raises
    ------
    IoTimeoutError : not all could be written in ``timeout_sec`` seconds (None: for ever)
    TransportClosedError : the other end is closed
    """
    end = None if timeout_sec is None else time.monotonic() + timeout_sec
    while data:
        _wait([], [fd], end)
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            continue
        except OSError as error:
            raise TransportClosedError() from error


def main(handler: ProjectAPIHandler, argv: Sequence[str] | None = None) -> None:
    """Serve on the descriptors that the command line names, until the client has gone."""
    parser = argparse.ArgumentParser(description="A server of the Project API")
    parser.add_argument("--read-fd", type=int, required=True, help="Descriptor of requests.")
    parser.add_argument("--write-fd", type=int, required=True, help="Descriptor of answers.")
    parser.add_argument("--debug", action="store_true", help="Log more.")
    options = parser.parse_args(argv)
    logging.basicConfig(level="DEBUG" if options.debug else "INFO", stream=sys.stderr)
    with (
        os.fdopen(options.read_fd, "rb", buffering=0) as requests,
        os.fdopen(options.write_fd, "wb", buffering=0) as answers,
    ):
        try:
            ProjectAPIServer(requests, answers, handler).serve_forever()
        except BrokenPipeError:
            _LOG.debug("the client has gone")
        finally:
            handler.close_transport()
