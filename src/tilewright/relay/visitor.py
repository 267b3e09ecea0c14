"""Visitors and mutators over Relay expressions that never recurse, however deep the program is.

``visit`` walks the graph with its own stack in post-order: when ``visit_call`` (and so on) runs for a node, every
child of ``children`` has been visited, and ``self.visit(child)`` is a look-up. Override ``visit_*`` for
the nodes of interest; override ``children`` to keep the walk out of a part (then visit it explicitly).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from tilewright.ir import walk
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.prim_functor import DEPTH_STEP, ensure_stack
from tilewright.relay.adt import Clause, Constructor, Match, pattern_vars
from tilewright.relay.expr import (
    Call,
    Constant,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    TempExpr,
    Tuple,
    TupleGetItem,
    Var,
    origin,
)
from tilewright.relay.function_attributes import COMPILER, PRIMITIVE

R = TypeVar("R")


def is_closed(func: RelayExpr) -> bool:
    """Return whether a function is a finished kernel or an external function: passes do not change its body."""
    return isinstance(func, Function) and (PRIMITIVE.on(func) or COMPILER.on(func))


def direct_children(expr: RelayExpr) -> Sequence[RelayExpr]:
    """Return the sub-expressions of ``expr`` in evaluation order, with its binders (parameters, let variables)."""
    match expr:
        case Call():
            return (expr.op, *expr.args)
        case Tuple():
            return expr.fields
        case TupleGetItem():
            return (expr.tuple_value,)
        case Function():
            return (*expr.params, expr.body)
        case Let():
            return (expr.var, expr.value, expr.body)
        case If():
            return (expr.cond, expr.true_branch, expr.false_branch)
        case Match():
            inner: list[RelayExpr] = [expr.data]
            for clause in expr.clauses:
                inner += [*pattern_vars(clause.lhs), clause.rhs]
            return inner
        case RefCreate():
            return (expr.value,)
        case RefRead():
            return (expr.ref,)
        case RefWrite():
            return (expr.ref, expr.value)
        case _:
            return ()


class ExprFunctor(Generic[R]):
    """Memoized post-order walk: one result for each node.

    With ``top_down``, as in TVM, ``visit`` calls the node's method at once, and children are visited where that
    method says so (``relay.expr_functor``).
    """

    top_down: ClassVar[bool] = False
    _depth = 0

    def __init__(self) -> None:
        self.memo_map: dict[RelayExpr, R] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Return the expressions to visit before ``expr``; all sub-expressions unless overridden."""
        return direct_children(expr)

    def visit(self, expr: RelayExpr) -> R:
        """Return the result for ``expr``, after computing those of its children."""
        memo = self.memo_map
        if expr in memo:
            return memo[expr]
        if self.top_down:
            return self._visit_at_once(expr)
        stack: list[tuple[RelayExpr, bool]] = [(expr, False)]
        while stack:
            node, ready = stack.pop()
            if node in memo:
                continue
            if ready:
                memo[node] = self.dispatch(node)
                continue
            stack.append((node, True))
            stack.extend((c, False) for c in reversed(self.children(node)) if c not in memo)
        return memo[expr]

    def _visit_at_once(self, expr: RelayExpr) -> R:
        self._depth += 1
        if self._depth % DEPTH_STEP == 0:
            ensure_stack()
        try:
            result = self.memo_map[expr] = self.dispatch(expr)
        finally:
            self._depth -= 1
        return result

    def dispatch(self, expr: RelayExpr) -> R:
        """Call the method for the node's class; calls that it builds inherit the node's span."""
        for cls, name in _METHODS:
            if isinstance(expr, cls):
                span, outer = getattr(expr, "span", None), origin.span
                if span is None or span is outer:
                    result: R = getattr(self, name)(expr)
                    return result
                origin.span = span
                try:
                    result = getattr(self, name)(expr)
                finally:
                    origin.span = outer
                return result
        raise TypeError(f"{type(self).__name__} does not know the expression class {type(expr).__name__}")

    def visit_var(self, expr: Var) -> R:
        """Visit a variable."""
        return self.default(expr)

    def visit_global_var(self, expr: GlobalVar) -> R:
        """Visit a global variable."""
        return self.default(expr)

    def visit_op(self, expr: Op) -> R:
        """Visit an operator."""
        return self.default(expr)

    def visit_constant(self, expr: Constant) -> R:
        """Visit a constant."""
        return self.default(expr)

    def visit_constructor(self, expr: Constructor) -> R:
        """Visit a data constructor."""
        return self.default(expr)

    def visit_call(self, expr: Call) -> R:
        """Visit a call."""
        return self.default(expr)

    def visit_tuple(self, expr: Tuple) -> R:
        """Visit a tuple."""
        return self.default(expr)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> R:
        """Visit a projection."""
        return self.default(expr)

    def visit_function(self, expr: Function) -> R:
        """Visit a function."""
        return self.default(expr)

    def visit_let(self, expr: Let) -> R:
        """Visit a let."""
        return self.default(expr)

    def visit_if(self, expr: If) -> R:
        """Visit a conditional."""
        return self.default(expr)

    def visit_match(self, expr: Match) -> R:
        """Visit a match."""
        return self.default(expr)

    def visit_ref_create(self, expr: RefCreate) -> R:
        """Visit a new reference."""
        return self.default(expr)

    def visit_ref_read(self, expr: RefRead) -> R:
        """Visit a read of a reference."""
        return self.default(expr)

    def visit_ref_write(self, expr: RefWrite) -> R:
        """Visit a write to a reference."""
        return self.default(expr)

    def visit_temp(self, expr: TempExpr) -> R:
        """Visit a temporary expression of a pass."""
        return self.default(expr)

    def default(self, expr: RelayExpr) -> R:
        """Handle the nodes whose methods are not overridden."""
        raise NotImplementedError(f"{type(self).__name__} does not handle {type(expr).__name__}")


