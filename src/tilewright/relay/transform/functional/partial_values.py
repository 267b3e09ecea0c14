"""Values of which PartialEvaluate knows parts, and the blocks of code that it writes."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.structural import structural_equal
from tilewright.ir.type import Type, TypeVar
from tilewright.relay.adt import (
    Constructor,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
)
from tilewright.relay.expr import Constant, Function, Tuple, Var
from tilewright.relay.lets import Binding, with_lets
from tilewright.relay.type_infer import substitute_type_vars


class Block:
    """Bindings of a block under construction; a place may be kept for code that is written later, if at all."""

    def __init__(self) -> None:
        self.bindings: list[Binding | None] = []

    def name(self, value: RelayExpr, hint: str) -> Var:
        """Evaluate ``value`` now, and return its variable."""
        var = Var(hint)
        self.bindings.append((var, value))
        return var

    def keep_place(self) -> int:
        """Return the number of a place between what was bound and what will be."""
        self.bindings.append(None)
        return len(self.bindings) - 1

    def around(self, result: RelayExpr) -> RelayExpr:
        """Return the block with its result."""
        return with_lets([b for b in self.bindings if b is not None], result)


@dataclass(eq=False)
class Fields:
    """A known tuple."""

    items: tuple[Value, ...]


@dataclass(eq=False)
class Built:
    """A known value of a data type."""

    constructor: Constructor
    items: tuple[Value, ...]


@dataclass(eq=False)
class Cell:
    """A known reference; the evaluator's store has its content."""


@dataclass(eq=False)
class Closure:
    """A known function in A-normal form, with the scope that it was made in."""

    func: Function
    scope: Scope


Known = Constant | Op | Constructor | Function | Fields | Built | Cell | Closure


@dataclass(eq=False)
class Value:
    """A value, known or not, and an atom that stands for it in the code.

    ``code`` is None where nothing needed the value yet; it will be written to ``place`` of ``block``. ``size`` is what
    has to become smaller in recursion.
    """

    known: Known | None
    code: RelayExpr | None = None
    block: Block | None = None
    place: int = 0
    hint: str = "x"
    size: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.known, (Fields, Built)):
            self.size = 1 + sum(item.size for item in self.known.items)
        elif isinstance(self.known, Constant) and not self.known.data.shape and "int" in str(self.known.data.dtype):
            self.size = max(0, int(self.known.data.numpy()))


@dataclass(eq=False)
class Scope:
    """Values of variables, and types of type variables."""

    values: ChainMap[Var, Value] = field(default_factory=ChainMap)
    types: Mapping[TypeVar, Type] = field(default_factory=dict)

    def inner(self, types: Mapping[TypeVar, Type] | None = None) -> Scope:
        """Return a scope within this one."""
        return Scope(self.values.new_child(), {**self.types, **types} if types else self.types)

    def type_of(self, type_: Type | None) -> Type | None:
        """Return a type of the program as it is here."""
        return substitute_type_vars(type_, dict(self.types)) if type_ is not None and self.types else type_

    def copy_of(self, var: Var) -> Var:
        """Return a new variable in place of ``var``, and bind ``var`` to it: nothing is known of its value."""
        copy = Var(var.name_hint, self.type_of(var.type_annotation or var.checked_type_or_none), var.span)
        self.values[var] = Value(None, copy)
        return copy


def later(known: Known, block: Block, hint: str) -> Value:
    """Return a known value whose code is written when it is needed."""
    return Value(known, None, block, block.keep_place(), hint)


def from_constants(expr: RelayExpr, block: Block, hint: str) -> Value | None:
    """Return the value of a constant or of nested tuples of them; None for anything else."""
    if isinstance(expr, Constant):
        return Value(expr, expr)
    if not isinstance(expr, Tuple):
        return None
    items = [item for f in expr.fields if (item := from_constants(f, block, hint))]
    return later(Fields(tuple(items)), block, hint) if len(items) == len(expr.fields) else None


def as_constants(value: Value) -> RelayExpr | None:
    """Return the constant, or nested tuples of them, that ``value`` is; None where a part is not known."""
    if isinstance(value.known, Constant):
        return value.known
    if not isinstance(value.known, Fields):
        return None
    fields = [item for v in value.known.items if (item := as_constants(v))]
    return Tuple(fields) if len(fields) == len(value.known.items) else None


def matches(pattern: Pattern, value: Value, found: dict[Var, Value]) -> bool | None:
    """Return whether a pattern matches, None if that is not known; add the variables that it binds to ``found``."""
    match pattern, value.known:
        case PatternWildcard(), _:
            return True
        case PatternVar(), _:
            found[pattern.var] = value
            return True
        case PatternConstructor(), Built(constructor=constructor, items=items):
            if not structural_equal(pattern.constructor, constructor):
                return False
        case PatternTuple(), Fields(items=items):
            pass
        case _:
            return None
    assert isinstance(pattern, (PatternConstructor, PatternTuple))
    parts = [matches(p, v, found) for p, v in zip(pattern.patterns, items, strict=True)]
    return False if False in parts else None if None in parts else True


def copied(pattern: Pattern, scope: Scope) -> Pattern:
    """Return ``pattern`` with new variables, to which ``scope`` binds those of the program."""
    match pattern:
        case PatternVar():
            return pattern.replace(var=scope.copy_of(pattern.var))
        case PatternConstructor() | PatternTuple():
            return pattern.replace(patterns=tuple(copied(p, scope) for p in pattern.patterns))
    return pattern
