"""Interpreter of Relay: every construct of the language, operators by their meaning in numpy.

Slow and simple. It runs what the graph executor does not (closures, recursion, references, data types), and it
is the oracle that passes and kernels are tested against: an operator's ``evaluate`` shares no code with the
compiled kernel. An operator without one is compiled alone.

Values: numpy arrays, tuples, ``Closure``, ``RefValue`` (references), ``ConstructorValue``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ir import walk
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.structural import structural_equal
from tilewright.ir.type import TupleType
from tilewright.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
)
from tilewright.relay.expr import (
    Call,
    Constant,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.relay.op.evaluation import evaluate_call
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import direct_children
from tilewright.runtime.container import ADT
from tilewright.runtime.ndarray import NDArray


@dataclass(eq=False)
class Closure:
    """A function with the values of its free variables; ``name`` is its let variable, for recursion."""

    func: Function
    scope: Scope
    name: Var | None = None


@dataclass(eq=False)
class RefValue:
    """A mutable reference."""

    value: Any


@dataclass(eq=False)
class ConstructorValue:
    """A value of an algebraic data type; ``tag`` is the constructor's."""

    tag: int
    fields: Sequence[Any]
    constructor: Constructor


@dataclass(eq=False)
class Scope:
    """Values of the expressions evaluated in one function body or branch, and of those around it."""

    parent: Scope | None = None
    values: dict[RelayExpr, Any] = field(default_factory=dict)

    def find(self, expr: RelayExpr) -> Any:
        """Return the value of ``expr`` here or in an outer scope; ``_UNKNOWN`` when it has not been evaluated."""
        scope: Scope | None = self
        while scope is not None:
            if expr in scope.values:
                return scope.values[expr]
            scope = scope.parent
        return _UNKNOWN


_UNKNOWN = object()


def _operands(expr: RelayExpr) -> Sequence[RelayExpr]:
    """Return the expressions that are evaluated before ``expr``, unconditionally and in the same scope."""
    match expr:
        case If():
            return (expr.cond,)
        case Match():
            return (expr.data,)
        case Let():
            return ()
        case Function():
            return ()
        case Call() if isinstance(expr.op, (Op, Constructor)):
            return expr.args
        case _:
            return direct_children(expr)


class Interpreter:
    """Evaluator of expressions of a typed module."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.globals = Scope()

    def evaluate(self, expr: RelayExpr, scope: Scope | None = None) -> Any:
        """Return the value of ``expr``. Only calls of Relay functions and branches use Python's stack."""
        scope = scope or Scope(self.globals)

        def operands(node: RelayExpr) -> Sequence[RelayExpr]:
            return _operands(node) if scope.find(node) is _UNKNOWN else ()

        for node in walk.post_order([expr], operands):
            if scope.find(node) is _UNKNOWN:
                scope.values[node] = self._step(node, scope)
        return scope.find(expr)

    def _step(self, expr: RelayExpr, scope: Scope) -> Any:
        match expr:
            case Constant():
                return expr.data.numpy()
            case Tuple():
                return tuple(scope.find(item) for item in expr.fields)
            case TupleGetItem():
                return scope.find(expr.tuple_value)[expr.index]
            case Call():
                return self._call(expr, scope)
            case Let():
                return self._let(expr, scope)
            case If():
                taken = expr.true_branch if bool(scope.find(expr.cond)) else expr.false_branch
                return self.evaluate(taken, Scope(scope))
            case Match():
                return self._match(expr, scope)
            case Function():
                return Closure(expr, scope)
            case GlobalVar():
                return Closure(self.mod[expr], self.globals)
            case RefCreate():
                return RefValue(scope.find(expr.value))
            case RefRead():
                return scope.find(expr.ref).value
            case RefWrite():
                scope.find(expr.ref).value = scope.find(expr.value)
                return ()
            case Op() | Constructor():
                return expr
            case Var():
                raise TilewrightError(f"variable %{expr.name_hint} has no value here")
            case _:
                raise TilewrightError(f"cannot evaluate a {type(expr).__name__}")

    def _let(self, expr: Let, scope: Scope) -> Any:
        inner = Scope(scope)
        body: RelayExpr = expr
        while isinstance(body, Let):
            value = self.evaluate(body.value, inner)
            if isinstance(value, Closure) and value.name is None:
                value = Closure(value.func, value.scope, body.var)
            inner.values[body.var] = value
            body = body.body
        return self.evaluate(body, inner)

    def _call(self, expr: Call, scope: Scope) -> Any:
        args = [scope.find(a) for a in expr.args]
        if isinstance(expr.op, Constructor):
            return ConstructorValue(expr.op.tag, tuple(args), expr.op)
        if isinstance(expr.op, Op):
            results = evaluate_call(expr, args, expr.checked_type)
            return tuple(results) if len(results) > 1 or _gives_tuple(expr) else results[0]
        return self.apply(scope.find(expr.op), args)

    def apply(self, callee: Any, args: Sequence[Any]) -> Any:
        """Call a closure or constructor with values."""
        if isinstance(callee, Constructor):
            return ConstructorValue(callee.tag, tuple(args), callee)
        if not isinstance(callee, Closure):
            raise TilewrightError(f"cannot call a {type(callee).__name__}")
        if len(args) != len(callee.func.params):
            raise TilewrightError(f"a function of {len(callee.func.params)} parameters was called with {len(args)}")
        inner = Scope(callee.scope)
        if callee.name is not None:
            inner.values[callee.name] = callee
        inner.values.update(zip(callee.func.params, args, strict=True))
        return self.evaluate(callee.func.body, Scope(inner))

    def _match(self, expr: Match, scope: Scope) -> Any:
        value = scope.find(expr.data)
        for clause in expr.clauses:
            inner = Scope(scope)
            if _bind_pattern(clause.lhs, value, inner):
                return self._clause(clause, inner)
        raise TilewrightError("no clause of the match covers the value")

    def _clause(self, clause: Clause, scope: Scope) -> Any:
        return self.evaluate(clause.rhs, scope)


