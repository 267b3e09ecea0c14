"""Names for functions of loops, imported as ``from tvm.script import tir as T``.

Types: ``T.handle``, ``T.int32``, ... (called, ``T.float32(0)``, they return literals). Every intrinsic of ``tir`` is
here by its name: ``T.exp(x, dtype="float32")`` is a call of ``tir.exp``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.memory import Buffer, Load, decl_buffer
from tilewright.ir.op_table import find_op
from tilewright.ir.prim_expr import Broadcast, Call, PrimExpr, Ramp, Select, Shuffle, StringImm, Var
from tilewright.ir.type import PointerType, PrimType
from tilewright.script import parser
from tilewright.script.parser import BufferName, Declaration, Loop, Scope
from tilewright.tir import op as _op
from tilewright.tir.expr import IterVar, Range
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferRealize,
    Evaluate,
    ForKind,
    LetStmt,
    Stmt,
    Store,
)


class ScalarType:
    """A data type: in front of a parameter, or called with a value."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __call__(self, value: Any) -> PrimExpr:
        return ops.cast(self.dtype, value) if isinstance(value, PrimExpr) else ops.const(value, self.dtype)


handle = ScalarType("handle")
boolean = ScalarType("bool")
int8, int16, int32, int64 = (ScalarType(f"int{bits}") for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (ScalarType(f"uint{bits}") for bits in (8, 16, 32, 64))
float16, float32, float64 = (ScalarType(f"float{bits}") for bits in (16, 32, 64))


def prim_func(input_func: Callable[..., Any]) -> PrimFunc:
    """The ``PrimFunc`` that a Python function writes down: a decorator. The function itself never runs.

    Raises TilewrightError, with the line, where the function says what has no meaning in loops.
    """
    return parser.read_function(input_func)


def func_attr(attrs: Mapping[str, Any]) -> None:
    """Set attributes of the function."""
    parser.current().attrs.update(attrs)


def match_buffer(
    param: Var, shape: Sequence[Any], dtype: str = "float32", data: Var | None = None, strides: Any = None,
    elem_offset: Any = None, scope: str = "", align: int = -1, offset_factor: int = 0, type: str = "default",
) -> Declaration:  # fmt: skip
    """The buffer that a parameter points to."""
    if isinstance(param, BufferName):
        raise TilewrightError("T.match_buffer of a region belongs to blocks, which Tilewright does not have yet")
    buffer = _buffer(shape, dtype, data, strides, elem_offset, scope, align, offset_factor, type)
    parser.current().buffer_map[param] = buffer
    return Declaration(buffer)


def buffer_decl(
    shape: Sequence[Any], dtype: str = "float32", data: Var | None = None, strides: Sequence[Any] | None = None,
    elem_offset: Any = None, scope: str = "", align: int = -1, offset_factor: int = 0, type: str = "default",
) -> Declaration:  # fmt: skip
    """A buffer that is realized, or whose pointer is known."""
    return Declaration(_buffer(shape, dtype, data, strides, elem_offset, scope, align, offset_factor, type))


def _buffer(
    shape: Any,
    dtype: str,
    data: Any,
    strides: Any,
    elem_offset: Any,
    scope: str,
    align: int,
    offset_factor: int,
    kind: str,
) -> Buffer:
    kind = "auto_broadcast" if kind == "auto" else "" if kind == "default" else kind
    shape = shape if isinstance(shape, (list, tuple)) else [shape]
    name = parser.name_hint("buffer")
    return decl_buffer(shape, dtype, name, data, strides, elem_offset, scope, align, offset_factor, kind)


def env_thread(tag: str) -> Declaration:
    """A thread axis, for ``T.launch_thread``."""
    return Declaration(Var(tag, "int32"))


def var(dtype: str) -> Declaration:
    """A variable, for ``T.let``."""
    return Declaration(Var(parser.name_hint("v"), dtype))


def serial(begin: Any, end: Any, annotations: Mapping[str, Any] | None = None) -> Loop:
    """Loop ``for i in T.serial(begin, end):``."""
    return Loop([(begin, end)], ForKind.SERIAL, "", annotations)


def parallel(begin: Any, end: Any, annotations: Mapping[str, Any] | None = None) -> Loop:
    """A loop whose iterations the threads of the pool share."""
    return Loop([(begin, end)], ForKind.PARALLEL, "", annotations)


def vectorized(begin: Any, end: Any, annotations: Mapping[str, Any] | None = None) -> Loop:
    """A loop that runs as one vector."""
    return Loop([(begin, end)], ForKind.VECTORIZED, "", annotations)


def unroll(begin: Any, end: Any, annotations: Mapping[str, Any] | None = None) -> Loop:
    """Loop that is unrolled."""
    return Loop([(begin, end)], ForKind.UNROLLED, "", annotations)


def thread_binding(begin: Any, end: Any, thread: str, annotations: Mapping[str, Any] | None = None) -> Loop:
    """Loop over the threads of an axis, such as ``"threadIdx.x"``."""
    return Loop([(begin, end)], ForKind.THREAD_BINDING, thread, annotations)


def grid(*extents: Any) -> Loop:
    """Loop ``for i, j in T.grid(n, m):``, nested serial loops from 0."""
    return Loop([(0, extent) for extent in extents], ForKind.SERIAL)


def allocate(
    extents: Sequence[Any], dtype: str, scope: str = "", condition: Any = True,
    annotations: Mapping[str, Any] | None = None,
) -> Scope:  # fmt: skip
    """Allocate memory for the rest of the block, or in a ``with``: ``A = T.allocate([16], "float32", "global")``."""
    pointer = Var(parser.name_hint("buf"), PointerType(PrimType(dtype), scope))
    test = ops.as_expr(condition)
    return Scope(lambda body: Allocate(pointer, dtype, list(extents), test, body, annotations), pointer)


def realize(region: Any, condition: Any = True) -> Scope:
    """Memory of the whole of a declared buffer: ``with T.realize(B):``."""
    buffer = region.buffer
    return Scope(lambda body: BufferRealize(buffer, [Range(0, d) for d in buffer.shape], condition, body))


def attr(node: Any, key: str, value: Any) -> Scope:
    """Set an attribute of the rest of the block, or in a ``with``."""
    owner = node.buffer if isinstance(node, BufferName) else node
    return Scope(lambda body: AttrStmt(owner, key, value, body))


def launch_thread(thread: Var, extent: Any) -> Scope:
    """Run the rest of the block in the threads of an axis from ``T.env_thread``."""
    axis = IterVar(Range(0, extent), thread, IterVar.ThreadIndex, thread.name)
    return Scope(lambda body: AttrStmt(axis, "thread_extent", extent, body), thread)


def let(variable: Var, value: Any) -> Scope:
    """A value for a variable that ``T.var`` gave."""
    return Scope(lambda body: LetStmt(variable, ops.as_expr(value, variable.dtype), body), variable)


def Assert(condition: Any, message: str) -> Scope:
    """Check a condition before the rest of the block, or in a ``with``."""
    return Scope(lambda body: AssertStmt(ops.as_expr(condition), message, body))


def store(pointer: Var, index: Any, value: Any, predicate: Any = None) -> Stmt:
    """Store ``pointer[index] = value`` in flat memory."""
    test = None if predicate is None else ops.as_expr(predicate)
    return Store(pointer, parser.typed(pointer, value), index, test)


def load(dtype: str, var: Var, index: Any, predicate: Any = None) -> PrimExpr:
    """Load ``var[index]`` from flat memory."""
    return Load(dtype, var, index, None if predicate is None else ops.as_expr(predicate))


def evaluate(value: Any) -> Stmt:
    """A statement that only evaluates an expression."""
    return Evaluate(value)


def cast(value: Any, dtype: str) -> PrimExpr:
    """Convert ``value`` to ``dtype``."""
    return ops.cast(dtype, ops.as_expr(value))


def ramp(base: Any, stride: Any, lanes: int) -> PrimExpr:
    """Return the vector ``base, base + stride, ...``."""
    return Ramp(base, stride, lanes)


def broadcast(value: Any, lanes: int) -> PrimExpr:
    """Return a vector of ``lanes`` copies of ``value``."""
    return Broadcast(ops.as_expr(value), lanes)


def select(condition: Any, true_value: Any, false_value: Any) -> PrimExpr:
    """Choose between two values, both of which are evaluated."""
    return Select(condition, true_value, false_value)


def shuffle(vectors: Sequence[Any], indices: Sequence[Any]) -> PrimExpr:
    """Lanes of vectors."""
    return Shuffle(vectors, indices)


def _function(name: str, *args: Any, dtype: str | None = None) -> PrimExpr:
    values = [StringImm(a) if isinstance(a, str) else a.data if isinstance(a, BufferName) else a for a in args]
    if dtype is None:
        dtype = ops.as_expr(values[-1]).dtype
    return Call(dtype, name, values)


_PLAIN = ("abs", "floordiv", "floormod", "max", "max_value", "min", "min_value", "truncdiv", "truncmod", "infinity")


def __getattr__(name: str) -> Any:
    if name in _PLAIN:
        return getattr(_op, name)
    if name in ("block", "init", "reads", "writes", "axis", "alloc_buffer", "where", "block_attr"):
        raise AttributeError(f"T.{name} belongs to blocks, which Tilewright does not have yet")
    if not name.startswith("_"):
        try:
            find_op(f"tir.{name}")
        except (KeyError, TilewrightError):
            raise AttributeError(f"tvm.script.tir has nothing named {name!r}") from None
        return lambda *args, dtype=None: _function(f"tir.{name}", *args, dtype=dtype)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
