"""Calls and patterns as text for error messages."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.type import Type
from tilewright.relay.adt import Constructor, Pattern, PatternConstructor, PatternTuple, PatternVar
from tilewright.relay.expr import Call, Var
from tilewright.relay.type_infer.describe import describe


def callee_name(op: RelayExpr) -> str:
    """Return the callee in words."""
    match op:
        case GlobalVar():
            return f"@{op.name_hint}"
        case Var():
            return f"%{op.name_hint}"
        case Constructor():
            return op.name_hint
    return "a function"


def describe_call(call: Call, arg_types: Sequence[Type]) -> str:
    """Describe an operator call with its arguments by name and type."""
    op = call.op
    assert isinstance(op, Op)
    names = op.argument_names
    parts = [
        f"{names[i]}: {describe(t)}" if len(names) == len(arg_types) else describe(t) for i, t in enumerate(arg_types)
    ]
    return f"{op.name}({', '.join(parts)})"


def describe_pattern(pattern: Pattern) -> str:
    """Return a pattern as text, for messages."""
    match pattern:
        case PatternVar():
            return f"%{pattern.var.name_hint}"
        case PatternConstructor():
            inner = ", ".join(map(describe_pattern, pattern.patterns))
            return f"{pattern.constructor.name_hint}({inner})" if inner else pattern.constructor.name_hint
        case PatternTuple():
            return f"({', '.join(map(describe_pattern, pattern.patterns))})"
    return "_"
