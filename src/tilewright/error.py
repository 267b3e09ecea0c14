"""``tvm.error``: the errors that users catch."""

from tilewright.ir.diagnostics import DiagnosticError
from tilewright.runtime.error import TVMError

__all__ = ["DiagnosticError", "TVMError"]
