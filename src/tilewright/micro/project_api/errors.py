"""Errors of the Project API, and how they go over the line: ``{"code": ..., "message": ..., "data": ...}``."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from traceback import format_exception
from typing import Any


class ErrorCode(enum.IntEnum):
    """Numbers of errors: those of JSON-RPC 2.0, and one for what fails in a method."""

    SERVER_ERROR = -32000
    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603


class JSONRPCError(Exception):
    """An error with a number; ``data`` is a mapping with the ``traceback`` of the server's process, or None."""

    def __init__(self, code: int, message: str, data: Any = None, client_context: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data, self.client_context = code, message, data, client_context

    def to_json(self) -> dict[str, Any]:
        """Return what goes over the line."""
        return {"code": int(self.code), "message": self.message, "data": self.data}

    def __str__(self) -> str:
        noted = self.data.get("traceback") if isinstance(self.data, Mapping) else self.data
        where = f"{self.client_context}: " if self.client_context else ""
        return f"{where}JSON-RPC error # {int(self.code)}: {self.message}" + (f"\n{noted}" if noted else "")

    @classmethod
    def from_json(cls, client_context: str, json_error: Mapping[str, Any]) -> JSONRPCError:
        """Return the error of an answer: of the class that its message names, if there is one."""
        code, message, data = json_error["code"], json_error["message"], json_error.get("data")
        if code != ErrorCode.SERVER_ERROR:
            return JSONRPCError(code, message, data, client_context)
        for kind in ServerError.__subclasses__():
            if kind.__name__ == message:
                return kind(data=data, client_context=client_context)
        return ServerError(message, data, client_context)


class ServerError(JSONRPCError):
    """A method of the server failed."""

    def __init__(self, message: str | None = None, data: Any = None, client_context: str | None = None) -> None:
        super().__init__(ErrorCode.SERVER_ERROR, message or type(self).__name__, data, client_context)

    @classmethod
    def from_exception(cls, exc: BaseException, **fields: Any) -> ServerError:
        """Return the error for an exception, with its traceback."""
        error = cls(**fields)
        error.set_traceback(format_exception(exc))
        return error

    def set_traceback(self, traceback: Iterable[str]) -> None:
        """Keep the lines of where an exception came from, unless that is known."""
        self.data = {} if self.data is None else self.data
        self.data.setdefault("traceback", "".join(traceback))


class TransportClosedError(ServerError):
    """The line to the board has ended: its program, its process, or its cable."""


class IoTimeoutError(ServerError):
    """The time is over: nothing could be read, or not all be written."""


class UnsupportedTVMVersionError(ServerError):
    """The server does not work with the version that asked."""
