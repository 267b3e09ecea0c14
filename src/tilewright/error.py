"""Errors under the names of ``tvm.error``."""

from tilewright.ir.diagnostics import DiagnosticError
from tilewright.ir.errors import TilewrightError, TypeInferenceError, UnsupportedError
from tilewright.runtime.error import ExportError, RPCError, RPCSessionTimeoutError, TVMError


class InternalError(TVMError):
    """A fault of the compiler itself, not of its input."""


class OpError(TilewrightError):
    """An importer met an operator that it cannot take."""


class OpNotImplemented(OpError, NotImplementedError):
    """The operator has no converter."""


class OpAttributeRequired(OpError, AttributeError):
    """The operator lacks an attribute that it needs."""


class OpAttributeInvalid(OpError, AttributeError):
    """An attribute of the operator has a value that is not allowed."""


class OpAttributeUnImplemented(OpError, NotImplementedError):
    """An attribute of the operator has a value that is allowed and not offered."""


__all__ = [
    "DiagnosticError", "ExportError", "InternalError", "OpAttributeInvalid", "OpAttributeRequired",
    "OpAttributeUnImplemented", "OpError", "OpNotImplemented", "RPCError", "RPCSessionTimeoutError", "TVMError",
    "TilewrightError", "TypeInferenceError", "UnsupportedError",
]  # fmt: skip
