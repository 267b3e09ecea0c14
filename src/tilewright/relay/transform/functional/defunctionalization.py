"""Defunctionalization: functions as values become values of data types.

Before::

    def @twice(%f: fn (float32) -> float32, %x: float32) -> float32 { %f(%f(%x)) }
    fn (%y: float32) { @twice(fn (%a: float32) { add(%a, %y) }, %y) }

after::

    type function_0 { closure_0(float32) }
    def @apply_0(%f: function_0, %a: float32) -> float32 {
      match (%f) { closure_0(%y) => add(%a, %y) }
    }
    def @twice_0(%f: function_0, %x: float32) -> float32 { @apply_0(%f, @apply_0(%f, %x)) }
    fn (%y: float32) { @twice_0(closure_0(%y), %y) }

Each function type becomes a data type, with a constructor for every function of that type in the program, whose fields
are the function's captured variables, and a function that applies its values. Global functions that take, return or
make functions are copied for the types that they are called with; the others stay. By Reynolds,
"Definitional interpreters for higher-order programming languages" (1972).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.type import FuncType, GlobalTypeVar, Type, TypeCall, TypeVar
from tilewright.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    TypeData,
    constructor_tag,
)
from tilewright.relay.analysis import free_vars
from tilewright.relay.expr import Call, Function, Let, Tuple, Var
from tilewright.relay.lets import Binding, with_lets
from tilewright.relay.type_functor import TypeMutator, TypeVisitor
from tilewright.relay.type_infer import infer_expr, infer_module, substitute_type_vars
from tilewright.relay.type_infer.unify import type_parts
from tilewright.relay.visitor import ExprMutator, is_closed, post_order


class _HasFunctions(TypeVisitor):
    found = False

    def visit_func_type(self, type_: Type | TypeData) -> None:
        """Record that the type contains functions."""
        self.found = True


def _has_functions(type_: Type) -> bool:
    visitor = _HasFunctions()
    visitor.visit(type_)
    return visitor.found


@dataclass
class _Encoding:
    """Encoding of functions of one type as values: their data type, the function that applies them, and its
    clauses.
    """

    type_var: GlobalTypeVar
    apply: GlobalVar
    params: list[Var]
    result: Type
    clauses: list[Clause] = field(default_factory=list)
    constructors: list[Constructor] = field(default_factory=list)
    globals: dict[str, Constructor] = field(default_factory=dict)

    def add(self, fields: Sequence[Type]) -> Constructor:
        """Add a constructor."""
        index = len(self.constructors)
        name = f"{self.type_var.name_hint.replace('function', 'closure')}_{index}"
        made = Constructor(name, fields, self.type_var, constructor_tag(self.type_var.name_hint, index))
        self.constructors.append(made)
        return made


class _Program:
    """The module under change; data types and functions that apply them are added at the end."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.typed = infer_module(mod)
        self.encodings: dict[Type, _Encoding] = {}
        self.copies: dict[tuple[str, tuple[Type, ...]], GlobalVar] = {}
        self.types = _EncodedTypes(self)

    def encoding(self, type_: FuncType) -> _Encoding:
        """Return the encoding of functions of the type."""
        if type_.type_params:
            raise UnsupportedError(
                f"Defunctionalization: a function of type {type_} is used as a value where its types are not known; "
                "give it type arguments"
            )
        if type_ not in self.encodings:
            number = len(self.encodings)
            while self.mod.contains_global_var(f"apply_{number}"):
                number += 1
            # known before its parts are, which may have the type within
            made = _Encoding(GlobalTypeVar(f"function_{number}"), GlobalVar(f"apply_{number}"), [], type_)
            self.encodings[type_] = made
            made.params = [Var(f"a{i}", self.types.visit(t)) for i, t in enumerate(type_.arg_types)]
            made.result = self.types.visit(type_.ret_type)
        return self.encodings[type_]

    def called(self, var: GlobalVar, arg_types: Sequence[Type], result: Type) -> tuple[GlobalVar, FuncType]:
        """Return the function to call for ``var`` with these types, and the type that it is called at."""
        func = self.typed[var]
        type_ = func.checked_type
        mapping = _matched(type_, arg_types, result)
        at = substitute_type_vars(type_, mapping) if mapping else type_
        assert isinstance(at, FuncType)
        if is_closed(func) or not self._uses_functions(var):
            return var, at
        key = (var.name_hint, tuple(mapping[v] for v in type_.type_params))
        if key not in self.copies:
            number = len(self.copies)
            while self.mod.contains_global_var(f"{var.name_hint}_{number}"):
                number += 1
            self.copies[key] = GlobalVar(f"{var.name_hint}_{number}")
            concrete = _at_types(func, mapping, self.typed) if mapping else func
            self.mod[self.copies[key]] = _Body(self, {}).function(concrete)
        return self.copies[key], at

    def _uses_functions(self, var: GlobalVar) -> bool:
        """Return whether a global function, or one that it calls, takes, returns or makes functions."""
        pending, seen = [var], {var.name_hint}
        for item in pending:
            func = self.typed[item]
            if not isinstance(func, Function):
                continue
            for node in post_order(func):
                if isinstance(node, GlobalVar) and node.name_hint not in seen:
                    seen.add(node.name_hint)
                    pending.append(node)
                if isinstance(node, Function) and node is not func:
                    return True
                if isinstance(node, Var) and _has_functions(node.checked_type):
                    return True
        return False

    def finish(self) -> None:
        """Add the data types, and the functions that apply their values."""
        for made in self.encodings.values():
            self.mod[made.type_var] = TypeData(made.type_var, (), made.constructors)
            target = Var("f", TypeCall(made.type_var, ()))
            body = Match(target, made.clauses)
            self.mod[made.apply] = Function([target, *made.params], body, made.result)


