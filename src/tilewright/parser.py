"""Reading Relay text, under TVM's name ``tvm.parser``; the parser itself is in ``relay.text.parser``.

Modules are typed here, as TVM's parser types them; ``relay.fromtext`` gives what is written.
"""

from typing import Any

from tilewright.ir.diagnostics import DiagnosticError
from tilewright.ir.module import IRModule
from tilewright.relay.text.parser import parse as _parse
from tilewright.relay.text.parser import parse_expr
from tilewright.relay.transform.annotate_spans import SpanCheck
from tilewright.relay.type_infer import infer_module


def parse(
    source: str,
    source_name: str = "from_string",
    init_module: IRModule | None = None,
    init_meta_table: dict[str, list[Any]] | None = None,
) -> IRModule:
    """Parse a module, and infer its types; see ``relay.text.parser.parse``.

    Raises:
        DiagnosticError: with every problem of the text that was found.
        TypeInferenceError: the program does not type-check.
    """
    return infer_module(_parse(source, source_name, init_module, init_meta_table))


def fromtext(source: str, source_name: str = "from_string") -> IRModule:
    """Parse a module, and infer its types; TVM's second name of ``parse``."""
    return parse(source, source_name)


__all__ = ["DiagnosticError", "SpanCheck", "fromtext", "parse", "parse_expr"]
