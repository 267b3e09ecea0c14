"""ToANormalForm: bind every intermediate value by a let, in evaluation order.

ToBasicBlockNormalForm binds only values that several scopes use.

Before::

    %0 = nn.conv2d(%d1, %w1);
    nn.relu(%0)

after::

    let %x = nn.conv2d(%d1, %w1);
    let %x1 = nn.relu(%x);
    %x1

A value used in several scopes (function bodies, branches of if and match) is bound in the innermost scope that
encloses all its uses, so nothing is evaluated twice and a branch evaluates nothing that only the other needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import FunctionPass, Pass, PassContext, PassInfo
from tilewright.relay.adt import Clause, Constructor, Match
from tilewright.relay.expr import Call, Constant, Function, If, Let, Var
from tilewright.relay.function_attributes import PRIMITIVE
from tilewright.relay.scopes import Scopes
from tilewright.relay.transform.common import open_children
from tilewright.relay.visitor import ExprMutator, direct_children


def _is_atomic(expr: RelayExpr) -> bool:
    """Return whether the expression needs no let."""
    if isinstance(expr, Function):
        return PRIMITIVE.on(expr)
    return isinstance(expr, (Var, GlobalVar, Op, Constant, Constructor))


def _values_of_one_let(events: Sequence[tuple[RelayExpr, bool]]) -> set[RelayExpr]:
    """Return the values that a let of the program already binds and that have no other use."""
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
    """Rewriter of expressions over bound values; ``memo_map`` holds each expression's name."""

    def __init__(self, root: RelayExpr) -> None:
        super().__init__()
        self.scopes = Scopes(root, open_children)
        self.let_values = _values_of_one_let(self.scopes.events)

    def convert(self, root: RelayExpr) -> RelayExpr:
        """Return the converted expression, with its lets."""
        for expr, is_binding in self.scopes.events:
            if is_binding:
                assert isinstance(expr, Let)
                self.scopes.of[expr].bindings.append((expr.var, self.memo_map[expr.value]))
            elif isinstance(expr, Let):
                self.memo_map[expr] = self.memo_map[expr.body]
            elif expr not in self.memo_map:
                self.memo_map[expr] = self._named(expr, self.dispatch(expr))
        return self.scopes.root.wrap(self.memo_map[root])

    def _named(self, expr: RelayExpr, value: RelayExpr) -> RelayExpr:
        if _is_atomic(expr) or expr in self.let_values:
            return value
        var = Var("x")
        self.scopes.of[expr].bindings.append((var, value))
        return var

    def _closed(self, expr: RelayExpr, index: int, body: RelayExpr) -> RelayExpr:
        return self.scopes.inner[expr, index].wrap(self.memo_map[body])

    def visit_call(self, expr: Call) -> RelayExpr:
        return Call(
            self.memo_map[expr.op], [self.memo_map[a] for a in expr.args], expr.attrs, expr.type_args, expr.span
        )

    def visit_function(self, expr: Function) -> RelayExpr:
        if PRIMITIVE.on(expr):
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


class _BlockConverter(_Converter):
    """Converter that binds values used in other scopes than that of their evaluation."""

    def __init__(self, root: RelayExpr) -> None:
        super().__init__(root)
        self.crossing = self.scopes.crossing()

    def _named(self, expr: RelayExpr, value: RelayExpr) -> RelayExpr:
        return super()._named(expr, value) if expr in self.crossing else value


def _converted(expr: RelayExpr, converter: type[_Converter]) -> RelayExpr:
    if isinstance(expr, Function):
        if PRIMITIVE.on(expr):
            return expr
        return expr.replace(body=converter(expr.body).convert(expr.body))
    return converter(expr).convert(expr)


def to_a_normal_form(expr: RelayExpr) -> RelayExpr:
    """Return ``expr`` in A-normal form; a function keeps its parameters."""
    return _converted(expr, _Converter)


def _pass(name: str, converter: type[_Converter]) -> Pass:
    def convert(func: Function, mod: IRModule, ctx: PassContext) -> Function:
        result = _converted(func, converter)
        assert isinstance(result, Function)
        return result

    return FunctionPass(convert, PassInfo(1, name), Function)


def ToANormalFormExpr(e: RelayExpr) -> RelayExpr:
    """Return ``e`` with a let for every value, in evaluation order."""
    return to_a_normal_form(e)


def ToANormalForm() -> Pass:
    """Bind every intermediate value by a let."""
    return _pass("ToANormalForm", _Converter)


def ToBasicBlockNormalForm() -> Pass:
    """Bind values that several function bodies or branches use by a let in their common scope; the rest stays a
    graph.
    """
    return _pass("ToBasicBlockNormalForm", _BlockConverter)