class _EncodedTypes(TypeMutator):
    def __init__(self, program: _Program) -> None:
        self.program = program

    def visit_func_type(self, type_: Type | TypeData) -> Type:
        """Return the data type of the function's values."""
        assert isinstance(type_, FuncType)
        return TypeCall(self.program.encoding(type_).type_var, ())


def _matched(type_: FuncType, arg_types: Sequence[Type], result: Type) -> dict[TypeVar, Type]:
    """Return the types that the type parameters of a polymorphic function stand for."""
    found: dict[TypeVar, Type] = {}
    pairs = [*zip(type_.arg_types, arg_types, strict=True), (type_.ret_type, result)]
    # functions as arguments may be polymorphic themselves, and then say nothing
    while pairs:
        have, want = pairs.pop()
        if isinstance(have, TypeVar):
            if have in type_.type_params and not (isinstance(want, FuncType) and want.type_params):
                found.setdefault(have, want)
        elif type(have) is type(want) and not (isinstance(want, FuncType) and want.type_params):
            pairs += zip(type_parts(have), type_parts(want), strict=True)
    missing = [v for v in type_.type_params if v not in found]
    if missing:
        raise UnsupportedError(f"Defunctionalization: what {missing[0].name_hint} is in a call at {type_} is not known")
    return found


class _AtTypes(ExprMutator):
    """Replace type variables by types."""

    def __init__(self, mapping: Mapping[TypeVar, Type]) -> None:
        super().__init__()
        self.mapping = mapping

    def visit_var(self, expr: Var) -> RelayExpr:
        type_ = expr.type_annotation
        return Var(expr.name_hint, None if type_ is None else substitute_type_vars(type_, self.mapping))

    def visit_function(self, expr: Function) -> RelayExpr:
        made = super().visit_function(expr)
        assert isinstance(made, Function)
        result = None if made.ret_type is None else substitute_type_vars(made.ret_type, self.mapping)
        kept = [v for v in made.type_params if v not in self.mapping]
        return Function(made.params, made.body, result, kept, made.attrs)

    def visit_call(self, expr: Call) -> RelayExpr:
        made = super().visit_call(expr)
        assert isinstance(made, Call)
        types = [substitute_type_vars(t, self.mapping) for t in made.type_args]
        return Call(made.op, made.args, made.attrs, types, made.span)

    def visit_match(self, expr: Match) -> RelayExpr:
        clauses = [Clause(_with_vars(c.lhs, self.visit), self.visit(c.rhs)) for c in expr.clauses]
        return Match(self.visit(expr.data), clauses, expr.complete, expr.span)


