"""A Relay program as a Python script of the same meaning: ``to_python``, and ``run_as_python``, which runs it.

    def @twice(%x: int32) { add(%x, %x) }       def twice_0(x_1):
    @twice(3)                                       x_2 = operators['add_5f..'](x_1, x_1)
                                                    return x_2
                                                x_4 = twice_0(nd.array(numpy.array(3, 'int32')))
                                                _py_out = x_4

The program goes to A-normal form, so that each value is computed once, in order: a let is an assignment, a function a
function, branches and matches are statements. An operator is a function of ``operators``: its kernel, or, where shapes
are known only to the caller, its meaning in numpy. Tensors are NDArrays, tuples ``ADT``s (of Python's where they hold
references, functions or values of data types), references ``RefValue``, values of data types ``ConstructorValue``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.structural import structural_hash
from tilewright.ir.transform import Sequential
from tilewright.ir.type import FuncType, TensorType, TupleType, Type, is_dynamic
from tilewright.relay import transform
from tilewright.relay.adt import Constructor, Match, Pattern, PatternConstructor, PatternTuple, PatternVar
from tilewright.relay.analysis import free_vars
from tilewright.relay.backend.executor import from_value
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
    TupleWrapper,
    Var,
)
from tilewright.relay.function_attributes import PRIMITIVE
from tilewright.relay.interpreter import Closure, Interpreter, Scope, to_value
from tilewright.relay.qnn.transform import CanonicalizeOps as CanonicalizeQnn
from tilewright.runtime import ndarray as nd
from tilewright.runtime.container import ADT, tuple_object
from tilewright.target.target import Target

OUTPUT_VAR_NAME = "_py_out"
PROLOGUE = """\
import numpy
from numpy import inf, nan
from tilewright import nd
from tilewright.relay.backend.interpreter import ConstructorValue, RefValue
from tilewright.relay.testing.py_converter import operators, tuple_value
from tilewright.runtime.ndarray import numpy_dtype
"""

operators: dict[str, Callable[..., Any]] = {}  # what scripts of this process call


def tuple_value(*fields: Any) -> ADT | tuple[Any, ...]:
    """Return a tuple: an ``ADT`` of tensors and ``ADT``s; Python's where a field is something else."""
    native = all(isinstance(field, (nd.NDArray, ADT)) for field in fields)
    return tuple_object(fields) if native else fields


def to_python(expr: RelayExpr | TupleWrapper, mod: IRModule | None = None, target: Any = "llvm") -> ast.Module:
    """Return the script, as Python's syntax tree (``ast.unparse`` prints it), which leaves the value in ``_py_out``.

    Parameters
    ----------
    expr : an expression without free variables; a function becomes a function of Python.
    mod : the functions and data types that it uses.
    target : the target of operators.

    Raises
    ------
    TilewrightError where a variable has no value; TypeInferenceError where types do not fit.
    """
    expr = expr.astuple() if isinstance(expr, TupleWrapper) else expr
    unbound = free_vars(expr)
    if unbound:
        names = ", ".join(f"%{var.name_hint}" for var in unbound)
        raise TilewrightError(f"the program has variables without a value: {names}; bind them by let or as parameters")
    whole = IRModule() if mod is None else mod.copy()
    entry = "program"
    while entry in whole:
        entry += "_"
    whole[entry] = expr if isinstance(expr, Function) else Function([], expr)
    lines = _Script(_prepared(whole, entry), Target(target)).of(entry, isinstance(expr, Function))
    return ast.parse(PROLOGUE + "\n".join(lines))


def run_as_python(expr: RelayExpr | TupleWrapper, mod: IRModule | None = None, target: Any = "llvm") -> Any:
    """Return the value of an expression, by running ``to_python`` of it."""
    scope: dict[str, Any] = {}
    exec(compile(to_python(expr, mod, target), "<Relay as Python>", "exec"), scope)
    return scope[OUTPUT_VAR_NAME]


def _prepared(mod: IRModule, entry: str) -> IRModule:
    """Return the program typed, each operator in its own function, in A-normal form; functions not reached are left
    out.
    """
    passes = [
        transform.RemoveUnusedFunctions([entry]),
        transform.InferType(),
        CanonicalizeQnn(),
        transform.SimplifyInference(),
        transform.CanonicalizeOps(),
        transform.FuseOps(0),
        transform.ToANormalForm(),
        transform.InferType(),
    ]
    return Sequential(passes, name="to_python")(mod)


