"""The client of the Project API, which starts the server of a template or a project."""

from __future__ import annotations

import base64
import io
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from tilewright.micro.project_api import server


class ProjectAPIErrorBase(Exception):
    """Base of the client's errors."""


class ConnectionShutdownError(ProjectAPIErrorBase):
    """The server has gone."""


class MalformedReplyError(ProjectAPIErrorBase):
    """The server's answer is none of the protocol."""


class MismatchedIdError(ProjectAPIErrorBase):
    """The answer is one to another request."""


class ProjectAPIServerNotFoundError(ProjectAPIErrorBase):
    """The folder has no server."""


class UnsupportedProtocolVersionError(ProjectAPIErrorBase):
    """The server speaks another version of the protocol."""


class ProjectAPIClient:
    """A connection to a server; ``testonly_did_write_request`` is called after each request, for tests."""

    def __init__(
        self,
        read_file: BinaryIO,
        write_file: BinaryIO,
        testonly_did_write_request: Callable[[], object] | None = None,
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.read_file = io.TextIOWrapper(read_file, encoding="UTF-8", errors="strict")
        self.write_file = io.TextIOWrapper(write_file, encoding="UTF-8", errors="strict", write_through=True)
        self.testonly_did_write_request = testonly_did_write_request
        self._process = process
        self._next_id = 1

    @property
    def is_shutdown(self) -> bool:
        """Return whether the connection is closed."""
        return self.read_file.closed

    def shutdown(self) -> None:
        """Close the connection, with which the server's process ends."""
        if self.is_shutdown:
            return
        self.read_file.close()
        self.write_file.close()
        if self._process is not None:
            self._process.wait()

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.shutdown()

    def _request_reply(self, method: str, params: dict[str, Any]) -> Any:
        if self.is_shutdown:
            raise ConnectionShutdownError("connection already closed")
        request = {"jsonrpc": "2.0", "method": method, "params": params, "id": self._next_id}
        self._next_id += 1
        try:
            self.write_file.write(json.dumps(request) + "\n")
            if self.testonly_did_write_request:
                self.testonly_did_write_request()
            line = self.read_file.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.shutdown()
            raise ConnectionShutdownError(f"the project's server has gone while it was asked for {method}")
        reply = json.loads(line)
        if reply.get("jsonrpc") != "2.0" or ("error" not in reply and "result" not in reply):
            raise MalformedReplyError(f"the answer to {method} is no JSON-RPC 2.0: {reply!r}")
        if reply["id"] != request["id"]:
            raise MismatchedIdError(f"Reply id ({reply['id']}) does not equal request id ({request['id']})")
        if "error" in reply:
            raise server.JSONRPCError.from_json(f"calling method {method}", reply["error"])
        return reply["result"]

    def server_info_query(self, tvm_version: str) -> dict[str, Any]:
        """Return what the server says of itself."""
        reply: dict[str, Any] = self._request_reply("server_info_query", {"tvm_version": tvm_version})
        wanted = server.ProjectAPIServer._PROTOCOL_VERSION
        if reply["protocol_version"] != wanted:
            raise UnsupportedProtocolVersionError(
                f"microTVM API Server supports protocol version {reply['protocol_version']}; want {wanted}"
            )
        return reply

    def generate_project(
        self,
        model_library_format_path: str,
        standalone_crt_dir: str,
        project_dir: str,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Make a project of a template."""
        params = {
            "model_library_format_path": model_library_format_path, "standalone_crt_dir": standalone_crt_dir,
            "project_dir": project_dir, "options": options or {},
        }  # fmt: skip
        self._request_reply("generate_project", params)

    def build(self, options: dict[str, Any] | None = None) -> None:
        """Build the project."""
        self._request_reply("build", {"options": options or {}})

    def flash(self, options: dict[str, Any] | None = None) -> None:
        """Write the program to the board."""
        self._request_reply("flash", {"options": options or {}})

    def open_transport(self, options: dict[str, Any] | None = None) -> dict[str, Any]:
        """Open the line to the board; return ``{"timeouts": ...}``."""
        reply: dict[str, Any] = self._request_reply("open_transport", {"options": options or {}})
        return reply

    def close_transport(self) -> None:
        """Close the line to the board."""
        self._request_reply("close_transport", {})

    def read_transport(self, n: int, timeout_sec: float | None) -> dict[str, bytes]:
        """Read from the board; return ``{"data": bytes}``."""
        reply = self._request_reply("read_transport", {"n": n, "timeout_sec": timeout_sec})
        return {"data": base64.b85decode(reply["data"])}

    def write_transport(self, data: bytes, timeout_sec: float | None) -> None:
        """Write to the board."""
        text = base64.b85encode(data).decode()
        self._request_reply("write_transport", {"data": text, "timeout_sec": timeout_sec})


SERVER_LAUNCH_SCRIPT_FILENAME = "launch_microtvm_api_server.sh"
SERVER_PYTHON_FILENAME = "microtvm_api_server.py"


def instantiate_from_dir(project_dir: pathlib.Path | str, debug: bool = False) -> ProjectAPIClient:
    """Start the server of a template's or a project's folder, and return its client.

    Raises
    ------
    ProjectAPIServerNotFoundError : the folder has none
    """
    folder = pathlib.Path(project_dir).absolute()
    script, program = folder / SERVER_LAUNCH_SCRIPT_FILENAME, folder / SERVER_PYTHON_FILENAME
    if not script.is_file() and not program.is_file():
        raise ProjectAPIServerNotFoundError(
            f"No Project API server found in project directory: {folder}\nTried: {script.name}, {program.name}"
        )
    command = [str(script)] if script.is_file() else [sys.executable, str(program)]
    requests, answers = os.pipe(), os.pipe()
    command += ["--read-fd", str(requests[0]), "--write-fd", str(answers[1]), *(["--debug"] if debug else [])]
    process = subprocess.Popen(command, bufsize=0, pass_fds=(requests[0], answers[1]), cwd=folder)
    os.close(requests[0])
    os.close(answers[1])
    files = os.fdopen(answers[0], "rb", buffering=0), os.fdopen(requests[1], "wb", buffering=0)
    return ProjectAPIClient(*files, process=process)