def _gives_tuple(call: Call) -> bool:
    return isinstance(call.checked_type, TupleType)


def _bind_pattern(pattern: Pattern, value: Any, scope: Scope) -> bool:
    match pattern:
        case PatternVar():
            scope.values[pattern.var] = value
            return True
        case PatternConstructor():
            if not isinstance(value, ConstructorValue) or not structural_equal(value.constructor, pattern.constructor):
                return False
            return all(_bind_pattern(p, v, scope) for p, v in zip(pattern.patterns, value.fields, strict=True))
        case PatternTuple():
            return all(_bind_pattern(p, v, scope) for p, v in zip(pattern.patterns, value, strict=True))
        case _:
            return True


def to_value(value: Any) -> Any:
    """Return a Python argument as an interpreter's value."""
    if isinstance(value, NDArray):
        return value.numpy()
    if isinstance(value, Constant):
        return value.data.numpy()
    if isinstance(value, (tuple, list, ADT)):
        return tuple(to_value(v) for v in value)
    if isinstance(value, Tuple):
        return tuple(to_value(v) for v in value.fields)
    if isinstance(value, ConstructorValue):
        return ConstructorValue(value.tag, [to_value(v) for v in value.fields], value.constructor)
    if isinstance(value, RefValue):
        return RefValue(to_value(value.value))
    if isinstance(value, np.generic):  # np.float64 is a float too, and keeps its dtype
        return np.asarray(value)
    if isinstance(value, (bool, int, float)):
        narrow: dict[type, str] = {bool: "bool", int: "int32", float: "float32"}
        return np.asarray(value, dtype=narrow[type(value)])
    return value


def interpret(mod: IRModule, inputs: Sequence[Any] | Mapping[str, Any], entry: str = "main") -> Any:
    """Run a function of a module on numpy arrays, in order or by parameter name.

    Returns a numpy array, or a tuple for a tuple result.
    """
    typed = InferType()(mod)
    func = typed[entry]
    if isinstance(inputs, Mapping):
        missing = [p.name_hint for p in func.params if p.name_hint not in inputs]
        if missing:
            raise TilewrightError(f"no value for the parameters {', '.join(missing)} of {entry}")
        inputs = [inputs[p.name_hint] for p in func.params]
    machine = Interpreter(typed)
    return machine.apply(Closure(func, machine.globals), [to_value(v) for v in inputs])