class _Script:
    """Writer of the lines of a module's functions."""

    def __init__(self, mod: IRModule, target: Target) -> None:
        self.mod = mod
        self.target = target
        self.count = 0
        self.names: dict[Var | GlobalVar, str] = {}

    def of(self, entry: str, is_function: bool) -> list[str]:
        """Write all functions, then the value of ``entry``."""
        lines: list[str] = []
        for var, func in self.mod.functions.items():
            if not isinstance(func, Function):
                raise UnsupportedError(f"@{var.name_hint} is no function of Relay; Python cannot call it")
            if var.name_hint != entry or is_function:
                lines += self.definition(self.name(var), func)
        root = self.mod[entry]
        if is_function:
            return [*lines, f"{OUTPUT_VAR_NAME} = {self.name(self.mod.get_global_var(entry))}"]
        return [*lines, *self.block(root.body, f"{OUTPUT_VAR_NAME} = ")]

    def fresh(self, hint: str) -> str:
        """Return a new name."""
        self.count += 1
        return f"{re.sub(r'[^A-Za-z0-9_]', '_', hint) or 'x'}_{self.count}"

    def name(self, var: Var | GlobalVar) -> str:
        """Return the Python name of a variable."""
        if var not in self.names:
            self.names[var] = self.fresh(f"v{var.name_hint}" if var.name_hint[:1].isdigit() else var.name_hint)
        return self.names[var]

    def definition(self, name: str, func: Function) -> list[str]:
        """Write ``def name(...)``."""
        params = ", ".join(self.name(param) for param in func.params)
        return [f"def {name}({params}):", *_indented(self.block(func.body, "return "))]

    def block(self, expr: RelayExpr, give: str) -> list[str]:
        """Write statements for lets, and at their end ``give`` before the value."""
        lines: list[str] = []
        while isinstance(expr, Let):
            name = self.name(expr.var)
            if isinstance(expr.value, Function) and not PRIMITIVE.on(expr.value):
                lines += self.definition(name, expr.value)
            else:
                lines += self.block(expr.value, f"{name} = ")
            expr = expr.body
        return lines + self.statement(expr, give)

    def statement(self, expr: RelayExpr, give: str) -> list[str]:
        """Write statements that compute one expression."""
        match expr:
            case If():
                then, other = self.block(expr.true_branch, give), self.block(expr.false_branch, give)
                test = f"if {self.atom(expr.cond)}.numpy():"
                return [test, *_indented(then), "else:", *_indented(other)]
            case Match():
                return self.match(expr, give)
            case Function() if not PRIMITIVE.on(expr):
                name = self.fresh("function")
                return [*self.definition(name, expr), f"{give}{name}"]
            case RefWrite():
                return [f"{self.atom(expr.ref)}.value = {self.atom(expr.value)}", f"{give}tuple_value()"]
        return [f"{give}{self.expression(expr)}"]

    def match(self, expr: Match, give: str) -> list[str]:
        """Write clauses, which are tried one after another."""
        data = self.fresh("data")
        lines, word = [f"{data} = {self.atom(expr.data)}"], "if"
        for clause in expr.clauses:
            tests, bindings = [], []
            for path, pattern in _paths(clause.lhs, data):
                if isinstance(pattern, PatternConstructor):
                    tests.append(f"{path}.tag == {pattern.constructor.tag}")
                elif isinstance(pattern, PatternVar):
                    bindings.append(f"{self.name(pattern.var)} = {path}")
            lines.append(f"{word} {' and '.join(tests) or 'True'}:")
            lines += _indented([*bindings, *self.block(clause.rhs, give)])
            word = "elif"
        return [*lines, "else:", "    raise ValueError('no clause of the match covers the value')"]

    def expression(self, expr: RelayExpr) -> str:
        """Return an expression that needs no statements."""
        match expr:
            case Tuple():
                return f"tuple_value({self.listed(expr.fields)})"
            case TupleGetItem():
                return f"{self.atom(expr.tuple_value)}[{expr.index}]"
            case Call(op=Constructor() as constructor):
                return f"ConstructorValue({constructor.tag}, [{self.listed(expr.args)}], None)"
            case Call():
                return f"{self.atom(expr.op)}({self.listed(expr.args)})"
            case RefCreate():
                return f"RefValue({self.atom(expr.value)})"
            case RefRead():
                return f"{self.atom(expr.ref)}.value"
        return self.atom(expr)

    def listed(self, exprs: Sequence[RelayExpr]) -> str:
        """Return operands between commas."""
        return ", ".join(map(self.atom, exprs))

    def atom(self, expr: RelayExpr) -> str:
        """Return a variable, a constant, a kernel, or a constructor as a function."""
        match expr:
            case Var() | GlobalVar():
                return self.name(expr)
            case Constant():
                return _literal(expr.data)
            case Constructor():
                return f"(lambda *fields: ConstructorValue({expr.tag}, fields, None))"
            case Function():
                return f"operators[{_operator(expr, self.target)!r}]"
        what = f"the operator {expr.name} outside of a call" if isinstance(expr, Op) else f"a {type(expr).__name__}"
        raise UnsupportedError(f"{what} cannot be written in Python here")


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _paths(pattern: Pattern, path: str) -> Iterator[tuple[str, Pattern]]:
    """Yield a pattern and all within, outer ones first, with the Python expression that each is matched against."""
    yield path, pattern
    if isinstance(pattern, (PatternConstructor, PatternTuple)):
        fields = f"{path}.fields" if isinstance(pattern, PatternConstructor) else path
        for index, inner in enumerate(pattern.patterns):
            yield from _paths(inner, f"{fields}[{index}]")