def _with_vars(pattern: Pattern, change: object) -> Pattern:
    """Return a pattern with its variables mapped by ``change``."""
    match pattern:
        case PatternVar():
            return PatternVar(change(pattern.var))  # type: ignore[operator]
        case PatternConstructor():
            return PatternConstructor(pattern.constructor, [_with_vars(p, change) for p in pattern.patterns])
        case PatternTuple():
            return PatternTuple([_with_vars(p, change) for p in pattern.patterns])
    return pattern


def _at_types(func: Function, mapping: Mapping[TypeVar, Type], mod: IRModule) -> Function:
    """Return a polymorphic function at types, typed; captured variables keep their types."""
    visitor = _AtTypes(mapping)
    visitor.memo_map.update({v: v for v in free_vars(func)})
    result = infer_expr(visitor.visit(func), mod)
    assert isinstance(result, Function)
    return result


class _Body(ExprMutator):
    """Rewriter of the body of one function; ``known`` maps captured variables to their replacements."""

    top_down = True

    def __init__(self, program: _Program, known: Mapping[RelayExpr, RelayExpr]) -> None:
        super().__init__()
        self.program = program
        self.memo_map.update(known)

    def type_of(self, expr: RelayExpr) -> Type:
        """Return the type that ``expr`` has afterwards."""
        result: Type = self.program.types.visit(expr.checked_type)
        return result

    def function(self, func: Function) -> Function:
        """Rewrite a function that is no value: one of the module, or one that is called where it is defined."""
        params = [self.visit(p) for p in func.params]
        type_ = func.checked_type
        assert isinstance(type_, FuncType)
        body = self.value(func.body, type_.ret_type)
        return Function(params, body, self.program.types.visit(type_.ret_type), func.type_params, func.attrs)  # type: ignore[arg-type]

    def value(self, expr: RelayExpr, type_: Type) -> RelayExpr:
        """Rewrite ``expr`` where a value of ``type_`` is expected."""
        if isinstance(type_, FuncType) and isinstance(expr, (Function, GlobalVar)):
            return self.encoded(expr, type_)
        if isinstance(expr, Tuple):
            return Tuple([self.value(f, t) for f, t in zip(expr.fields, type_parts(type_), strict=True)])
        return self.visit(expr)

    def encoded(self, expr: RelayExpr, type_: FuncType, name: Var | None = None) -> RelayExpr:
        """Return a function as a value: its constructor, applied to its captured variables."""
        encoding = self.program.encoding(type_)
        if isinstance(expr, GlobalVar):
            if expr.name_hint not in encoding.globals:
                made = encoding.globals[expr.name_hint] = encoding.add(())
                target, _ = self.program.called(expr, type_.arg_types, type_.ret_type)
                encoding.clauses.append(Clause(PatternConstructor(made), Call(target, encoding.params)))
            return Call(encoding.globals[expr.name_hint], ())
        assert isinstance(expr, Function)
        if expr.type_params:
            mapping = _matched(expr.checked_type, type_.arg_types, type_.ret_type)  # type: ignore[arg-type]
            expr = _at_types(expr, mapping, self.program.typed)
        outer = [v for v in free_vars(expr) if v is not name]
        fields = [Var(v.name_hint, self.type_of(v)) for v in outer]
        made = encoding.add([self.type_of(v) for v in outer])
        known: dict[RelayExpr, RelayExpr] = dict(zip(outer, fields, strict=True))
        known.update(zip(expr.params, encoding.params, strict=True))
        if name is not None:
            known[name] = Call(made, fields)
        body = _Body(self.program, known).value(expr.body, type_.ret_type)
        encoding.clauses.append(Clause(PatternConstructor(made, [PatternVar(f) for f in fields]), body))
        return Call(made, [self.visit(v) for v in outer])

    def visit_var(self, expr: Var) -> RelayExpr:
        type_ = expr.checked_type
        return Var(expr.name_hint, self.type_of(expr)) if _has_functions(type_) else expr

    def visit_function(self, expr: Function) -> RelayExpr:
        return self.value(expr, expr.checked_type)

    def visit_global_var(self, expr: GlobalVar) -> RelayExpr:
        return self.value(expr, expr.checked_type)

    def visit_let(self, expr: Let) -> RelayExpr:
        bindings: list[Binding] = []
        body: RelayExpr = expr
        while isinstance(body, Let):
            type_ = body.value.checked_type
            if isinstance(body.value, Function) and isinstance(type_, FuncType):
                value = self.encoded(body.value, type_, body.var)
            else:
                value = self.value(body.value, type_)
            bindings.append((self.visit(body.var), value))  # type: ignore[arg-type]
            body = body.body
        return with_lets(bindings, self.visit(body))

    def visit_match(self, expr: Match) -> RelayExpr:
        clauses = [Clause(_with_vars(c.lhs, self.visit), self.value(c.rhs, expr.checked_type)) for c in expr.clauses]
        return Match(self.visit(expr.data), clauses, expr.complete, expr.span)

    def visit_call(self, expr: Call) -> RelayExpr:
        op, found = expr.op, [a.checked_type for a in expr.args]
        expected: Sequence[Type]
        if isinstance(op, Op):
            return super().visit_call(expr)
        types = [self.program.types.visit(t) for t in expr.type_args]
        if isinstance(op, GlobalVar):
            callee: RelayExpr
            callee, at = self.program.called(op, found, expr.checked_type)
            expected, types = at.arg_types, types if callee is op else []
        elif isinstance(op, Constructor):
            callee, expected = op, self._fields(op, expr.checked_type)
        else:
            type_ = op.checked_type
            assert isinstance(type_, FuncType)
            if isinstance(op, Function):
                if op.type_params:
                    op = _at_types(op, _matched(type_, found, expr.checked_type), self.program.typed)
                callee, expected = self.function(op), op.checked_type.arg_types  # type: ignore[attr-defined]
            else:
                args = [self.value(a, t) for a, t in zip(expr.args, type_.arg_types, strict=True)]
                return Call(self.program.encoding(type_).apply, [self.visit(op), *args])
        args = [self.value(a, t) for a, t in zip(expr.args, expected, strict=True)]
        return Call(callee, args, expr.attrs, types, expr.span)

    def _fields(self, constructor: Constructor, type_: Type) -> Sequence[Type]:
        """Return the types of a constructor's fields, in a value of ``type_``."""
        if not isinstance(type_, TypeCall):
            return constructor.inputs
        data = self.program.typed[constructor.belong_to]
        mapping = dict(zip(data.type_vars, type_.args, strict=True))
        return [substitute_type_vars(t, mapping) for t in constructor.inputs]


def Defunctionalization(func: Function, mod: IRModule) -> Function:
    """Replace functions as values in ``func`` by data; new data types and functions are added to ``mod``.

    Parameters
    ----------
    func : a typed function of ``mod``, which takes no functions and has no type parameters.
    mod : the module with the functions and data types that it uses. Data types of functions, the functions that apply
        their values, and copies of higher-order functions are added to it.

    Raises
    ------
    UnsupportedError where the type of a function that is a value is not known.
    """
    type_ = func.checked_type
    assert isinstance(type_, FuncType)
    if type_.type_params or any(_has_functions(t) for t in type_.arg_types):
        raise UnsupportedError(
            f"Defunctionalization takes a function without function or type parameters; found {type_}"
        )
    program = _Program(mod)
    typed = infer_expr(func, program.typed)
    assert isinstance(typed, Function)
    result = _Body(program, {}).function(typed)
    program.finish()
    return result
