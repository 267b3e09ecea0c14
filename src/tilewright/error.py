"""Errors under the names of ``tvm.error``."""

from tilewright.ir.diagnostics import DiagnosticError
from tilewright.ir.errors import (
    OpAttributeInvalid,
    OpAttributeRequired,
    OpAttributeUnImplemented,
    OpError,
    OpNotImplemented,
    TilewrightError,
    TypeInferenceError,
    UnsupportedError,
)
from tilewright.runtime.error import ExportError, RPCError, RPCSessionTimeoutError, TVMError


class InternalError(TVMError):
    """A fault of the compiler itself, not of its input."""


__all__ = [
    "DiagnosticError", "ExportError", "InternalError", "OpAttributeInvalid", "OpAttributeRequired",
    "OpAttributeUnImplemented", "OpError", "OpNotImplemented", "RPCError", "RPCSessionTimeoutError", "TVMError",
    "TilewrightError", "TypeInferenceError", "UnsupportedError",
]  # fmt: skip