def _literal(data: nd.NDArray) -> str:
    """Return a Python expression for an array; exact, since ``repr`` of a float is."""
    values = data.numpy()
    if 0 in values.shape:
        return f"nd.empty({values.shape}, {data.dtype!r})"
    wide = values.astype("float32") if values.dtype.kind not in "biuf" else values
    return f"nd.array(numpy.array({wide.tolist()!r}, numpy_dtype({data.dtype!r})))"


def _operator(func: Function, target: Target) -> str:
    """Return the name in ``operators`` of a function of operators."""
    hints = re.findall(r"[a-z_0-9]+(?=\()", str(func.body)) or ["kernel"]
    name = f"{hints[-1]}_{structural_hash(func) & 0xFFFFFFFFFFFFFFFF:016x}_{target}"
    if name not in operators:
        operators[name] = _compiled(func, target)
    return name


def _compiled(func: Function, target: Target) -> Callable[..., Any]:
    """Return a function of values for a function of operators."""
    type_ = func.checked_type
    assert isinstance(type_, FuncType)
    if any(is_dynamic(part) for part in (*type_.arg_types, type_.ret_type)):
        machine, closure = Interpreter(IRModule()), Closure(func, Scope())
        return lambda *args: _as_values(from_value(machine.apply(closure, [to_value(_plain(a)) for a in args])))
    from tilewright.relay.backend import te_compiler  # with LLVM, which importing relay is not to load

    kernel = te_compiler.get().jit(func, target)

    def run(*args: Any) -> Any:
        outputs: list[nd.NDArray] = []
        result = _empty(type_.ret_type, outputs)
        kernel(*(array for arg in args for array in _flat(arg)), *outputs)
        return result

    return run


def _empty(type_: Type, outputs: list[nd.NDArray]) -> Any:
    """Return a value of a type with new tensors, which are appended to ``outputs``."""
    if isinstance(type_, TupleType):
        return tuple_value(*(_empty(field, outputs) for field in type_.fields))
    assert isinstance(type_, TensorType)
    outputs.append(nd.empty(type_.concrete_shape, type_.dtype))
    return outputs[-1]


def _flat(value: Any) -> Iterator[nd.NDArray]:
    if isinstance(value, nd.NDArray):
        yield value
    elif isinstance(value, (ADT, tuple)):
        for field in value:
            yield from _flat(field)
    else:
        yield nd.array(np.asarray(to_value(value)))


def _plain(value: Any) -> Any:
    """Return ``ADT``s as tuples of Python."""
    return tuple(map(_plain, value)) if isinstance(value, (ADT, tuple)) else value


def _as_values(value: Any) -> Any:
    """Return tuples of Python as ``ADT``s."""
    return tuple_value(*map(_as_values, value)) if isinstance(value, (tuple, list)) else value
