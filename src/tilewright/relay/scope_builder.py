"""``ScopeBuilder``: nested lets and branches, written statement by statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import IncompleteType, Type
from tilewright.relay.expr import If, TupleWrapper, Var
from tilewright.relay.lets import with_lets


class _Branch:
    """An ``if`` whose branches are under construction."""

    def __init__(self, cond: RelayExpr) -> None:
        self.cond = cond
        self.then: RelayExpr | None = None
        self.otherwise: RelayExpr | None = None

    def result(self) -> RelayExpr:
        """Return the finished conditional."""
        if self.then is None or self.otherwise is None:
            raise ValueError("an if_scope needs a ret(...), and an else_scope with a ret(...) after it")
        return If(self.cond, self.then, self.otherwise)


class ScopeBuilder:
    """Builder of bindings and a result; ``get`` returns the expression::

    sb = relay.ScopeBuilder()
    with sb.if_scope(cond):
        one = sb.let("one", relay.const(1))
        sb.ret(relay.add(x, one))
    with sb.else_scope():
        sb.ret(x)
    body = sb.get()
    """

    def __init__(self) -> None:
        self._bindings: list[list[tuple[Var, RelayExpr]]] = [[]]
        self._results: list[RelayExpr | _Branch | None] = [None]

    def let(self, var: Var | str | tuple[str, Type], value: RelayExpr | TupleWrapper) -> Var:
        """Bind ``value`` to a variable, its name, or its name and type; return the variable."""
        if isinstance(var, str):
            var = Var(var)
        elif isinstance(var, tuple):
            var = Var(*var)
        bound = value.astuple() if isinstance(value, TupleWrapper) else value
        self._bindings[-1].append((var, bound))
        return var

    def type_of(self, expr: RelayExpr) -> Type | None:
        """Return the annotation of a variable, or a type to be inferred for any other expression.

        An expression that is no variable is bound in the scope.
        """
        if isinstance(expr, Var):
            return expr.type_annotation
        unknown = IncompleteType()
        self.let(("unify", unknown), expr)
        return unknown

    def ret(self, value: RelayExpr | TupleWrapper) -> None:
        """Set the result of the scope; raise RuntimeError when it has one."""
        if self._results[-1] is not None:
            raise RuntimeError("ret(...) was called before in this scope")
        self._results[-1] = value.astuple() if isinstance(value, TupleWrapper) else value

    @contextmanager
    def if_scope(self, cond: RelayExpr) -> Iterator[None]:
        """Open the branch where ``cond`` holds; an ``else_scope`` follows. The conditional is the scope's result."""
        if self._results[-1] is not None:
            raise RuntimeError("if_scope comes after ret(...) in this scope")
        self._open()
        yield
        branch = _Branch(cond)
        branch.then = self._close()
        self._results[-1] = branch

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """Open the other branch; must follow an ``if_scope``."""
        branch = self._results[-1]
        if not isinstance(branch, _Branch) or branch.otherwise is not None:
            raise RuntimeError("else_scope must follow an if_scope")
        self._open()
        yield
        branch.otherwise = self._close()

    def get(self) -> RelayExpr:
        """Return the bindings around the result; raise RuntimeError when there is no result."""
        result = self._results[-1]
        if result is None:
            raise RuntimeError("the scope has no result; call ret(...) first")
        body = result.result() if isinstance(result, _Branch) else result
        return with_lets(self._bindings[-1], body)

    def _open(self) -> None:
        self._bindings.append([])
        self._results.append(None)

    def _close(self) -> RelayExpr:
        body = self.get()
        self._bindings.pop()
        self._results.pop()
        return body
