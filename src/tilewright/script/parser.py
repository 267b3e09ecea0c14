"""Reading the source text of a Python function into a ``PrimFunc``.

Statements are walked here; expressions are evaluated by Python over the variables of the function's loops, after
``and``, ``or`` and ``not`` have become calls that build conditions. The functions that it calls (``T.serial``,
``T.allocate``) are plain functions of ``script.tir``, which return these objects:

    Loop         the iterable of ``for ... in``
    Scope        the context of ``with``, or a value left of ``=`` for the rest of the block
    Declaration  a name without a statement of its own, such as a matched buffer
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.memory import Buffer, BufferLoad
from tilewright.ir.prim_expr import PrimExpr, Var
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir.expr import IterVar
from tilewright.tir.function import PrimFunc
from tilewright.tir.ir_builder import IRBuilder
from tilewright.tir.stmt import AssertStmt, BufferStore, For, ForKind, LetStmt, Stmt, Store


@dataclass(frozen=True)
class Loop:
    """Nested loops: the beginning and end of each, outermost first."""

    ranges: Sequence[tuple[Any, Any]]
    kind: ForKind
    thread: str = ""
    annotations: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Scope:
    """A statement around the following ones; ``value`` is bound to the name after ``as``, or on the left side."""

    wrap: Callable[[Stmt], Stmt]
    value: Any = None


class Declaration:
    """A matched or declared buffer, or a thread axis: a name, and nothing that runs."""

    def __init__(self, value: Any) -> None:
        self.value = value


class BufferName:
    """A buffer inside the function: ``A[i, j]`` reads it, ``A[i, j] = v`` stores to it, ``A.data`` is its pointer."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.buffer, name)

    def __getitem__(self, indices: Any) -> PrimExpr:
        return BufferLoad(self.buffer, indices if isinstance(indices, tuple) else (indices,))


@dataclass
class Building:
    """The function that is being read."""

    builder: IRBuilder = field(default_factory=IRBuilder)
    buffer_map: dict[Var, Buffer] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)


_state = threading.local()


def current() -> Building:
    """The function that is being read; raises TilewrightError outside of one."""
    building: Building | None = getattr(_state, "building", None)
    if building is None:
        raise TilewrightError(
            "T.func_attr and its kind have a meaning only inside a function decorated with T.prim_func"
        )
    return building


