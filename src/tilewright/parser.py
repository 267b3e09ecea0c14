"""Reading Relay text, under TVM's name ``tvm.parser``; the parser itself is in ``relay.text.parser``."""

from tilewright.ir.diagnostics import DiagnosticError
from tilewright.relay.text.parser import fromtext, parse, parse_expr
from tilewright.relay.transform.annotate_spans import SpanCheck

__all__ = ["DiagnosticError", "SpanCheck", "fromtext", "parse", "parse_expr"]
