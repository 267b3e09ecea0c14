"""The gradient of any program: values carry a cell for their gradient, and a chain of closures runs backwards.

A tensor becomes a pair of itself and a reference to its gradient, zeros at first; every other value keeps its structure
around such pairs. One more reference, the chain, holds a closure. Each operator prepends a closure to it, which adds
to the gradients of its arguments by the operator's rule and then calls the previous closure.

Before::

    let %y = multiply(%x, %x);

after::

    let %value = multiply(%x.0, %x.0);
    let %y = (%value, ref(zeros));
    let %before = ref_read(%chain);
    ref_write(%chain, fn () {
      let %grad = ref_read(%y.1);
      ref_write(%x.1, add(ref_read(%x.1), multiply(%grad, %x.0)));
      ref_write(%x.1, add(ref_read(%x.1), multiply(%grad, %x.0)));
      %before()
    });

Functions take the chain as one more parameter; a global function gets a counterpart ``<name>_grad``. A checkpoint
computes the bare value, and its closure computes it again with gradients. The method was published as "Demystifying
Differentiable Programming" (Wang et al., ICFP 2019), and is TVM's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.type import FuncType, RefType, TensorType, TupleType, Type
from tilewright.relay import function_attributes
from tilewright.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    TypeData,
    pattern_vars,
)
from tilewright.relay.analysis import free_vars
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
from tilewright.relay.lets import with_lets
from tilewright.relay.op.tensor.binary import add
from tilewright.relay.transform.autodiff.gradient_calls import (
    CHECKPOINT,
    check_rules,
    filled_type,
    gradient_type,
    gradients_of,
    operator_calls,
    prepared,
)
from tilewright.relay.transform.functional.to_a_normal_form import to_a_normal_form
from tilewright.relay.type_functor import TypeMutator
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import ExprMutator, is_closed, post_order

_UNIT = TupleType([])
_CHAIN = RefType(FuncType([], _UNIT))


class _WithGradients(TypeMutator):
    def visit_tensor_type(self, type_: Type | TypeData) -> Type:
        """Return the type of a tensor and the cell of its gradient."""
        assert isinstance(type_, TensorType)
        return TupleType([type_, RefType(type_)])

    def visit_func_type(self, type_: Type | TypeData) -> Type:
        """Add the chain to the parameters of functions."""
        assert isinstance(type_, FuncType)
        arguments = [self.visit(t) for t in type_.arg_types]
        return FuncType([*arguments, _CHAIN], self.visit(type_.ret_type), type_.type_params, type_.type_constraints)


def _paired(type_: Type | None) -> Type | None:
    """Return the type of a value of ``type_`` together with its gradients."""
    return None if type_ is None else _WithGradients().visit(type_)


class _Lets:
    """Bindings of a block under construction, in order of evaluation."""

    def __init__(self) -> None:
        self.bindings: list[tuple[Var, RelayExpr]] = []

    def bind(self, var: Var, value: RelayExpr) -> None:
        """Bind ``value`` to ``var``."""
        self.bindings.append((var, value))

    def name(self, value: RelayExpr, hint: str = "x", type_: Type | None = None) -> Var:
        """Evaluate ``value`` now, and return a variable for it, typed if its type is given."""
        var = Var(hint).with_checked_type(type_)
        self.bindings.append((var, value))
        return var

    def around(self, body: RelayExpr) -> RelayExpr:
        """Return the block with the result ``body``."""
        return with_lets(self.bindings, body)


class _Replace(ExprMutator):
    """Replace expressions; variables bound within get fresh ones with ``rename``."""

    def __init__(self, binds: Mapping[RelayExpr, RelayExpr], rename: bool = False) -> None:
        super().__init__()
        self.memo_map.update(binds)
        self.rename = rename

    def visit_var(self, expr: Var) -> RelayExpr:
        return Var(expr.name_hint, expr.type_annotation, expr.span) if self.rename else expr


def _unsupported(what: str, type_: Type) -> UnsupportedError:
    return UnsupportedError(f"gradient: {what} has type {type_}; only tensors and tuples of tensors can be there")


def _map_tensors(
    type_: Type, value: RelayExpr, lets: _Lets, change: Callable[[TensorType, RelayExpr], RelayExpr], typed: bool = True
) -> Var:
    """Apply ``change`` to each tensor of a value of ``type_``, in the same tuples; typed as ``type_`` if asked."""
    if isinstance(type_, TensorType):
        result = change(type_, value)
    elif isinstance(type_, TupleType):
        fields = [lets.name(TupleGetItem(value, i)) for i in range(len(type_.fields))]
        result = Tuple([_map_tensors(t, f, lets, change, typed) for t, f in zip(type_.fields, fields, strict=True)])
    else:
        raise _unsupported("a value that an operator or a checkpoint takes or gives", type_)
    return lets.name(result, "x", type_ if typed else None)


def _with_cell(type_: Type, value: Var, lets: _Lets) -> Var:
    """Return a value with new cells for its gradients."""

    def pair(tensor: TensorType, item: RelayExpr) -> RelayExpr:
        return Tuple([item, RefCreate(filled_type(0, tensor, item))])

    return _map_tensors(type_, value, lets, pair, typed=False)


def _value(type_: Type, pair: RelayExpr, lets: _Lets) -> Var:
    """Return the bare value."""
    return _map_tensors(type_, pair, lets, lambda _, item: TupleGetItem(item, 0))


def _gradient(type_: Type, pair: RelayExpr, lets: _Lets) -> Var:
    """Read the gradient of a value now."""
    return _map_tensors(type_, pair, lets, lambda _, item: RefRead(TupleGetItem(item, 1)))


def _write(type_: Type, pair: RelayExpr, grad: RelayExpr, lets: _Lets, accumulate: bool) -> None:
    """Set the gradients of a value to ``grad``, or add it to them."""
    if isinstance(type_, TupleType):
        for i, field in enumerate(type_.fields):
            part = lets.name(TupleGetItem(grad, i))
            _write(field, lets.name(TupleGetItem(pair, i)), part, lets, accumulate)
        return
    cell = lets.name(TupleGetItem(pair, 1))
    lets.name(RefWrite(cell, add(RefRead(cell), grad) if accumulate else grad))


def _new_chain() -> RelayExpr:
    return RefCreate(Function([], Tuple([]), _UNIT))


def _hang(chain: Var, lets: _Lets, fill: Callable[[_Lets], None]) -> None:
    """Prepend a closure to the chain; ``fill`` writes its body, before the call of the previous closure."""
    before = lets.name(RefRead(chain), "before")
    inner = _Lets()
    fill(inner)
    lets.name(RefWrite(chain, Function([], inner.around(Call(before, ())), _UNIT)))


class _Differentiator:
    """Rewriter of a typed function in A-normal form to values with gradients."""

    def __init__(self, sister: Callable[[GlobalVar], GlobalVar]) -> None:
        self.sister = sister
        self.env: dict[Var, Var] = {}

    def bound(self, var: Var, annotate: bool = False) -> Var:
        """Return the new variable for ``var`` where it is bound."""
        annotation = _paired(var.checked_type) if annotate else None
        self.env[var] = Var(var.name_hint, annotation)
        return self.env[var]

    def block(self, body: RelayExpr, chain: Var) -> RelayExpr:
        """Rewrite the body of a function or branch."""
        lets = _Lets()
        while isinstance(body, Let):
            # the name is known in the value, too: functions call themselves by it
            var = self.bound(body.var)
            lets.bind(var, self.expr(body.value, chain, lets))
            body = body.body
        return lets.around(self.expr(body, chain, lets))

    def expr(self, expr: RelayExpr, chain: Var, lets: _Lets) -> RelayExpr:
        """Rewrite an expression whose parts are all atoms, or blocks."""

        def atom(part: RelayExpr) -> RelayExpr:
            return self.expr(part, chain, lets)

        match expr:
            case Var():
                return self.env[expr]
            case GlobalVar():
                return self.sister(expr)
            case Constructor():
                return expr
            case Constant():
                return _with_cell(expr.checked_type, lets.name(expr), lets)
            case Tuple():
                return Tuple([atom(f) for f in expr.fields])
            case TupleGetItem():
                return TupleGetItem(atom(expr.tuple_value), expr.index)
            case Function():
                return self.function(expr, chain)
            case If():
                condition = TupleGetItem(atom(expr.cond), 0)
                return If(condition, self.block(expr.true_branch, chain), self.block(expr.false_branch, chain))
            case Match():
                clauses = [Clause(self.pattern(c.lhs), self.block(c.rhs, chain)) for c in expr.clauses]
                return Match(atom(expr.data), clauses, expr.complete)
            case RefCreate():
                return RefCreate(atom(expr.value))
            case RefRead():
                return RefRead(atom(expr.ref))
            case RefWrite():
                return RefWrite(atom(expr.ref), atom(expr.value))
            case Call():
                return self.call(expr, chain, lets)
        raise UnsupportedError(
            f"gradient does not take a {type(expr).__name__} as a value; put it into a function, as fn (x) {{ op(x) }}"
        )

    def pattern(self, pattern: Pattern) -> Pattern:
        """Return a pattern with fresh variables."""
        match pattern:
            case PatternVar():
                return PatternVar(self.bound(pattern.var))
            case PatternConstructor():
                return PatternConstructor(pattern.constructor, [self.pattern(p) for p in pattern.patterns])
            case PatternTuple():
                return PatternTuple([self.pattern(p) for p in pattern.patterns])
        return pattern

    def call(self, expr: Call, chain: Var, lets: _Lets) -> RelayExpr:
        """Rewrite a call of an operator, of a constructor, or of a function."""
        args = [lets.name(self.expr(a, chain, lets)) for a in expr.args]
        if isinstance(expr.op, Op):
            return self.operator(expr, args, chain, lets)
        callee = self.expr(expr.op, chain, lets)
        types = [t for t in map(_paired, expr.type_args) if t is not None]
        if isinstance(expr.op, Constructor):
            return Call(callee, args, expr.attrs, types)
        return Call(callee, [*args, chain], expr.attrs, types)

    @staticmethod
    def operator(expr: Call, args: Sequence[Var], chain: Var, lets: _Lets) -> RelayExpr:
        """Apply the operator to the values, and add a closure for the gradients."""
        types = [a.checked_type for a in expr.args]
        values = [_value(t, a, lets) for t, a in zip(types, args, strict=True)]
        orig = Call(expr.op, values, expr.attrs, expr.type_args, expr.span).with_checked_type(expr.checked_type)
        value = lets.name(orig, "value", expr.checked_type)
        result = _with_cell(expr.checked_type, value, lets)

        def fill(inner: _Lets) -> None:
            found = gradients_of(orig, _gradient(expr.checked_type, result, inner))
            named = _Replace({orig: value})  # rules write the result as the call
            for type_, arg, grad in zip(types, args, found, strict=True):
                if grad is not None:
                    _write(type_, arg, inner.name(named.visit(grad), "grad"), inner, accumulate=True)

        _hang(chain, lets, fill)
        return result

    def function(self, func: Function, chain: Var) -> RelayExpr:
        """Return a function that takes the chain of its caller as its last parameter."""
        own = Var("chain", _CHAIN)
        if function_attributes.CHECKPOINT.on(func):
            return Function([own], self.checkpoint(func, own))
        params = [self.bound(p, annotate=True) for p in func.params]
        result = _paired(func.ret_type or func.body.checked_type)
        return Function([*params, own], self.block(func.body, own), result, func.type_params, func.attrs)

    def checkpoint(self, func: Function, chain: Var) -> RelayExpr:
        """Compute the body's value alone; the closure evaluates the body again, with gradients."""
        lets = _Lets()
        type_ = func.body.checked_type
        bare: dict[RelayExpr, RelayExpr] = {v: _value(v.checked_type, self.env[v], lets) for v in free_vars(func)}
        matches = [node for node in post_order(func) if isinstance(node, Match)]
        bare.update((v, v) for match in matches for clause in match.clauses for v in pattern_vars(clause.lhs))
        value = lets.name(_Replace(bare, rename=True).visit(func.body), "value", type_)
        result = _with_cell(type_, value, lets)

        def fill(inner: _Lets) -> None:
            again = inner.name(_new_chain(), "chain")
            repeated = inner.name(self.block(func.body, again))
            _write(type_, repeated, _gradient(type_, result, inner), inner, accumulate=False)
            inner.name(Call(inner.name(RefRead(again)), ()))

        _hang(chain, lets, fill)
        return lets.around(result)


