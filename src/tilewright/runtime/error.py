"""Errors that the runtime raises."""

from .text import printable


class TVMError(RuntimeError):
    """An error reported by the runtime or by a compiled function; its text holds no control characters of names."""

    def __str__(self) -> str:
        return printable(super().__str__())


class ExportError(TVMError):
    """A library could not be written: no compiler, no space, no permission, or the compiler failed."""


class RPCError(TVMError):
    """A call to another machine failed there, or did not reach it. Errors that begin with "RPCError: " become one."""


class RPCSessionTimeoutError(RPCError):
    """The time of a session (``session_timeout``) is over."""
