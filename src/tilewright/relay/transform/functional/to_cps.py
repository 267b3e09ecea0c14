"""ToCPS: functions hand their results to a function, the continuation, and never return.

Before::

    fn (%c: bool, %x: float32) -> float32 {
      let %a = if (%c) { @f(%x) } else { %x };
      exp(%a)
    }

after::

    fn [answer](%c: bool, %x: float32, %k: fn (float32) -> answer) -> answer {
      let %join = fn (%a) { let %y = exp(%a); %k(%y) };
      if (%c) { @f_cps(%x, %join) } else { %join(%x) }
    }

A function of type ``a -> b`` becomes one of type ``(a, b -> answer) -> answer``, for a type ``answer`` of the caller's
choice, also inside of other types; data types are taken to hold no functions. What comes after an ``if`` or a
``match`` becomes a function that all branches call: partial evaluation then goes on in each branch with what is known
there. Global functions get counterparts in the module, ``<name>_cps``.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.trampoline import Steps, run
from tilewright.ir.type import FuncType, Type, TypeVar
from tilewright.relay.adt import Clause, Constructor, Match, Pattern, PatternConstructor, PatternTuple, PatternVar
from tilewright.relay.expr import (
    Call,
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
from tilewright.relay.lets import let_chain
from tilewright.relay.transform.functional.to_a_normal_form import to_a_normal_form
from tilewright.relay.type_functor import TypeMutator
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import is_closed


class _Continued(TypeMutator):
    """Mutator of function types to types with a continuation."""

    def __init__(self, answer: TypeVar) -> None:
        self.answer = answer

    def visit_func_type(self, typ: Type) -> Type:
        """Add the continuation."""
        assert isinstance(typ, FuncType)
        arguments = [self.visit(t) for t in typ.arg_types]
        return FuncType([*arguments, self.continuation(typ.ret_type)], self.answer, typ.type_params)

    def continuation(self, result: Type) -> FuncType:
        """Return the type of what takes a value of type ``result``."""
        return FuncType([self.visit(result)], self.answer)


class _Converter:
    """Converter of one global function; its parts share a type of answers."""

    def __init__(self, counterparts: _Counterparts) -> None:
        self.counterparts = counterparts
        self.types = _Continued(TypeVar("answer"))
        self.vars: dict[Var, Var] = {}

    def function(self, func: Function) -> Steps[Function]:
        """Return the function with one more parameter, the continuation."""
        if is_closed(func):
            return func
        if func.ret_type is None:
            raise TilewrightError(
                "to_cps: the types of the function are not known; run relay.transform.InferType() first"
            )
        params = [self._copied(p) for p in func.params]
        then = Var("k", self.types.continuation(func.ret_type))
        body = yield self._body(func.body, then)
        return Function([*params, then], body, self.types.answer, func.type_params, func.attrs, func.span)

    def _copied(self, var: Var) -> Var:
        type_ = var.type_annotation or var.checked_type_or_none
        self.vars[var] = Var(var.name_hint, None if type_ is None else self.types.visit(type_), var.span)
        return self.vars[var]

    def _pattern(self, pattern: Pattern) -> Pattern:
        match pattern:
            case PatternVar():
                return PatternVar(self._copied(pattern.var), pattern.span)
            case PatternConstructor() | PatternTuple():
                return pattern.replace(patterns=tuple(self._pattern(p) for p in pattern.patterns))
        return pattern

    def _atom(self, expr: RelayExpr) -> RelayExpr:
        if isinstance(expr, GlobalVar):
            return self.counterparts.of(expr)
        return self.vars.get(expr, expr) if isinstance(expr, Var) else expr

    def _body(self, expr: RelayExpr, then: Var) -> Steps[RelayExpr]:
        """Return a body in A-normal form whose result goes to ``then``; it is written from its end."""
        bindings, result = let_chain(expr)
        copies = [self._copied(var) for var, _ in bindings]
        rest: RelayExpr = Call(then, [self._atom(result)])
        for copy, (_, value) in zip(reversed(copies), reversed(bindings), strict=True):
            rest = yield self._bound(copy, value, rest)
        return rest

    def _bound(self, var: Var, value: RelayExpr, rest: RelayExpr) -> Steps[RelayExpr]:
        """Return what computes ``value``, calls it ``var``, and goes on with ``rest``."""
        if isinstance(value, (If, Match)):
            return (yield self._branches(var, value, rest))
        if isinstance(value, Call) and not self._returns(value):
            args = [self._atom(a) for a in value.args]
            types = [self.types.visit(t) for t in value.type_args]
            if types and isinstance(value.op, GlobalVar):
                types.append(self.types.answer)
            return Call(self._atom(value.op), [*args, _as_function(var, rest)], value.attrs, types, value.span)
        return Let(var, (yield self._simple(value)), rest)

    def _returns(self, call: Call) -> bool:
        """Return whether the callee is none of the converted functions."""
        if isinstance(call.op, GlobalVar):
            return self.counterparts.of(call.op) is call.op
        return isinstance(call.op, (Op, Constructor)) or is_closed(call.op)

    def _branches(self, var: Var, value: If | Match, rest: RelayExpr) -> Steps[RelayExpr]:
        goes_on = _as_function(var, rest)
        join = goes_on if isinstance(goes_on, Var) else Var("join")
        made: RelayExpr
        if isinstance(value, If):
            then, other = (yield self._body(value.true_branch, join)), (yield self._body(value.false_branch, join))
            made = If(self._atom(value.cond), then, other, value.span)
        else:
            clauses = []
            for clause in value.clauses:
                pattern = self._pattern(clause.lhs)
                clauses.append(Clause(pattern, (yield self._body(clause.rhs, join)), clause.span))
            made = Match(self._atom(value.data), clauses, value.complete, value.span)
        return made if join is goes_on else Let(join, goes_on, made)

    def _simple(self, value: RelayExpr) -> Steps[RelayExpr]:
        """Return a value that is computed without calls of converted functions."""
        match value:
            case Function():
                return (yield self.function(value))
            case Call():
                args = [self._atom(a) for a in value.args]
                return Call(self._atom(value.op), args, value.attrs, value.type_args, value.span)
            case Tuple():
                return Tuple([self._atom(f) for f in value.fields], value.span)
            case TupleGetItem():
                return TupleGetItem(self._atom(value.tuple_value), value.index, value.span)
            case RefCreate():
                return RefCreate(self._atom(value.value), value.span)
            case RefRead():
                return RefRead(self._atom(value.ref), value.span)
            case RefWrite():
                return RefWrite(self._atom(value.ref), self._atom(value.value), value.span)
        return self._atom(value)


def _as_function(var: Var, rest: RelayExpr) -> RelayExpr:
    """Return ``rest`` as a function of ``var``: the callee itself where it only passes ``var`` on."""
    if isinstance(rest, Call) and isinstance(rest.op, Var) and len(rest.args) == 1 and rest.args[0] is var:
        return rest.op
    return Function([var], rest)


class _Counterparts:
    """Converted global functions, which are added to the module."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.typed = infer_module(mod)
        self.known: dict[GlobalVar, GlobalVar] = {}
        self.waiting: list[GlobalVar] = []

    def of(self, var: GlobalVar) -> GlobalVar:
        """Return the counterpart of a global function; a function that is not Relay's, or a kernel, is its own."""
        if var not in self.known:
            func = self.typed[var]
            opened = isinstance(func, Function) and not is_closed(func)
            self.known[var] = GlobalVar(f"{var.name_hint}_cps") if opened else var
            if opened:
                self.waiting.append(var)
        return self.known[var]

    def add(self) -> None:
        """Convert the functions that are called, and those that they call."""
        while self.waiting:
            var = self.waiting.pop()
            func = self.typed[var]
            assert isinstance(func, Function)
            self.mod[self.known[var]] = self.convert(func)

    def convert(self, func: Function) -> Function:
        """Return a global function converted; the type of answers is its last type parameter."""
        converter = _Converter(self)
        normal = to_a_normal_form(func)
        assert isinstance(normal, Function)
        result = run(converter.function(normal))
        return result.replace(type_params=(*result.type_params, converter.types.answer))