class Conditions(ast.NodeTransformer):
    """Rewrites ``a and b`` to a call that builds a condition, and likewise chained comparisons."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "__all" if isinstance(node.op, ast.And) else "__any"
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), node.values, []), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.copy_location(ast.Call(ast.Name("__not", ast.Load()), [node.operand], []), node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        operands = [node.left, *node.comparators]
        pairs: list[ast.expr] = [
            ast.Compare(left, [op], [right]) for left, op, right in zip(operands, node.ops, operands[1:], strict=False)
        ]
        return ast.fix_missing_locations(ast.copy_location(ast.Call(ast.Name("__all", ast.Load()), pairs, []), node))


_HELPERS = {"__all": lambda *a: _joined(ops.logical_and, a), "__any": lambda *a: _joined(ops.logical_or, a)}


def _joined(combine: Callable[[Any, Any], PrimExpr], parts: Sequence[Any]) -> Any:
    if not any(isinstance(p, PrimExpr) for p in parts):
        return all(parts) if combine is ops.logical_and else any(parts)
    result = ops.as_expr(parts[0])
    for part in parts[1:]:
        result = combine(result, part)
    return result


class Reader:
    """Walks the statements of one function."""

    conditions: type[Conditions] = Conditions

    def __init__(self, name: str, names: dict[str, Any], building: Building) -> None:
        self.name = name
        self.names = names | _HELPERS | {"__not": lambda a: ops.logical_not(a) if isinstance(a, PrimExpr) else not a}
        self.building = building
        self.builder = building.builder

    def fail(self, node: ast.AST, why: str) -> TilewrightError:
        """Return the error with its place in the function."""
        return TilewrightError(f"{self.name}, line {getattr(node, 'lineno', '?')}: {why}")

    def value(self, node: ast.expr) -> Any:
        """Evaluate an expression."""
        tree = ast.Expression(self.conditions().visit(node))
        try:
            return eval(compile(ast.fix_missing_locations(tree), self.name, "eval"), self.names)
        except TilewrightError:
            raise
        except Exception as error:
            raise self.fail(node, f"{type(error).__name__}: {error}") from error

    def bind(self, target: ast.expr, value: Any) -> None:
        """Bind a name to a value; variables made without a name take it."""
        if not isinstance(target, ast.Name):
            raise self.fail(target, f"a name is expected here, not {ast.unparse(target)}")
        self.names[target.id] = BufferName(value) if isinstance(value, Buffer) else value

    def block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            handler = getattr(self, f"on_{type(statement).__name__}", None)
            if handler is None:
                raise self.fail(statement, f"{type(statement).__name__} has no meaning in a function of loops")
            handler(statement)

    def inner(self, body: Sequence[ast.stmt]) -> Stmt:
        """The statement of a nested block; names bound in it end with it."""
        outside = dict(self.names)
        self.builder._scopes.append([])
        self.block(body)
        self.names.clear()
        self.names.update(outside)
        return self.builder._pop()

    def on_Pass(self, node: ast.Pass) -> None:
        pass

    def on_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return  # a docstring
        value = self.value(node.value)
        if isinstance(value, Scope):
            self.builder.emit(value.wrap)
        elif isinstance(value, (Stmt, PrimExpr)):
            self.builder.emit(value)
        elif value is not None:
            raise self.fail(node, f"{ast.unparse(node)} is no statement")

    def on_Assign(self, node: ast.Assign) -> None:
        (target,) = node.targets
        hint = target.id if isinstance(target, ast.Name) else ""
        _state.hint = hint
        value = self.value(node.value)
        if isinstance(target, ast.Subscript):
            self.store(target, value)
        elif isinstance(value, Scope):
            self.builder.emit(value.wrap)
            self.bind(target, value.value)
        elif isinstance(value, Declaration):
            self.bind(target, value.value)
        else:
            self.bind(target, value)

    def on_AnnAssign(self, node: ast.AnnAssign) -> None:
        dtype, value = self.value(node.annotation).dtype, self.value(node.value) if node.value is not None else 0
        assert isinstance(node.target, ast.Name)
        var, value = Var(node.target.id, dtype), ops.as_expr(value, dtype)
        self.builder.emit(lambda body: LetStmt(var, value, body))
        self.bind(node.target, var)

    def on_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Subscript):
            raise self.fail(node, "only elements of buffers can be changed")
        loaded = ast.Subscript(node.target.value, node.target.slice, ast.Load())
        self.store(node.target, self.value(ast.copy_location(ast.BinOp(loaded, node.op, node.value), node)))

    def store(self, target: ast.Subscript, value: Any) -> None:
        place, indices = self.value(target.value), self.value(target.slice)
        if isinstance(place, BufferName):
            indices = indices if isinstance(indices, tuple) else (indices,)
            expr = ops.as_expr(value, None if isinstance(value, PrimExpr) else place.buffer.dtype)
            self.builder.emit(BufferStore(place.buffer, expr, indices))
        elif isinstance(place, Var):
            self.builder.emit(Store(place, typed(place, value), indices))
        else:
            raise self.fail(target, f"{ast.unparse(target.value)} is neither a buffer nor a pointer")

    def on_For(self, node: ast.For) -> None:
        loop = self.value(node.iter)
        if isinstance(loop, range):
            if loop.step != 1:
                raise self.fail(node, "loops go up by 1")
            loop = Loop([(loop.start, loop.stop)], ForKind.SERIAL)
        if not isinstance(loop, Loop):
            raise self.fail(node, f"{ast.unparse(node.iter)} is no loop, as T.serial, T.grid or range are")
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        if len(targets) != len(loop.ranges):
            raise self.fail(node, f"{len(loop.ranges)} loops need as many variables, got {len(targets)}")
        ranges = [ops.match_dtypes(low, high) for low, high in loop.ranges]
        variables = [
            Var(t.id if isinstance(t, ast.Name) else "i", low.dtype)
            for t, (low, _) in zip(targets, ranges, strict=True)
        ]
        outside = dict(self.names)
        for target, var in zip(targets, variables, strict=True):
            self.bind(target, var)
        body = self.inner(node.body)
        self.names.clear()
        self.names.update(outside)
        for var, (low, high) in zip(reversed(variables), reversed(ranges), strict=True):
            extent = high if ops.is_const_int(low, 0) else ops.sub(high, low)
            body = self.loop(loop, var, low, extent, body)
        self.builder.emit(body)

    def loop(self, loop: Loop, var: Var, low: PrimExpr, extent: PrimExpr, body: Stmt) -> Stmt:
        """Return one of the loops of a ``for`` statement."""
        thread = IterVar(None, loop.thread, IterVar.ThreadIndex, loop.thread) if loop.thread else None
        return For(var, low, extent, loop.kind, body, thread, loop.annotations)

    def on_With(self, node: ast.With) -> None:
        outside = dict(self.names)
        wraps = []
        for item in node.items:
            _state.hint = item.optional_vars.id if isinstance(item.optional_vars, ast.Name) else ""
            scope = self.value(item.context_expr)
            if not isinstance(scope, Scope):
                raise self.fail(node, f"{ast.unparse(item.context_expr)} opens no scope")
            if item.optional_vars is not None:
                self.bind(item.optional_vars, scope.value)
            wraps.append(scope.wrap)
        body = self.inner(node.body)
        self.names.clear()
        self.names.update(outside)
        for wrap in reversed(wraps):
            body = wrap(body)
        self.builder.emit(body)

    def on_If(self, node: ast.If) -> None:
        condition = self.value(node.test)
        with self.builder.if_scope(condition):
            self.builder.emit(self.inner(node.body))
        if node.orelse:
            with self.builder.else_scope():
                self.builder.emit(self.inner(node.orelse))

    def on_While(self, node: ast.While) -> None:
        with self.builder.while_loop(self.value(node.test)):
            self.builder.emit(self.inner(node.body))

    def on_Assert(self, node: ast.Assert) -> None:
        condition = ops.as_expr(self.value(node.test))
        message = self.value(node.msg) if node.msg is not None else ""
        self.builder.emit(lambda body: AssertStmt(condition, message, body))

    def on_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            raise self.fail(node, "a function of loops returns nothing; T.evaluate(T.ret(value)) gives a value")


def name_hint(default: str) -> str:
    """The name that the value being built is going to have."""
    return getattr(_state, "hint", "") or default


def typed(pointer: Var, value: Any) -> PrimExpr:
    """Convert ``value``; a plain number gets the pointer's element type."""
    annotation = pointer.type_annotation
    plain = not isinstance(value, PrimExpr) and isinstance(annotation, PointerType)
    element = annotation.element_type if plain else None
    return ops.as_expr(value, element.dtype if isinstance(element, PrimType) else None)


