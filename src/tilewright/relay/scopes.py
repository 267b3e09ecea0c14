"""The scope in which each part of a program is evaluated: the innermost one that encloses all its uses.

Scopes are the bodies of functions and the branches of if and match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import trampoline
from tilewright.ir.expr import RelayExpr
from tilewright.ir.trampoline import Steps
from tilewright.relay.adt import Match
from tilewright.relay.expr import Function, If, Let, Var
from tilewright.relay.lets import with_lets
from tilewright.relay.visitor import direct_children

Children = Callable[[RelayExpr], Sequence[RelayExpr]]


class Scope:
    """A function body or branch; ``bindings`` are its lets so far."""

    __slots__ = ("bindings", "depth", "parent")

    def __init__(self, parent: Scope | None) -> None:
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.bindings: list[tuple[Var, RelayExpr]] = []

    def wrap(self, body: RelayExpr) -> RelayExpr:
        """Wrap ``body`` in the lets."""
        return with_lets(self.bindings, body)


def _enclosing(a: Scope, b: Scope) -> Scope:
    while a is not b:
        if a.depth >= b.depth:
            assert a.parent is not None
            a = a.parent
        else:
            assert b.parent is not None
            b = b.parent
    return a


def _events(root: RelayExpr, children: Children) -> list[tuple[RelayExpr, bool]]:
    """Yield (expression, is_binding) in evaluation order: a let's binding comes between its value and its body."""
    events: dict[tuple[RelayExpr, bool], None] = {}

    def enter(expr: RelayExpr) -> Steps[None]:
        if (expr, False) in events:
            return
        if isinstance(expr, Let):
            yield enter(expr.value)
            events[expr, True] = None
            yield enter(expr.body)
        else:
            for child in children(expr):
                yield enter(child)
        events[expr, False] = None

    trampoline.run(enter(root))
    return list(events)


def _opens_scope(expr: RelayExpr, index: int) -> bool:
    """Return whether the child ``index`` is in a scope of its own."""
    if isinstance(expr, Function):
        return index == len(expr.params)
    return isinstance(expr, (If, Match)) and index > 0


class Scopes:
    """Scopes by expression: ``of`` maps every part to its scope, ``inner`` a parent and child index to the child's."""

    def __init__(self, root: RelayExpr, children: Children = direct_children) -> None:
        self.events = _events(root, children)
        self.children = children
        self.root = Scope(None)
        self.of: dict[RelayExpr, Scope] = {root: self.root}
        self.inner: dict[tuple[RelayExpr, int], Scope] = {}
        for expr, is_binding in reversed(self.events):
            if is_binding:
                continue
            for index, child in enumerate(children(expr)):
                use = self.of[expr]
                if _opens_scope(expr, index):
                    use = self.inner[expr, index] = Scope(use)
                known = self.of.get(child)
                self.of[child] = use if known is None else _enclosing(known, use)

    def crossing(self) -> set[RelayExpr]:
        """Return the expressions that are used in another scope than that of their evaluation."""
        found = set()
        for expr, is_binding in self.events:
            if not is_binding:
                for index, child in enumerate(self.children(expr)):
                    if self.inner.get((expr, index), self.of[expr]) is not self.of[child]:
                        found.add(child)
        return found
