"""PartialEvaluate: compute while compiling what does not depend on the arguments.

Before::

    def @main(%x: int32) -> int32 {
      let %step = fn (%a: int32) -> int32 { add(%a, multiply(2, 3)) };
      let %twice = fn (%f: fn (int32) -> int32, %a: int32) -> int32 { %f(%f(%a)) };
      %twice(%step, %x)
    }

after::

    def @main(%x: int32) -> int32 {
      let %x1 = add(%x, 6);
      let %x2 = add(%x1, 6);
      %x2
    }

The program is evaluated, in A-normal form, with values of which parts are known: constants, fields of tuples and of
data types, functions, references. What is not known becomes code. Calls of known functions are unfolded, conditions and
matches of known values are decided, reads of references whose content is known are replaced by it. Writes stay, since
somebody else may read; ``DeadCodeElimination`` drops those that nobody can read. A known tuple, function or value of a
data type is written into the code when something that is not known first needs it, at the place where it was made.

Recursion ends. A call inside the unfolding of a call of the same function is unfolded only if an argument is smaller
than in all calls around it. The size of a whole number is its value, that of a tuple or value of a data type grows
with its parts; everything else has size 0. At most ``MAX_CALLS`` are unfolded; the rest stay calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.trampoline import Steps, run
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.type import IncompleteType, TypeVar
from tilewright.relay.adt import Clause, Constructor, Match
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
from tilewright.relay.transform.functional.partial_values import (
    Block,
    Built,
    Cell,
    Closure,
    Fields,
    Scope,
    Value,
    as_constants,
    copied,
    from_constants,
    later,
    matches,
)
from tilewright.relay.transform.functional.to_a_normal_form import to_a_normal_form
from tilewright.relay.transform.simplify.fold_constant import fold_constant
from tilewright.relay.type_infer import infer_expr, infer_module
from tilewright.relay.visitor import is_closed

MAX_CALLS = 10_000

_Store = dict[Cell, Value]


class _Evaluator:
    """Evaluator of a typed module. The methods that return ``Steps`` are run by a trampoline."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.globals: dict[GlobalVar, Value] = {}
        self.store: _Store = {}
        self.least: dict[Function, tuple[int, ...]] = {}
        self.calls_left = MAX_CALLS

    def global_value(self, var: GlobalVar) -> Value:
        """Return the value of a global function."""
        if var not in self.globals:
            func = self.mod[var]
            opened = isinstance(func, Function) and not is_closed(func)
            self.globals[var] = Value(Closure(to_a_normal_form(func), Scope()) if opened else None, var)  # type: ignore[arg-type]
        return self.globals[var]

    def function(self, closure: Closure) -> Steps[Function]:
        """Return the code of a function: it is called at any time, with arguments that are not known."""
        func = closure.func
        new = {v: TypeVar(v.name_hint, v.kind) for v in func.type_params}
        scope = closure.scope.inner(new)
        params = [scope.copy_of(p) for p in func.params]
        store, self.store = self.store, {}
        least, self.least[func] = self.least.get(func), (0,) * len(params)
        body, _ = yield self._branch(func.body, scope)
        self.store = store
        self._forget(func, least)
        return Function(params, body, scope.type_of(func.ret_type), list(new.values()), func.attrs, func.span)

    def _forget(self, func: Function, least: tuple[int, ...] | None) -> None:
        """Return to the sizes of arguments that hold around a call."""
        if least is None:
            del self.least[func]
        else:
            self.least[func] = least

    # Code of values.

    def _code(self, value: Value) -> Steps[RelayExpr]:
        """Return the atom for a value, after writing its code where there is none yet."""
        if value.code is not None:
            return value.code
        var = value.code = Var(value.hint)  # before the code, in which a function may call itself
        known = value.known
        if isinstance(known, Closure):
            made: RelayExpr = yield self.function(known)
        else:
            assert isinstance(known, (Fields, Built))
            codes = yield self._codes(known.items)
            made = Tuple(codes) if isinstance(known, Fields) else Call(known.constructor, codes)
        assert value.block is not None
        value.block.bindings[value.place] = (var, made)
        return var

    def _codes(self, values: Sequence[Value]) -> Steps[list[RelayExpr]]:
        codes = []
        for value in values:
            codes.append((yield self._code(value)))
        return codes

    # Evaluation.

    def _branch(self, body: RelayExpr, scope: Scope) -> Steps[tuple[RelayExpr, _Store]]:
        """Return the code of a body that is perhaps evaluated, and the store behind it."""
        outer, self.store = self.store, dict(self.store)
        block = Block()
        value = yield self._body(body, scope, block)
        code = yield self._code(value)
        store, self.store = self.store, outer
        return block.around(code), store

    def _body(self, expr: RelayExpr, scope: Scope, block: Block) -> Steps[Value]:
        while isinstance(expr, Let):
            scope.values[expr.var] = yield self._value(expr.value, scope, block, expr.var)
            expr = expr.body
        value: Value = yield self._value(expr, scope, block, None)
        return value

    def _value(self, expr: RelayExpr, scope: Scope, block: Block, var: Var | None) -> Steps[Value]:
        hint = var.name_hint if var else "x"
        match expr:
            case Tuple():
                return later(Fields(tuple([self._atom(f, scope) for f in expr.fields])), block, hint)
            case Function() if not is_closed(expr):
                return self._closure(expr, scope, block, var)
            case TupleGetItem():
                whole = self._atom(expr.tuple_value, scope)
                if isinstance(whole.known, Fields):
                    return whole.known.items[expr.index]
                return Value(None, block.name(TupleGetItem((yield self._code(whole)), expr.index), hint))
            case Call():
                return (yield self._call(expr, scope, block, hint))
            case If():
                return (yield self._if(expr, scope, block, hint))
            case Match():
                return (yield self._match(expr, scope, block, hint))
            case RefCreate() | RefRead() | RefWrite():
                return (yield self._reference(expr, scope, block, hint))
        return self._atom(expr, scope)

    def _atom(self, expr: RelayExpr, scope: Scope) -> Value:
        if isinstance(expr, Var):
            return scope.values.get(expr) or Value(None, expr)
        if isinstance(expr, GlobalVar):
            return self.global_value(expr)
        assert isinstance(expr, (Constant, Op, Constructor, Function))
        return Value(expr, expr)

    def _closure(self, func: Function, scope: Scope, block: Block, var: Var | None) -> Value:
        value = later(Closure(func, scope), block, var.name_hint if var else "x")
        if var is not None:
            scope.values[var] = value
        return value

    def _if(self, expr: If, scope: Scope, block: Block, hint: str) -> Steps[Value]:
        cond = self._atom(expr.cond, scope)
        if isinstance(cond.known, Constant):
            taken = expr.true_branch if bool(cond.known.data.numpy()) else expr.false_branch
            return (yield self._body(taken, scope.inner(), block))
        code = yield self._code(cond)
        then, after_then = yield self._branch(expr.true_branch, scope.inner())
        other, after_other = yield self._branch(expr.false_branch, scope.inner())
        self._join([after_then, after_other])
        return Value(None, block.name(If(code, then, other), hint))

    def _match(self, expr: Match, scope: Scope, block: Block, hint: str) -> Steps[Value]:
        data = self._atom(expr.data, scope)
        for clause in expr.clauses:
            found: dict[Var, Value] = {}
            answer = matches(clause.lhs, data, found)
            if answer:
                inner = scope.inner()
                inner.values.update(found)
                return (yield self._body(clause.rhs, inner, block))
            if answer is None:
                break
        code = yield self._code(data)
        clauses, stores = [], []
        for clause in expr.clauses:
            inner = scope.inner()
            pattern = copied(clause.lhs, inner)
            body, store = yield self._branch(clause.rhs, inner)
            clauses.append(Clause(pattern, body, clause.span))
            stores.append(store)
        self._join(stores)
        return Value(None, block.name(Match(code, clauses, expr.complete), hint))

    def _join(self, stores: Sequence[_Store]) -> None:
        """Go on with what is known of the references behind any of several branches."""
        first, *others = stores or [{}]
        self.store = {cell: value for cell, value in first.items() if all(s.get(cell) is value for s in others)}

    def _reference(self, expr: RelayExpr, scope: Scope, block: Block, hint: str) -> Steps[Value]:
        if isinstance(expr, RefCreate):
            content, cell = self._atom(expr.value, scope), Cell()
            self.store[cell] = content
            return Value(cell, block.name(RefCreate((yield self._code(content))), hint))
        assert isinstance(expr, (RefRead, RefWrite))
        ref = self._atom(expr.ref, scope)
        if isinstance(expr, RefRead):
            return (yield self._read(ref, block, hint))
        content = self._atom(expr.value, scope)
        block.name(RefWrite((yield self._code(ref)), (yield self._code(content))), hint)
        if isinstance(ref.known, Cell):
            self.store[ref.known] = content
        else:
            self.store.clear()  # it may be any of the known ones
        return later(Fields(()), block, hint)

    def _read(self, ref: Value, block: Block, hint: str) -> Steps[Value]:
        if not isinstance(ref.known, Cell):
            return Value(None, block.name(RefRead((yield self._code(ref))), hint))
        if ref.known not in self.store:
            self.store[ref.known] = Value(None, block.name(RefRead((yield self._code(ref))), hint))
        return self.store[ref.known]

    # Calls.

    def _call(self, call: Call, scope: Scope, block: Block, hint: str) -> Steps[Value]:
        callee = self._atom(call.op, scope)
        args = [self._atom(a, scope) for a in call.args]
        match callee.known:
            case Constructor():
                return later(Built(callee.known, tuple(args)), block, hint)
            case Op():
                if (known := self._folded(call, args, block, hint)) is not None:
                    return known
            case Closure() if self._goes_on(callee.known.func, args):
                return (yield self._unfolded(callee.known, args, call, scope, block))
            case Op() | Function():
                pass
            case _:
                self.store.clear()
        code, codes = (yield self._code(callee)), (yield self._codes(args))
        types = [scope.type_of(t) for t in call.type_args]
        return Value(None, block.name(Call(code, codes, call.attrs, types, call.span), hint))  # type: ignore[arg-type]

    def _folded(self, call: Call, args: Sequence[Value], block: Block, hint: str) -> Value | None:
        """Return the value of a call of an operator with constants, None where it has to stay."""
        constants = [a for arg in args if (a := as_constants(arg))]
        if len(constants) < len(args):
            return None
        return from_constants(fold_constant(infer_expr(Call(call.op, constants, call.attrs))), block, hint)

    def _goes_on(self, func: Function, args: Sequence[Value]) -> bool:
        """Return whether a call may be unfolded, which counts it."""
        around = self.least.get(func)
        smaller = around is None or any(a.size < least for a, least in zip(args, around, strict=True))
        self.calls_left -= smaller
        return smaller and self.calls_left >= 0

    def _unfolded(
        self, closure: Closure, args: Sequence[Value], call: Call, scope: Scope, block: Block
    ) -> Steps[Value]:
        func = closure.func
        given = zip_longest(func.type_params, [scope.type_of(t) for t in call.type_args])
        inner = closure.scope.inner({v: t or IncompleteType(v.kind) for v, t in given})
        inner.values.update(zip(func.params, args, strict=True))
        around = self.least.get(func)
        sizes = tuple([a.size for a in args])
        self.least[func] = sizes if around is None else tuple(map(min, sizes, around))
        value: Value = yield self._body(func.body, inner, block)
        self._forget(func, around)
        return value


def PartialEvaluate() -> Pass:
    """Compute what does not depend on the arguments of the module's functions, and unfold calls."""

    def evaluate(mod: IRModule, ctx: PassContext) -> IRModule:
        typed = infer_module(mod)
        evaluator = _Evaluator(typed)
        result = typed.copy()
        for var in list(typed.functions):
            closure = evaluator.global_value(var).known
            if isinstance(closure, Closure):
                result[var] = run(evaluator.function(closure))
        return infer_module(result)

    return ModulePass(evaluate, PassInfo(1, "PartialEvaluate"))
