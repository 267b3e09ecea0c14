"""inline_calls: bodies of functions over their arguments, in place of the calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.ir.budget import count_nodes
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call, Function, Let, TempExpr, Var
from tilewright.relay.transform.common import BoundLet, children_with_marks, open_children
from tilewright.relay.visitor import ExprMutator, direct_children, is_closed, post_order

Callee = Callable[[RelayExpr], Function | None]


def called_function(op: RelayExpr) -> Function | None:
    """Return ``op`` where it is a function itself: the choice of callers who inline all of them."""
    return op if isinstance(op, Function) else None


def open_function(op: RelayExpr) -> Function | None:
    """Return ``op`` where it is a function whose body passes may change: neither fused nor external."""
    return op if isinstance(op, Function) and not is_closed(op) else None


def inline_calls(expr: RelayExpr, callee: Callee) -> RelayExpr:
    """Return ``expr`` with calls replaced by the bodies of the called functions over the arguments.

    Parameters
    ----------
    expr : any expression; recursive functions that a let binds stay calls
    callee : returns the function to inline for what is called (a function, the name of one; a variable that a let
        binds to a function counts as that function), or None where the call stays. The bodies of fused and external
        functions are left alone unless it returns them.

    Raises
    ------
    BudgetError when calls that double at each level make more nodes than the budget in force.

    Before (with ``open_function``)::

        let %f = fn (%y) { add(%y, %y) };
        %f(%x)

    after::

        let %f = fn (%y) { add(%y, %y) };
        add(%x, %x)
    """
    return _Inliner(callee).visit(expr)


def mentions(root: RelayExpr, name: RelayExpr) -> bool:
    """Return whether ``name``, a variable or a global variable, occurs in ``root``."""
    return any(expr is name for expr in post_order(root))


class _Inliner(ExprMutator):
    def __init__(self, callee: Callee) -> None:
        super().__init__()
        self.callee = callee
        self.bound: dict[RelayExpr, Function] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        if is_closed(expr) and self.callee(expr) is not None:
            return direct_children(expr)
        return children_with_marks(expr)

    def visit_temp(self, expr: TempExpr) -> RelayExpr:
        assert isinstance(expr, BoundLet)
        value = self.visit(expr.let.value)
        if isinstance(value, Function) and not mentions(value, expr.let.var):
            self.bound[expr.let.var] = value
        return expr

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        assert isinstance(post, Call)
        callee = self.callee(self.bound.get(post.op, post.op))
        return post if callee is None else _copied(callee, post.args, post.op)


class _Copy(ExprMutator):
    """Copy a function body over its arguments, with fresh variables for its bindings."""

    def __init__(self, binds: Mapping[Var, RelayExpr]) -> None:
        super().__init__()
        self.memo_map.update(binds.items())
        self.bound: set[Var] = set()

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        if isinstance(expr, Let):
            self.bound.add(expr.var)
        elif isinstance(expr, Function) and not is_closed(expr):
            self.bound.update(expr.params)
        return open_children(expr)

    def visit_var(self, expr: Var) -> RelayExpr:
        if expr in self.bound:
            return Var(expr.name_hint, expr.type_annotation, expr.span)
        return expr


def _copied(callee: Function, args: Sequence[RelayExpr], name: RelayExpr) -> RelayExpr:
    """Return the body of a function over its arguments; the budget bounds nested doubling."""
    copy = _Copy(dict(zip(callee.params, args, strict=True)))
    result = copy.visit(callee.body)
    hint = getattr(name, "name_hint", "")
    count_nodes(len(copy.memo_map), f"calls of the function {hint}" if hint else "calls of a local function")
    return result