class _MarkCheckpoints(ExprMutator):
    """Make the body of a checkpoint a function, so that values that only it uses stay inside."""

    def visit_call(self, expr: Call) -> RelayExpr:
        if expr.op is CHECKPOINT:
            return Call(Function([], self.visit(expr.args[0]), attrs={function_attributes.CHECKPOINT.key: 1}), ())
        return super().visit_call(expr)


class _Program:
    """A module whose functions are differentiated as they are called; the counterparts go to ``results``."""

    def __init__(self, mod: IRModule, results: IRModule | None) -> None:
        self.mod = mod
        self.results = results
        self.sisters: dict[str, GlobalVar] = {}

    def sister(self, var: GlobalVar) -> GlobalVar:
        """Return the function ``<name>_grad``, made when it is first asked for."""
        name = var.name_hint
        if name not in self.sisters:
            assert self.results is not None
            taken = f"{name}_grad"
            while taken in self.results or taken in self.mod:
                taken += "_"
            self.sisters[name] = GlobalVar(taken)
            made = self.differentiate(self.mod[var])
            self.results[self.sisters[name]] = made
        return self.sisters[name]

    def differentiate(self, func: Function) -> Function:
        """Return the function of values with gradients, and of a chain."""
        check_rules(operator_calls(func))
        made = _Differentiator(self.sister).function(func, Var("none"))
        result = to_a_normal_form(made)
        assert isinstance(result, Function)
        return result


