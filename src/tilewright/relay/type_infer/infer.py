"""The type checker: finds the type of every expression of a program and rebuilds it with the types recorded.

Three steps. *Collect* walks each function once with its own stack and gives every expression a type, perhaps with
holes; an operator's type relation runs as soon as its arguments are reached, and waits when it needs to know more.
*Solve* runs the waiting relations until nothing changes. *Record* rebuilds the expressions bottom-up with their
types. An expression that already has its type, from an earlier run, is taken as it is and not entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.ir.diagnostics import excerpt_of, place_of
from tilewright.ir.errors import StillUnknown, TypeInferenceError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.type import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
)
from tilewright.relay.adt import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
)
from tilewright.relay.analysis import unmatched_cases
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
from tilewright.relay.type_infer.describe import describe
from tilewright.relay.type_infer.programs import callee_name, describe_call, describe_pattern
from tilewright.relay.type_infer.record import Recorder
from tilewright.relay.type_infer.unify import Unifier, assert_equal_dims, instantiate, is_complete, same_type, walk_type
from tilewright.relay.visitor import direct_children

_Task = tuple[RelayExpr, Callable[[Any], None] | None]
_SCALAR_BOOL = TensorType((), "bool")


def infer_expr(expr: RelayExpr, mod: IRModule | None = None) -> RelayExpr:
    """Return ``expr`` with checked types; free variables need an annotation. Global functions are looked up in
    ``mod``.

    Raises:
        TypeInferenceError: the expression does not type-check; the message lists every problem.
    """
    if expr.checked_type_or_none is not None:
        return expr
    checker = _Checker(mod or IRModule(), trust=True, check_scopes=False)
    checker.collect(expr)
    checker.solve()
    checker.finish([expr])
    return checker.record(expr)


def infer_module(mod: IRModule) -> IRModule:
    """Return ``mod`` with the types of all its Relay functions checked and filled in.

    Raises:
        TypeInferenceError: some function does not type-check; the message lists every problem.
    """
    functions = {var: func for var, func in mod.items() if isinstance(func, Function)}
    before = {var: var.checked_type_or_none for var in functions}
    if all(
        f.checked_type_or_none is not None and same_type(f.checked_type_or_none, before[v])
        for v, f in functions.items()
    ):
        return mod
    result = _infer_functions(mod, functions, trust=True)
    changed = [v for v in functions if before[v] is not None and not same_type(before[v], v.checked_type)]
    if changed and len(functions) > 1:  # what was typed before may call the old signature
        result = _infer_functions(mod, functions, trust=False)
    return result


def type_problems(mod: IRModule) -> list[str]:
    """Return where the recorded types of a module differ from inferred ones, or are recorded before those of their
    parts.

    Raises:
        TypeInferenceError: some function does not type-check.
    """
    functions = {var: func for var, func in mod.items() if isinstance(func, Function)}
    checker = _collected(mod, functions, trust=False)
    problems = []
    for expr, found in checker.types.items():
        claimed = expr.checked_type_or_none
        if claimed is None or isinstance(expr, (Op, GlobalVar, Constructor)):
            continue
        inferred = checker.unifier.resolve(found)
        if not same_type(claimed, inferred):
            what = type(expr).__name__
            if isinstance(expr, Call) and isinstance(expr.op, Op):
                what = describe_call(expr, [checker.unifier.resolve(checker.types[a]) for a in expr.args])
            problems.append(f"{what}: has the type {claimed}; inference gives {inferred}")
        elif any(
            part.checked_type_or_none is None
            for part in direct_children(expr)
            if not isinstance(part, (Op, Constructor))
        ):
            problems.append(f"{type(expr).__name__} of the type {claimed}: some of its parts have no type")
    return problems


def _infer_functions(mod: IRModule, functions: dict[GlobalVar, Function], trust: bool) -> IRModule:
    checker = _collected(mod, functions, trust)
    result = mod.copy()
    for var, func in functions.items():
        typed = checker.record(func)
        if typed is not func:
            result.functions[var] = typed  # type: ignore[assignment]
        var.with_checked_type(typed.checked_type)
    return result


def _collected(mod: IRModule, functions: dict[GlobalVar, Function], trust: bool) -> _Checker:
    """Return a checker that knows the type of every expression of the functions."""
    checker = _Checker(mod, trust, check_scopes=True)
    for var in functions:
        checker.collect(var)
        checker.collect(functions[var])
    checker.solve()
    checker.finish(functions.values())
    return checker


def _check_form(call: Call, op: Op) -> None:
    """Raise TypeInferenceError unless the call has the operator's number of arguments and class of attributes."""
    declared = op.get_attr("OpDef")
    names = getattr(declared, "inputs", None)
    if names is not None and len(call.args) != len(names):
        raise TypeInferenceError(
            f"takes {len(names)} argument{'s' * (len(names) != 1)} ({', '.join(names)}), got {len(call.args)}"
        )
    if names is None and op.num_inputs not in (-1, len(call.args)):
        raise TypeInferenceError(f"takes {op.num_inputs} arguments, got {len(call.args)}")
    expected = getattr(declared, "attrs_type", None)
    if expected is not None and not isinstance(call.attrs, expected):
        found = "none" if call.attrs is None else type(call.attrs).__name__
        raise TypeInferenceError(f"takes attributes of class {expected.__name__}, found {found}")


