"""ToANormalForm: name every intermediate value with a let, in evaluation order.

Before::

    %0 = nn.conv2d(%d1, %w1);
    nn.relu(%0)

after::

    let %x = nn.conv2d(%d1, %w1);
    let %x1 = nn.relu(%x);
    %x1

A value used in several scopes (function bodies, branches of if and match) is named in the innermost scope that
encloses all its uses, so nothing is evaluated twice and a branch evaluates nothing that only the other needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import trampoline
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.trampoline import Steps
from tilewright.ir.transform import FunctionPass, Pass, PassContext, PassInfo
from tilewright.relay.adt import Clause, Constructor, Match
from tilewright.relay.expr import Call, Constant, Function, If, Let, Var
from tilewright.relay.transform.common import open_children
from tilewright.relay.visitor import ExprMutator, direct_children


class _Scope:
    """A function body or branch; ``bindings`` are its lets so far."""

    __slots__ = ("bindings", "depth", "parent")

    def __init__(self, parent: _Scope | None) -> None:
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.bindings: list[tuple[Var, RelayExpr]] = []

    def wrap(self, body: RelayExpr) -> RelayExpr:
        """The lets around ``body``."""
        for var, value in reversed(self.bindings):
            body = Let(var, value, body)
        return body


def _common(a: _Scope, b: _Scope) -> _Scope:
    while a is not b:
        if a.depth >= b.depth:
            assert a.parent is not None
            a = a.parent
        else:
            assert b.parent is not None
            b = b.parent
    return a


def _is_atomic(expr: RelayExpr) -> bool:
    """Whether the expression is used as it is, without a name."""
    if isinstance(expr, Function):
        return bool(expr.attrs.get("Primitive"))
    return isinstance(expr, (Var, GlobalVar, Op, Constant, Constructor))


def _events(root: RelayExpr) -> list[tuple[RelayExpr, bool]]:
    """(expression, is_binding) in evaluation order: a let's binding comes between its value and its body."""
    events: dict[tuple[RelayExpr, bool], None] = {}

    def enter(expr: RelayExpr) -> Steps[None]:
        if (expr, False) in events:
            return
        if isinstance(expr, Let):
            yield enter(expr.value)
            events[expr, True] = None
            yield enter(expr.body)
        else:
            for child in open_children(expr):
                yield enter(child)
        events[expr, False] = None

    trampoline.run(enter(root))
    return list(events)


def _values_of_one_let(events: Sequence[tuple[RelayExpr, bool]]) -> set[RelayExpr]:
    """Values that a let of the program names already and that nothing else uses."""
    uses: dict[RelayExpr, int] = {}
    values: set[RelayExpr] = set()
    for expr, is_binding in events:
        if is_binding:
            continue
        for child in open_children(expr):
            uses[child] = uses.get(child, 0) + 1
        if isinstance(expr, Let) and not isinstance(expr.value, Let):
            values.add(expr.value)
    return {v for v in values if uses[v] == 1}


class _Converter(ExprMutator):
    """Rebuilds expressions over named values; ``memo_map`` holds each expression's name."""

    def __init__(self, root: RelayExpr) -> None:
        super().__init__()
        self.inner: dict[tuple[RelayExpr, int], _Scope] = {}
        self.scope_of: dict[RelayExpr, _Scope] = {}
        self.events = _events(root)
        self.let_values = _values_of_one_let(self.events)
        self.root_scope = _Scope(None)
        self._assign_scopes(root)

    def _assign_scopes(self, root: RelayExpr) -> None:
        self.scope_of[root] = self.root_scope
        for expr, is_binding in reversed(self.events):
            if is_binding:
                continue
            scope = self.scope_of[expr]
            for index, child in enumerate(open_children(expr)):
                use = scope
                if self._opens_scope(expr, index):
                    use = self.inner[expr, index] = _Scope(scope)
                known = self.scope_of.get(child)
                self.scope_of[child] = use if known is None else _common(known, use)

    @staticmethod
    def _opens_scope(expr: RelayExpr, index: int) -> bool:
        if isinstance(expr, Function):
            return index == len(expr.params)
        if isinstance(expr, If):
            return index > 0
        return isinstance(expr, Match) and index > 0

    def convert(self, root: RelayExpr) -> RelayExpr:
        """The converted expression, with its lets."""
        for expr, is_binding in self.events:
            if is_binding:
                assert isinstance(expr, Let)
                self.scope_of[expr].bindings.append((expr.var, self.memo_map[expr.value]))
            elif isinstance(expr, Let):
                self.memo_map[expr] = self.memo_map[expr.body]
            elif expr not in self.memo_map:
                self.memo_map[expr] = self._named(expr, self.dispatch(expr))
        return self.root_scope.wrap(self.memo_map[root])

    def _named(self, expr: RelayExpr, value: RelayExpr) -> RelayExpr:
        if _is_atomic(expr) or expr in self.let_values:
            return value
        var = Var("x")
        self.scope_of[expr].bindings.append((var, value))
        return var

    def _closed(self, expr: RelayExpr, index: int, body: RelayExpr) -> RelayExpr:
        return self.inner[expr, index].wrap(self.memo_map[body])

    def visit_call(self, expr: Call) -> RelayExpr:
        return Call(
            self.memo_map[expr.op], [self.memo_map[a] for a in expr.args], expr.attrs, expr.type_args, expr.span
        )

    def visit_function(self, expr: Function) -> RelayExpr:
        if expr.attrs.get("Primitive"):
            return expr
        return expr.replace(body=self._closed(expr, len(expr.params), expr.body))

    def visit_if(self, expr: If) -> RelayExpr:
        then, other = self._closed(expr, 1, expr.true_branch), self._closed(expr, 2, expr.false_branch)
        return If(self.memo_map[expr.cond], then, other, expr.span)

    def visit_match(self, expr: Match) -> RelayExpr:
        clauses: list[Clause] = []
        children = direct_children(expr)
        at = 0
        for clause in expr.clauses:
            at = next(i for i in range(at + 1, len(children)) if children[i] is clause.rhs)
            clauses.append(Clause(clause.lhs, self._closed(expr, at, clause.rhs), clause.span))
        return Match(self.memo_map[expr.data], clauses, expr.complete, expr.span)


def to_a_normal_form(expr: RelayExpr) -> RelayExpr:
    """``expr`` in A-normal form; a function keeps its parameters."""
    if isinstance(expr, Function):
        if expr.attrs.get("Primitive"):
            return expr
        return expr.replace(body=_Converter(expr.body).convert(expr.body))
    return _Converter(expr).convert(expr)


def ToANormalForm() -> Pass:
    """Name every intermediate value with a let."""

    def convert(func: Function, mod: IRModule, ctx: PassContext) -> Function:
        result = to_a_normal_form(func)
        assert isinstance(result, Function)
        return result

    return FunctionPass(convert, PassInfo("ToANormalForm", 1), Function)
