"""Reading Relay text, under TVM's name ``tvm.parser``; the parser itself is in ``relay.text.parser``."""

from tilewright.ir.diagnostics import DiagnosticError
from tilewright.relay.text.parser import fromtext, parse, parse_expr

__all__ = ["DiagnosticError", "fromtext", "parse", "parse_expr"]