class _Checker:
    """State of one run: types by expression, bindings of holes, waiting relations, problems."""

    def __init__(self, mod: IRModule, trust: bool, check_scopes: bool) -> None:
        self.mod = mod
        self.trust = trust
        self.check_scopes = check_scopes
        self.types: dict[RelayExpr, Type] = {}
        self.unifier = Unifier()
        self.pending: list[RelayExpr] = []
        self.problems: list[str] = []
        self._poison: dict[Type, None] = {}
        self._bound: dict[RelayExpr, None] = {}
        self._free: dict[RelayExpr, None] = {}
        self._kept: dict[RelayExpr, RelayExpr] = {}
        self._global_bodies: dict[RelayExpr, GlobalVar] = {}
        self._enter_by_class: dict[type, Callable[[Any, list[_Task]], None]] = {
            Call: self._enter_call,
            Var: self._enter_var,
            Constant: self._enter_constant,
            GlobalVar: self._enter_global_var,
            Constructor: self._enter_constructor,
            Function: self._enter_function,
            Let: self._enter_let,
            Match: self._enter_match,
            Op: self._enter_op,
            Tuple: self._children(lambda e: e.fields, self._leave_tuple),
            TupleGetItem: self._children(lambda e: (e.tuple_value,), self._leave_projection),
            If: self._children(lambda e: (e.cond, e.true_branch, e.false_branch), self._leave_if),
            RefCreate: self._children(lambda e: (e.value,), self._leave_ref_create),
            RefRead: self._children(lambda e: (e.ref,), self._leave_ref_read),
            RefWrite: self._children(lambda e: (e.ref, e.value), self._leave_ref_write),
        }

    # The interface that type relations use (``relay.op.definition.TypeSolver``).

    def assign(self, unknown: Type, known: Type) -> None:
        """Set ``unknown`` to ``known``."""
        self.unifier.unify(unknown, known)

    def assert_equal(self, a: Any, b: Any, what: str) -> bool:
        """Require two dimensions to be equal; return False while that is undecided."""
        return assert_equal_dims(a, b, what)

    # Collect

    def collect(self, root: RelayExpr) -> None:
        """Give ``root`` and everything below it a type, which may have holes."""
        stack: list[_Task] = [(root, None)]
        while stack:
            node, leave = stack.pop()
            if leave is not None:
                leave(node)
            elif node not in self.types:
                enter = self._enter_by_class.get(type(node))
                known = node.checked_type_or_none if self.trust else None
                if known is not None and type(node) not in (GlobalVar, Var):
                    self.types[node] = known
                    self._kept[node] = node
                elif enter is not None:
                    enter(node, stack)
                else:
                    raise TypeError(f"type inference does not know the expression class {type(node).__name__}")

    @staticmethod
    def _children(
        parts: Callable[[Any], Sequence[RelayExpr]], leave: Callable[[Any], None]
    ) -> Callable[[Any, list[_Task]], None]:
        def enter(node: RelayExpr, stack: list[_Task]) -> None:
            stack.append((node, leave))
            stack.extend([(part, None) for part in reversed(parts(node))])

        return enter

    def _declare(self, var: Var) -> None:
        self._bound[var] = None
        if var not in self.types:
            self.types[var] = var.type_annotation or IncompleteType()

    def _enter_var(self, var: Var, stack: list[_Task]) -> None:
        if var not in self._bound:
            self._free[var] = None
        self.types[var] = var.type_annotation or IncompleteType()

    def _enter_constant(self, expr: Constant, stack: list[_Task]) -> None:
        self.types[expr] = expr.tensor_type

    def _enter_op(self, op: Op, stack: list[_Task]) -> None:
        self._report(op, f"the operator {op.name} is used as a value; wrap the call in a function")
        self.types[op] = self._poisoned()

    def _enter_global_var(self, var: GlobalVar, stack: list[_Task]) -> None:
        if var.name_hint not in self.mod:
            self._report(var, f"the module has no function @{var.name_hint}")
            self.types[var] = self._poisoned()
            return
        func = self.mod[var.name_hint]
        if not isinstance(func, Function):
            self.types[var] = func.checked_type_or_none or IncompleteType()
            return
        known = func.checked_type_or_none if self.trust else None
        signature = known or func.annotated_type()
        if signature is None:
            for param in func.params:
                self._declare(param)
            ret_type = func.ret_type or IncompleteType()
            signature = FuncType([self.types[p] for p in func.params], ret_type, func.type_params)
            stack.append((func, None))
        self.types[var] = signature
        self._global_bodies[func] = var

    def _enter_constructor(self, con: Constructor, stack: list[_Task]) -> None:
        data = self._definition(con.belong_to)
        if data is None:
            self._report(con, f"the module does not define the type {con.belong_to.name_hint} of {con.name_hint}")
            self.types[con] = self._poisoned()
            return
        self.types[con] = FuncType(con.inputs, TypeCall(con.belong_to, data.type_vars), data.type_vars)

    def _definition(self, header: GlobalTypeVar) -> Any:
        known = {v.name_hint: d for v, d in self.mod.type_definitions.items()}
        return known.get(header.name_hint)

    def _enter_call(self, call: Call, stack: list[_Task]) -> None:
        if isinstance(call.op, Op):
            stack.append((call, self._leave_operator_call))
        else:
            stack.append((call, self._leave_call))
            stack.append((call.op, None))
        stack.extend([(arg, None) for arg in reversed(call.args)])

    def _leave_operator_call(self, call: Call) -> None:
        self.types[call] = self._relate(call) or self._wait(call)

    def _wait(self, expr: RelayExpr) -> Type:
        self.pending.append(expr)
        return IncompleteType()

    def _relate(self, call: Call) -> Type | None:
        """Return the result type of an operator call by its type relation, None while too little is known."""
        op = call.op
        assert isinstance(op, Op)
        resolve, types = self.unifier.resolve, self.types
        arg_types = [resolve(types[arg]) for arg in call.args]
        if self._poison and any(map(self._is_poisoned, arg_types)):
            return self._poisoned()
        relation = op.get_attr("FInferType")
        try:
            if relation is None:
                raise TypeInferenceError("this operator is not declared; there is no type relation for it")
            _check_form(call, op)
            result: Type | None = relation(arg_types, call.attrs, self)
        except StillUnknown:
            return None
        except TypeInferenceError as error:
            self._report(call, f"{describe_call(call, arg_types)}: {error}")
            return self._poisoned()
        return result

    def _leave_call(self, call: Call) -> None:
        callee = self.unifier.resolve(self.types[call.op])
        arg_types = [self.types[arg] for arg in call.args]
        if self._poison and self._is_poisoned(callee):
            self.types[call] = self._poisoned()
            return
        name = callee_name(call.op)
        try:
            if isinstance(callee, IncompleteType):
                ret_type: Type = IncompleteType()
                self.unifier.unify(callee, FuncType(arg_types, ret_type))
            elif isinstance(callee, FuncType):
                ret_type = self._apply(callee, call, arg_types)
            else:
                raise TypeInferenceError(f"is no function but a {describe(callee)}")
        except TypeInferenceError as error:
            self._report(call, f"call of {name}: {error}")
            ret_type = self._poisoned()
        self.types[call] = ret_type

    def _apply(self, callee: FuncType, call: Call, arg_types: Sequence[Type]) -> Type:
        callee = instantiate(callee, call.type_args)
        if len(callee.arg_types) != len(arg_types):
            raise TypeInferenceError(f"takes {len(callee.arg_types)} arguments, got {len(arg_types)}")
        for index, (expected, found) in enumerate(zip(callee.arg_types, arg_types, strict=True)):
            if self._poison and self._is_poisoned(self.unifier.resolve(found)):
                continue
            try:
                self.unifier.unify(expected, found)
            except TypeInferenceError:
                resolve = self.unifier.resolve
                raise TypeInferenceError(
                    f"argument {index} should be {describe(resolve(expected))}, found {describe(resolve(found))}"
                ) from None
        return callee.ret_type

    def _enter_function(self, func: Function, stack: list[_Task]) -> None:
        for param in func.params:
            self._declare(param)
        if func.annotated_type() is not None:
            self.types[func] = func.annotated_type()  # type: ignore[assignment]  # for a recursive let
        stack.append((func, self._leave_function))
        stack.append((func.body, None))

    def _leave_function(self, func: Function) -> None:
        ret_type = self.types[func.body]
        signature = self.types.get(self._global_bodies.get(func, func))
        declared = func.ret_type or (signature.ret_type if isinstance(signature, FuncType) else None)
        if declared is not None:
            ret_type = self._agree(func, declared, ret_type, "the function's body does not have the declared type")
        self.types[func] = FuncType([self.types[p] for p in func.params], ret_type, func.type_params)

    def _agree(self, where: RelayExpr, a: Type, b: Type, what: str) -> Type:
        """Unify, and report ``what`` when that fails."""
        if self._poison and (self._is_poisoned(self.unifier.resolve(a)) or self._is_poisoned(self.unifier.resolve(b))):
            return a
        try:
            return self.unifier.unify(a, b)
        except TypeInferenceError as error:
            self._report(where, f"{what}: {error}")
            return a

    def _enter_let(self, let: Let, stack: list[_Task]) -> None:
        self._declare(let.var)
        signature = let.value.annotated_type() if isinstance(let.value, Function) else None
        if signature is not None and let.var.type_annotation is None:
            self.types[let.var] = signature
        stack.append((let, self._leave_let))
        stack.append((let.body, None))
        stack.append((let, self._bind_let))
        stack.append((let.value, None))

    def _bind_let(self, let: Let) -> None:
        what = f"the value bound to %{let.var.name_hint} does not have the variable's type"
        self.types[let.var] = self._agree(let, self.types[let.var], self.types[let.value], what)

    def _leave_let(self, let: Let) -> None:
        self.types[let] = self.types[let.body]

    def _leave_tuple(self, expr: Tuple) -> None:
        self.types[expr] = TupleType([self.types[f] for f in expr.fields])

    def _leave_projection(self, expr: TupleGetItem) -> None:
        self.types[expr] = self._project(expr) or self._wait(expr)

    def _project(self, expr: TupleGetItem) -> Type | None:
        tuple_type = self.unifier.find(self.types[expr.tuple_value])
        if isinstance(tuple_type, TupleType):
            if 0 <= expr.index < len(tuple_type.fields):
                return tuple_type.fields[expr.index]
            problem = f"field {expr.index} is taken of a tuple of {len(tuple_type.fields)}: {describe(tuple_type)}"
        elif isinstance(tuple_type, IncompleteType):
            return self._poisoned() if self._is_poisoned(tuple_type) else None
        else:
            problem = f"field {expr.index} is taken of something that is no tuple: {describe(tuple_type)}"
        self._report(expr, problem)
        return self._poisoned()

    def _leave_if(self, expr: If) -> None:
        self._agree(expr, _SCALAR_BOOL, self.types[expr.cond], "the condition of an if is not a scalar bool")
        branches = self.types[expr.true_branch], self.types[expr.false_branch]
        self.types[expr] = self._agree(expr, *branches, "the branches of an if differ in type")

    def _enter_match(self, match: Match, stack: list[_Task]) -> None:
        stack.append((match, self._leave_match))
        stack.extend([(clause.rhs, None) for clause in reversed(match.clauses)])
        stack.append((match, self._bind_patterns))
        stack.append((match.data, None))

    def _bind_patterns(self, match: Match) -> None:
        for clause in match.clauses:
            work = [(clause.lhs, self.types[match.data])]
            while work:
                work.extend(self._bind_pattern(match, *work.pop()))

    def _bind_pattern(self, match: Match, pattern: Pattern, type_: Type) -> list[tuple[Pattern, Type]]:
        """Type the pattern itself; return its sub-patterns with their types."""
        match pattern:
            case PatternVar():
                self._declare(pattern.var)
                what = f"the pattern variable %{pattern.var.name_hint}"
                self.types[pattern.var] = self._agree(match, self.types[pattern.var], type_, what)
            case PatternConstructor():
                con = pattern.constructor
                self.collect(con)
                con_type = self.types[con]
                if isinstance(con_type, FuncType):
                    con_type = instantiate(con_type)
                    self._agree(match, con_type.ret_type, type_, f"the pattern {con.name_hint}")
                    if len(con_type.arg_types) == len(pattern.patterns):
                        return list(zip(pattern.patterns, con_type.arg_types, strict=True))
                    found, expected = len(pattern.patterns), len(con_type.arg_types)
                    self._report(match, f"the pattern {con.name_hint} has {found} arguments, expected {expected}")
            case PatternTuple():
                holes = [IncompleteType() for _ in pattern.patterns]
                self._agree(match, TupleType(holes), type_, "a tuple pattern")
                return list(zip(pattern.patterns, holes, strict=True))
        return []

    def _leave_match(self, expr: Match) -> None:
        result = self.types[expr.clauses[0].rhs] if expr.clauses else IncompleteType()
        for clause in expr.clauses[1:]:
            result = self._agree(expr, result, self.types[clause.rhs], "the clauses of a match differ in type")
        self.types[expr] = result
        if expr.complete:
            missing = unmatched_cases(expr, self.mod)
            if missing:
                self._report(expr, f"the match leaves out {', '.join(describe_pattern(p) for p in missing)}")

    def _leave_ref_create(self, expr: RefCreate) -> None:
        self.types[expr] = RefType(self.types[expr.value])

    def _cell(self, expr: RefRead | RefWrite) -> Type:
        ref_type = self.unifier.find(self.types[expr.ref])
        if isinstance(ref_type, RefType):
            return ref_type.value
        value = IncompleteType()
        self._agree(expr, RefType(value), ref_type, "a value that is no reference is read or written")
        return value

    def _leave_ref_read(self, expr: RefRead) -> None:
        self.types[expr] = self._cell(expr)

    def _leave_ref_write(self, expr: RefWrite) -> None:
        self._agree(
            expr,
            self._cell(expr),
            self.types[expr.value],
            "a reference holds another type than the one written",
        )
        self.types[expr] = TupleType(())

    # Solve

    def solve(self) -> None:
        """Run the waiting relations, in program order, until none of them makes progress."""
        while self.pending:
            before = len(self.pending), len(self.unifier.bindings)
            work, self.pending = self.pending, []
            for expr in work:
                result = self._relate(expr) if isinstance(expr, Call) else self._project(expr)  # type: ignore[arg-type]
                if result is None:
                    self.pending.append(expr)
                else:
                    self._agree(expr, self.types[expr], result, "the result is used as another type")
            if (len(self.pending), len(self.unifier.bindings)) == before:
                break

    def finish(self, roots: Iterable[RelayExpr]) -> None:
        """Report what could not be inferred, and raise when there are problems."""
        for expr in self.pending:
            if isinstance(expr, Call):
                args = [self.unifier.resolve(self.types[a]) for a in expr.args]
                if not any(map(self._is_poisoned, args)):
                    self._report(
                        expr,
                        f"{describe_call(expr, args)}: its type cannot be inferred; annotate the variables",
                    )
        if self.check_scopes and self._free:
            for var in self._free:
                if var not in self._bound:
                    self._report(var, f"the variable %{var.name_hint} is used but not bound in its function")  # type: ignore[attr-defined]
        if not self.problems:
            for var in self._bound:
                if not is_complete(self.unifier.resolve(self.types[var])):
                    self._report(var, f"the type of %{var.name_hint} cannot be inferred; annotate it")  # type: ignore[attr-defined]
        if self.problems:
            count = len(self.problems)
            head = "the program does not type-check" + (f" ({count} problems)" if count > 1 else "")
            raise TypeInferenceError(f"{head}:\n" + "\n".join(f"  {p}" for p in dict.fromkeys(self.problems)))

    def _report(self, where: RelayExpr, message: str) -> None:
        span = getattr(where, "span", None)
        place = place_of(span)
        excerpt = excerpt_of(span).replace("\n", "\n  ")
        self.problems.append((f"{place}: " if place else "") + message + excerpt)

    def _poisoned(self) -> Type:
        hole = IncompleteType()
        self._poison[hole] = None
        return hole

    def _is_poisoned(self, type_: Type) -> bool:
        if isinstance(type_, TensorType):
            return False
        return any(t in self._poison for t in walk_type(type_) if isinstance(t, IncompleteType))

    # Record

    def record(self, expr: RelayExpr) -> RelayExpr:
        """Return ``expr`` rebuilt with checked types; expressions that were typed before are kept."""
        return Recorder(self.types, self.unifier, self._kept).visit(expr)