_METHODS: tuple[tuple[type, str], ...] = (
    (Call, "visit_call"),
    (Var, "visit_var"),
    (Op, "visit_op"),
    (Constant, "visit_constant"),
    (TupleGetItem, "visit_tuple_getitem"),
    (Tuple, "visit_tuple"),
    (Let, "visit_let"),
    (Function, "visit_function"),
    (GlobalVar, "visit_global_var"),
    (If, "visit_if"),
    (Constructor, "visit_constructor"),
    (Match, "visit_match"),
    (RefCreate, "visit_ref_create"),
    (RefRead, "visit_ref_read"),
    (RefWrite, "visit_ref_write"),
    (TempExpr, "visit_temp"),
)


class ExprVisitor(ExprFunctor[None]):
    """Visitor of every node once, children first; override ``visit_*`` to look at nodes."""

    def default(self, expr: RelayExpr) -> None:
        """Visit the children, which without ``top_down`` have been visited before."""
        if self.top_down:
            for child in self.children(expr):
                self.visit(child)


class ExprMutator(ExprFunctor[RelayExpr]):
    """Mutator of expressions; a node whose parts stay the same stays the same object, with its type."""

    def default(self, expr: RelayExpr) -> RelayExpr:
        """Keep leaves as they are."""
        return expr

    def _visit_all(self, items: Iterable[RelayExpr]) -> tuple[RelayExpr, ...]:
        return tuple([self.visit(item) for item in items])  # a generator would use the stack of C

    def visit_call(self, expr: Call) -> RelayExpr:
        """Rebuild when the callee or an argument changed."""
        op, args = self.visit(expr.op), self._visit_all(expr.args)
        if op is expr.op and _same(args, expr.args):
            return expr
        return Call(op, args, expr.attrs, expr.type_args, expr.span)

    def visit_tuple(self, expr: Tuple) -> RelayExpr:
        """Rebuild when a field changed."""
        fields = self._visit_all(expr.fields)
        return expr if _same(fields, expr.fields) else Tuple(fields, expr.span)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        """Rebuild when the tuple changed."""
        value = self.visit(expr.tuple_value)
        return expr if value is expr.tuple_value else TupleGetItem(value, expr.index, expr.span)

    def visit_function(self, expr: Function) -> RelayExpr:
        """Rebuild when a parameter or the body changed; keep a finished kernel whose body is not among the children."""
        if is_closed(expr) and not self.children(expr):
            return expr
        params, body = self._visit_all(expr.params), self.visit(expr.body)
        if body is expr.body and _same(params, expr.params):
            return expr
        return Function(params, body, expr.ret_type, expr.type_params, expr.attrs, expr.span)  # type: ignore[arg-type]

    def visit_let(self, expr: Let) -> RelayExpr:
        """Rebuild when a part changed."""
        var, value, body = self.visit(expr.var), self.visit(expr.value), self.visit(expr.body)
        if var is expr.var and value is expr.value and body is expr.body:
            return expr
        return Let(var, value, body, expr.span)  # type: ignore[arg-type]

    def visit_if(self, expr: If) -> RelayExpr:
        """Rebuild when a part changed."""
        cond, then, other = self.visit(expr.cond), self.visit(expr.true_branch), self.visit(expr.false_branch)
        if cond is expr.cond and then is expr.true_branch and other is expr.false_branch:
            return expr
        return If(cond, then, other, expr.span)

    def visit_match(self, expr: Match) -> RelayExpr:
        """Rebuild when the data or a clause changed; patterns stay."""
        data = self.visit(expr.data)
        clauses = [c if self.visit(c.rhs) is c.rhs else Clause(c.lhs, self.visit(c.rhs), c.span) for c in expr.clauses]
        if data is expr.data and _same(clauses, expr.clauses):
            return expr
        return Match(data, clauses, expr.complete, expr.span)

    def visit_ref_create(self, expr: RefCreate) -> RelayExpr:
        """Rebuild when the value changed."""
        value = self.visit(expr.value)
        return expr if value is expr.value else RefCreate(value, expr.span)

    def visit_ref_read(self, expr: RefRead) -> RelayExpr:
        """Rebuild when the reference changed."""
        ref = self.visit(expr.ref)
        return expr if ref is expr.ref else RefRead(ref, expr.span)

    def visit_ref_write(self, expr: RefWrite) -> RelayExpr:
        """Rebuild when the reference or the value changed."""
        ref, value = self.visit(expr.ref), self.visit(expr.value)
        return expr if ref is expr.ref and value is expr.value else RefWrite(ref, value, expr.span)


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(x is y for x, y in zip(a, b, strict=True))