def _normal_form(func: Function) -> Function:
    result = to_a_normal_form(_MarkCheckpoints().visit(func))
    assert isinstance(result, Function)
    return result


def differentiate_closures(func: Function, mod: IRModule | None) -> Function:
    """Return the ``gradient`` of any function; counterparts of the global functions that it calls are added to
    ``mod``.
    """
    work = IRModule() if mod is None else mod.copy()
    name = "differentiated"
    while name in work:
        name += "_"
    work[name] = func
    work = prepared(work)
    for var, item in list(work.items()):
        if isinstance(item, Function) and not is_closed(item):
            work[var] = _normal_form(item)
    work = infer_module(work)
    typed = work[name]
    inner = _Program(work, mod).differentiate(typed)
    result = to_a_normal_form(_run_backwards(typed, inner))
    assert isinstance(result, Function)
    return result


def _run_backwards(func: Function, inner: Function) -> Function:
    """Run ``inner``, set the gradient of its result to ones, run the chain, and read the gradients of parameters."""
    lets = _Lets()
    params = [Var(p.name_hint, p.checked_type) for p in func.params]
    chain = lets.name(_new_chain(), "chain")
    pairs = [_with_cell(p.checked_type, v, lets) for p, v in zip(func.params, params, strict=True)]
    type_ = func.body.checked_type
    result = lets.name(Call(inner, [*pairs, chain]), "result")
    value = _value(type_, result, lets)
    first, first_type = result, type_
    while isinstance(first_type, TupleType) and first_type.fields:
        first, first_type = lets.name(TupleGetItem(first, 0)), first_type.fields[0]
    _write(first_type, first, filled_type(1, first_type, TupleGetItem(first, 0)), lets, accumulate=False)
    lets.name(Call(lets.name(RefRead(chain)), ()))
    gradients = [_gradient(p.checked_type, pair, lets) for p, pair in zip(func.params, pairs, strict=True)]
    return Function(params, lets.around(Tuple([value, Tuple(gradients)])), gradient_type(func))
