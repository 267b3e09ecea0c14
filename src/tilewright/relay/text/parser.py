"""Text to Relay: ``parse`` reads a module, ``parse_expr`` an expression.

The grammar is in ``syntax.py``. Nesting has no limit.
The metadata section, JSON, is cut off first. Syntax errors stop at the first; wrong names and attributes are
collected and reported together. Both raise DiagnosticError with the place and an excerpt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import tilewright.relay.op  # noqa: F401  (operators register themselves when this is imported)
from tilewright.ir.diagnostics import Diagnostic, DiagnosticContext, DiagnosticError, DiagnosticLevel, SourceText
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.json import load_json
from tilewright.ir.module import IRModule
from tilewright.ir.span import Span
from tilewright.relay.text.builder import Builder
from tilewright.relay.text.lexer import END
from tilewright.relay.text.syntax import Syntax, SyntaxProblem, Tree

VERSION = "0.0.5"

MetaTable = Mapping[str, Sequence[Any]]

_METADATA = re.compile(r"^#\[metadata\]", re.MULTILINE)


def _syntax_error(source: SourceText, problem: SyntaxProblem) -> DiagnosticError:
    found, expected = problem.found, problem.expected
    if found.type == END:
        stop = len(source.text.rstrip())
        message = f"the text ends too soon; expected {expected}"
        return _error(source.span(stop, stop + 1), message)
    return _error(source.span(found.start, found.stop), f"found `{found}`, expected {expected}")


def _error(place: Span, message: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic(DiagnosticLevel.ERROR, place, message)])


def _parse_tree(source: SourceText, start: str) -> Tree:
    syntax = Syntax(source.text)
    try:
        tree = syntax.module() if start == "module" else syntax.expression()
    except SyntaxProblem as problem:
        raise _syntax_error(source, problem) from None
    for item in tree.children[:1]:
        if item.data == "version":
            found = str(item.children[0]).split('"')[1]
            if found != VERSION:
                message = f"this is text of version {found}; version {VERSION} is understood"
                raise _error(source.span(item.start, item.stop), message)
    return tree


def _split_metadata(text: str, source_name: str) -> tuple[str, MetaTable]:
    found = _METADATA.search(text)
    if found is None:
        return text, {}
    try:
        table = load_json(text[found.end() :])
    except TilewrightError as error:
        raise TilewrightError(f"the metadata section of {source_name} cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise TilewrightError(f"the metadata section of {source_name} is no table of nodes")
    return text[: found.start()], table


def _run(
    text: str, source_name: str, start: str, module: IRModule, init_meta_table: MetaTable | None
) -> tuple[Builder, Tree]:
    text, table = _split_metadata(text, source_name)
    source = SourceText(source_name, text)
    tree = _parse_tree(source, start)
    return Builder(source, module, {**(init_meta_table or {}), **table}, DiagnosticContext(module)), tree


def parse(
    source: str,
    source_name: str = "from_string",
    init_module: IRModule | None = None,
    init_meta_table: MetaTable | None = None,
) -> IRModule:
    """Parse a module; as ``tvm.parser.parse``.

    Args:
        source: definitions of functions and types, with or without version line and metadata section.
        source_name: the text's name in error messages.
        init_module: functions and types to start from; they stay in the result.
        init_meta_table: nodes for ``meta[...]`` references, by type key.

    Raises:
        DiagnosticError: with every problem that was found, its line, column and an excerpt.
    """
    module = init_module.copy() if init_module is not None else IRModule()
    builder, tree = _run(source, source_name, "module", module, init_meta_table)
    result = builder.module_text(tree)
    builder.diagnostics.render()
    return result


def parse_expr(source: str) -> RelayExpr:
    """Parse an expression, or a function written ``fn (...) { ... }``; as ``tvm.parser.parse_expr``."""
    builder, tree = _run(source, "from_string", "expression", IRModule(), None)
    result = builder.expression_text(tree)
    builder.diagnostics.render()
    return result


def fromtext(source: str, source_name: str = "from_string") -> IRModule:
    """Parse a module; TVM's second name of ``parse``."""
    return parse(source, source_name)