class ExprRewriter(ExprMutator):
    """Mutator whose ``rewrite_call(pre, post)`` gets each call before and after its children were rewritten."""

    def visit_call(self, expr: Call) -> RelayExpr:
        """Rebuild the call, then pass it to ``rewrite_call``."""
        post = super().visit_call(expr)
        assert isinstance(post, Call)
        return self.rewrite_call(expr, post)

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        """Return the replacement of ``post``, or ``post`` itself."""
        return post


def post_order_visit(expr: RelayExpr, fvisit: Callable[[RelayExpr], None]) -> None:
    """Call ``fvisit`` on every node once, children first."""
    for node in post_order(expr):
        fvisit(node)


def post_order(
    expr: RelayExpr, children: Callable[[RelayExpr], Sequence[RelayExpr]] = direct_children
) -> list[RelayExpr]:
    """Yield every node once, children (those of ``children``) before the nodes that use them."""
    return walk.post_order([expr], children)


class _Substitute(ExprMutator):
    def __init__(self, binds: Mapping[Var, RelayExpr]) -> None:
        super().__init__()
        self.memo_map.update(binds.items())


def substitute(expr: RelayExpr, binds: Mapping[Var, RelayExpr]) -> RelayExpr:
    """Return ``expr`` with variables replaced by expressions."""
    return _Substitute(binds).visit(expr)


def bind(expr: RelayExpr, binds: Mapping[Var, RelayExpr]) -> RelayExpr:
    """Return ``expr`` with free variables replaced; bound parameters of a function are dropped from it."""
    if not isinstance(expr, Function):
        return substitute(expr, binds)
    body = substitute(expr.body, binds)
    params = [p for p in expr.params if p not in binds]
    return Function(params, body, expr.ret_type, expr.type_params, expr.attrs, expr.span)
