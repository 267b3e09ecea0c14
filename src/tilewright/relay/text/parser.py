"""Text to Relay: ``parse`` reads a module, ``parse_expr`` an expression.

The grammar is ``grammar.lark``. The LALR parser and the builder keep their own stacks, so nesting has no limit.
The metadata section, JSON, is cut off first. Syntax errors stop at the first; wrong names and attributes are
collected and reported together. Both raise DiagnosticError with the place and an excerpt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import lark
from lark import Lark, Token, Tree

import tilewright.relay.op  # noqa: F401  (operators register themselves when this is imported)
from tilewright.ir.diagnostics import Diagnostic, DiagnosticContext, DiagnosticError, DiagnosticLevel, SourceText
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.json import load_json
from tilewright.ir.module import IRModule
from tilewright.ir.span import Span
from tilewright.relay.text.builder import Builder

VERSION = "0.0.5"

MetaTable = Mapping[str, Sequence[Any]]

_METADATA = re.compile(r"^#\[metadata\]", re.MULTILINE)

# What error messages call the terminals of the grammar.
_TERMINAL_NAMES = {
    "LOCAL": "a variable such as %x", "GRAPH": "a number such as %0", "GLOBAL": "a global name such as @main",
    "NAME": "a name", "INT": "an integer", "FLOAT": "a float", "STRING": "a string", "PROJECTION": "a field such as .0",
    "TRUE": "True", "FALSE": "False", "ANY": "?", "OPERATOR": "an operator", "VERSION": "the version line",
    "$END": "the end of the text",
}  # fmt: skip
_GROUPS = {
    "an expression": {"LOCAL", "GRAPH", "GLOBAL", "NAME", "INT", "FLOAT"},
    "a value": {"STRING", "NAME", "INT", "FLOAT", "ANY"},
    "a type": {"TENSOR", "NAME", "REF", "FN"},
}
_EXPRESSION_KEYWORDS = {"TRUE", "FALSE", "FN", "IF", "MATCH", "META", "REF", "REF_READ", "REF_WRITE", "LET", "FREE_VAR"}
_OPERATORS = {"OPERATOR"}


@cache
def _lark() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text()
    return Lark(
        grammar, parser="lalr", start=["module", "expression"], propagate_positions=True, maybe_placeholders=False
    )


def _terminal(name: str) -> str:
    if name in _TERMINAL_NAMES:
        return _TERMINAL_NAMES[name]
    pattern = next((t.pattern.value for t in _lark().terminals if t.name == name), name)
    return f"`{pattern}`"


def _expected(names: set[str]) -> str:
    """``expected a, b or c``; infix operators only when there is little else."""
    plain = names - _OPERATORS or names
    texts = []
    for group, members in _GROUPS.items():
        if members <= plain:
            plain = plain - members - _EXPRESSION_KEYWORDS - {"LPAR", "LSQB", "LBRACE"}
            texts.append(group)
    texts += sorted({_terminal(n) for n in plain}, key=lambda t: (not t.startswith("`"), t))
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def _syntax_error(source: SourceText, error: lark.exceptions.UnexpectedInput) -> DiagnosticError:
    if isinstance(error, lark.exceptions.UnexpectedToken):
        token: Token = error.token
        expected = _expected(set(error.accepts or error.expected))
        if token.type == "$END":
            lines = source.text.rstrip().split("\n")
            place = Span(source, len(lines), len(lines), len(lines[-1]) + 1, len(lines[-1]) + 2)
            message = f"the text ends too early; expected {expected}"
        else:
            place = Span(source, token.line or 0, token.end_line or 0, token.column or 0, token.end_column or 0)
            message = f"found `{token}`, expected {expected}"
    else:
        place = Span(source, error.line, error.line, error.column, error.column + 1)
        character = source.line(error.line)[error.column - 1 : error.column]
        allowed = getattr(error, "allowed", None)
        message = f"found `{character}`" + (f", expected {_expected(set(allowed))}" if allowed else "")
    return DiagnosticError([Diagnostic(DiagnosticLevel.ERROR, place, message)])


def _parse_tree(source: SourceText, start: str) -> Tree[Token]:
    try:
        tree: Tree[Token] = _lark().parse(source.text, start=start)
    except lark.exceptions.UnexpectedInput as error:
        raise _syntax_error(source, error) from None
    for item in tree.children[:1]:
        if isinstance(item, Tree) and item.data == "version":
            found = str(item.children[0]).split('"')[1]
            if found != VERSION:
                message = f"this is text of version {found}; version {VERSION} is understood"
                place = Span(source, 1, 1, 1, len(str(item.children[0])) + 1)
                raise DiagnosticError([Diagnostic(DiagnosticLevel.ERROR, place, message)])
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
) -> tuple[Builder, Tree[Token]]:
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
    """Read a module; as ``tvm.parser.parse``.

    Args:
        source: definitions of functions and types, with or without version line and metadata section.
        source_name: what error messages call the text.
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
    """Read an expression, or a function written ``fn (...) { ... }``; as ``tvm.parser.parse_expr``."""
    builder, tree = _run(source, "from_string", "expression", IRModule(), None)
    result = builder.expression_text(tree)
    builder.diagnostics.render()
    return result


def fromtext(source: str, source_name: str = "from_string") -> IRModule:
    """Read a module; TVM's second name of ``parse``."""
    return parse(source, source_name)
