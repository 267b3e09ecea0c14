"""Algebraic data types and pattern matching.

Grammar::

    data    ::= TypeData(GlobalTypeVar, type vars, Constructor*)
    e       ::= Constructor(name, types) | Match(e, Clause(pattern, e)*)
    pattern ::= PatternWildcard() | PatternVar(Var) | PatternConstructor(Constructor, pattern*) | PatternTuple(pattern*)
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.node import Node
from tilewright.ir.span import Span
from tilewright.ir.type import GlobalTypeVar, Type, TypeVar
from tilewright.relay.expr import Call, Expr, Var


class Pattern(Node):
    """Base of patterns."""


class PatternWildcard(Pattern):
    """``_``: matches everything, binds nothing."""

    span: Span | None = None


class PatternVar(Pattern):
    """Matches everything and binds it."""

    var: Var
    span: Span | None = None


class PatternConstructor(Pattern):
    """Matches a value built by ``constructor`` whose arguments match."""

    constructor: Constructor
    patterns: tuple[Pattern, ...] = ()
    span: Span | None = None

    def __init__(
        self, constructor: Constructor, patterns: Sequence[Pattern] | None = None, span: Span | None = None
    ) -> None:
        self._init(constructor, tuple(patterns or ()), span)


class PatternTuple(Pattern):
    """Matches a tuple whose fields match."""

    patterns: tuple[Pattern, ...] = ()
    span: Span | None = None

    def __init__(self, patterns: Sequence[Pattern] | None = None, span: Span | None = None) -> None:
        self._init(tuple(patterns or ()), span)


class Constructor(Expr):
    """A constructor of an algebraic data type; callable. ``tag`` is unique in a program, see ``constructor_tag``; -1
    where none was assigned.
    """

    name_hint: str
    inputs: tuple[Type, ...]
    belong_to: GlobalTypeVar
    tag: int = -1
    span: Span | None = None

    def __init__(
        self,
        name_hint: str,
        inputs: Sequence[Type],
        belong_to: GlobalTypeVar,
        tag: int = -1,
        span: Span | None = None,
    ) -> None:
        self._init(name_hint, tuple(inputs), belong_to, tag, span)

    def __call__(self, *args: Any) -> Call:
        return Call(self, args)


def constructor_tag(type_name: str, index: int) -> int:
    """Return the tag of constructor ``index`` of a type: one more than the previous one's; the same in all
    processes.
    """
    return (1 + zlib.crc32(type_name.encode()) % 0x7FFF) << 16 | index


class TypeData(Type):
    """Definition of an algebraic data type."""

    header: GlobalTypeVar
    type_vars: tuple[TypeVar, ...]
    constructors: tuple[Constructor, ...]
    span: Span | None = None

    def __init__(
        self,
        header: GlobalTypeVar,
        type_vars: Sequence[TypeVar],
        constructors: Sequence[Constructor],
        span: Span | None = None,
    ) -> None:
        self._init(header, tuple(type_vars), tuple(constructors), span)


class Clause(Node):
    """``lhs => rhs`` of a match."""

    lhs: Pattern
    rhs: RelayExpr
    span: Span | None = None


class Match(Expr):
    """``match (data) { clauses }``; a complete match covers every value."""

    data: RelayExpr
    clauses: tuple[Clause, ...]
    complete: bool = True
    span: Span | None = None

    def __init__(
        self, data: RelayExpr, clauses: Sequence[Clause], complete: bool = True, span: Span | None = None
    ) -> None:
        self._init(data, tuple(clauses), complete, span)


def pattern_vars(pattern: Pattern) -> list[Var]:
    """Return the variables that a pattern binds, left to right."""
    found: list[Var] = []
    stack = [pattern]
    while stack:
        item = stack.pop()
        if isinstance(item, PatternVar):
            found.append(item.var)
        elif isinstance(item, (PatternConstructor, PatternTuple)):
            stack.extend(reversed(item.patterns))
    return found