def to_cps(func: Function, mod: IRModule | None = None) -> Function:
    """Return ``func``, which must be typed, in continuation-passing style.

    The global functions that it calls are looked up in ``mod``, which gets their counterparts ``<name>_cps``.
    """
    counterparts = _Counterparts(IRModule() if mod is None else mod)
    result = counterparts.convert(func)
    counterparts.add()
    return result


def un_cps(func: Function) -> Function:
    """Return a function that calls ``func``, as ``to_cps`` made it, and returns what the continuation gets.

    Parameters and results that are functions stay in continuation-passing style.
    """
    params = [Var(p.name_hint, p.type_annotation, p.span) for p in func.params]
    signature = params.pop().type_annotation if params else None
    if not isinstance(signature, FuncType) or len(signature.arg_types) != 1 or not func.type_params:
        raise TilewrightError(
            f"un_cps: expected a function that to_cps made, whose last parameter is a continuation; found {func}"
        )
    result = signature.arg_types[0]
    same = Var("x", result)
    kept: Sequence[TypeVar] = func.type_params[:-1]
    call = Call(func, [*params, Function([same], same, result)], None, [*kept, result])
    return Function(params, call, result, kept, func.attrs)


def ToCPS(expr: Function, mod: IRModule | None = None) -> Function:
    """``to_cps``, by the name that TVM lists among passes."""
    return to_cps(expr, mod)