def read_function(function: Callable[..., Any]) -> PrimFunc:
    """Convert a Python function to a ``PrimFunc``; see ``script.tir.prim_func``."""
    definition = definition_of(function)
    names = dict(function.__globals__) | closure_of(function)
    building = Building()
    reader = Reader(function.__name__, names, building)
    params: list[Var] = []
    for arg in definition.args.args:
        if arg.annotation is None:
            raise reader.fail(arg, f"parameter {arg.arg} needs a type, such as T.handle or T.int32")
        params.append(Var(arg.arg, reader.value(arg.annotation).dtype))
        names_of = reader.names
        names_of[arg.arg] = params[-1]
    outer = getattr(_state, "building", None)
    _state.building = building
    try:
        reader.block(definition.body)
    finally:
        _state.building = outer
    return PrimFunc(params, building.builder.get(), None, building.buffer_map, building.attrs)


def definition_of(function: Callable[..., Any]) -> ast.FunctionDef:
    """The text of a Python function as a tree, whose lines are those of its file."""
    try:
        text = inspect.getsource(function)
    except OSError:
        raise TilewrightError(f"the text of {function.__name__} is not there; define it in a file") from None
    definition = ast.parse(textwrap.dedent(text)).body[0]
    assert isinstance(definition, ast.FunctionDef)
    ast.increment_lineno(definition, function.__code__.co_firstlineno - 1)
    return definition


def closure_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The names of the functions around it that a function uses."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}
