"""Relay expressions: the graph-level IR.

Grammar::

    e ::= Var(name, type?) | GlobalVar(name) | Op(name) | Constant(NDArray)
        | Call(e, e*, attrs) | Tuple(e*) | TupleGetItem(e, index)
        | Function(Var*, e, ret type?, type vars, attrs)
        | Let(Var, e, e) | If(e, e, e)
        | RefCreate(e) | RefRead(e) | RefWrite(e, e)
        | Constructor | Match(e, clause*)                     in relay.adt

A dataflow graph is a DAG of calls: an expression that two calls share is one object.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.ir.attrs import Attrs, DictAttrs
from tilewright.ir.expr import BaseFunc, GlobalVar, RelayExpr
from tilewright.ir.notebook import text_html
from tilewright.ir.op import Op
from tilewright.ir.span import Span
from tilewright.ir.type import FuncType, TensorType, Type, TypeVar
from tilewright.relay.function_attributes import PRIMITIVE
from tilewright.runtime import ndarray as _nd


class Expr(RelayExpr):
    """Base of Relay's own nodes; Python operators build calls of the operators of the same name."""

    def __add__(self, other: Any) -> Call:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> Call:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> Call:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Any) -> Call:
        return _binary("subtract", other, self)

    def __mul__(self, other: Any) -> Call:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Any) -> Call:
        return _binary("multiply", other, self)

    def __truediv__(self, other: Any) -> Call:
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Any) -> Call:
        return _binary("divide", other, self)

    def __neg__(self) -> Call:
        return Call(Op.get("negative"), (self,))

    def __lt__(self, other: Any) -> Call:
        return _binary("less", self, other)

    def __le__(self, other: Any) -> Call:
        return _binary("less_equal", self, other)

    def __gt__(self, other: Any) -> Call:
        return _binary("greater", self, other)

    def __ge__(self, other: Any) -> Call:
        return _binary("greater_equal", self, other)

    def __call__(self, *args: Any) -> Call:
        return Call(self, args)

    def __getitem__(self, index: int) -> Expr:
        raise TypeError(f"a {type(self).__name__} cannot be indexed; use relay.take or relay.strided_slice")

    def astype(self, dtype: str) -> Call:
        """Return this value converted to ``dtype`` (operator ``cast``)."""
        cast = Op.get("cast")
        return Call(cast, (self,), cast.get_attr("OpDef").attrs_type(dtype))


ExprWithOp = Expr  # TVM's name


def _binary(name: str, a: Any, b: Any) -> Call:
    return Call(Op.get(name), (_operand(a), _operand(b)))


def _operand(value: Any) -> RelayExpr:
    if isinstance(value, RelayExpr):
        return value
    if isinstance(value, (int, float, np.ndarray, np.generic)):
        return const(value, "float32" if isinstance(value, float) else None)
    raise TypeError(
        f"cannot use a {type(value).__name__} as an operand of a Relay expression; wrap it with relay.const"
    )


class Constant(Expr):
    """A tensor known at compile time; ``data`` is an ``NDArray`` in CPU memory."""

    data: _nd.NDArray
    span: Span | None = None

    @property
    def tensor_type(self) -> TensorType:
        """Return the type of the array itself."""
        return TensorType(self.data.shape, str(self.data.dtype))


class Tuple(Expr):
    """A tuple of values."""

    fields: tuple[RelayExpr, ...]
    span: Span | None = None

    def __init__(self, fields: Sequence[RelayExpr], span: Span | None = None) -> None:
        self._init(tuple(fields), span)

    def __getitem__(self, index: int) -> RelayExpr:  # type: ignore[override]
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)


class Var(Expr):
    """A local variable. Identity matters; ``name_hint`` is a hint."""

    name_hint: str
    type_annotation: Type | None = None
    span: Span | None = None

    @property
    def vid(self) -> Var:
        """Return the variable itself: TVM keeps a separate identifier object here."""
        return self


class _Origin(threading.local):
    """The span of the expression that a pass rewrites, which calls made meanwhile inherit."""

    span: Span | None = None


origin = _Origin()


@contextmanager
def comes_from(span: Span) -> Iterator[None]:
    """Give ``span`` to calls that are made in the block and have no span of their own."""
    outer, origin.span = origin.span, span
    try:
        yield
    finally:
        origin.span = outer


class Call(Expr):
    """``op(args)`` with the operator's attributes; ``op`` is an Op, a function, a constructor or a variable."""

    op: RelayExpr
    args: tuple[RelayExpr, ...]
    attrs: Attrs | None = None
    type_args: tuple[Type, ...] = ()
    span: Span | None = None

    def __init__(
        self,
        op: RelayExpr,
        args: Sequence[RelayExpr],
        attrs: Attrs | None = None,
        type_args: Sequence[Type] | None = None,
        span: Span | None = None,
    ) -> None:
        self._init(op, tuple(args), attrs, tuple(type_args or ()), span or origin.span)


class TupleGetItem(Expr):
    """Field ``index`` of a tuple."""

    tuple_value: RelayExpr
    index: int
    span: Span | None = None

    def __init__(self, tuple_value: RelayExpr, index: int, span: Span | None = None) -> None:
        self._init(tuple_value, index, span or origin.span)


class Function(BaseFunc, Expr):
    """``fn (params) -> ret_type { body }``; ``attrs`` such as Primitive=1 or Compiler="dnnl"."""

    params: tuple[Var, ...]
    body: RelayExpr
    ret_type: Type | None = None
    type_params: tuple[TypeVar, ...] = ()
    attrs: DictAttrs = DictAttrs()
    span: Span | None = None

    def __init__(
        self,
        params: Sequence[Var],
        body: RelayExpr,
        ret_type: Type | None = None,
        type_params: Sequence[TypeVar] | None = None,
        attrs: DictAttrs | Mapping[str, Any] | None = None,
        span: Span | None = None,
    ) -> None:
        if not isinstance(attrs, DictAttrs):
            attrs = DictAttrs(attrs)
        self._init(tuple(params), body, ret_type, tuple(type_params or ()), attrs, span)

    def __call__(self, *args: Any) -> Call:
        return Call(self, args)

    def _repr_html_(self) -> str:
        return text_html("relay.Function", str(self))

    @property
    def is_primitive(self) -> bool:
        """Return whether this is a fused function that becomes one kernel."""
        return PRIMITIVE.on(self)

    def annotated_type(self) -> FuncType | None:
        """Return the function's type by its annotations, or None when one is missing."""
        if self.ret_type is None or any(p.type_annotation is None for p in self.params):
            return None
        return FuncType([p.type_annotation for p in self.params], self.ret_type, self.type_params)  # type: ignore[misc]


class Let(Expr):
    """``let var = value; body``"""

    var: Var
    value: RelayExpr
    body: RelayExpr
    span: Span | None = None


class If(Expr):
    """``if (cond) { true_branch } else { false_branch }``; only the branch taken is evaluated."""

    cond: RelayExpr
    true_branch: RelayExpr
    false_branch: RelayExpr
    span: Span | None = None


class RefCreate(Expr):
    """A new mutable cell that holds ``value``."""

    value: RelayExpr
    span: Span | None = None


class RefRead(Expr):
    """The value in a cell."""

    ref: RelayExpr
    span: Span | None = None


class RefWrite(Expr):
    """Store ``value`` in a cell; the result is the empty tuple."""

    ref: RelayExpr
    value: RelayExpr
    span: Span | None = None


class TempExpr(Expr):
    """An expression that exists only while a pass runs; ``realize`` returns the real one."""

    def realize(self) -> RelayExpr:
        """Return the expression that this stands for."""
        raise TypeError(f"{type(self).__name__} does not define realize()")


class TupleWrapper:
    """The tuple result of an operator, which Python can unpack: ``a, b = relay.split(...)``."""

    def __init__(self, tuple_value: RelayExpr, size: int) -> None:
        self.tuple_value = tuple_value
        self.size = size

    def astuple(self) -> RelayExpr:
        """Return the tuple expression."""
        return self.tuple_value

    def astext(self, show_meta_data: bool = True) -> str:
        """Return the text of the tuple expression."""
        return str(self.tuple_value)

    def astype(self, dtype: str) -> RelayExpr:
        """Raise: a tuple has no dtype."""
        raise TypeError(f"a tuple of {self.size} has no dtype to convert to {dtype}; convert its fields")

    def __getitem__(self, index: int) -> TupleGetItem:
        if not -self.size <= index < self.size:
            raise IndexError(f"index {index} of a tuple of {self.size}")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[TupleGetItem]:
        return (self[i] for i in range(self.size))


def var(
    name_hint: str,
    type_annotation: Type | str | None = None,
    shape: Sequence[Any] | None = None,
    dtype: str = "float32",
    span: Span | None = None,
) -> Var:
    """Return a variable with a type, or with a tensor type of ``shape`` and ``dtype``.

    ``relay.var("x", shape=(1, 3), dtype="float32")``; a dtype alone, ``relay.var("n", "int32")``, is a scalar.
    """
    if type_annotation is not None and shape is not None:
        raise ValueError(f"variable {name_hint!r}: give either a type annotation or a shape, not both")
    if shape is not None:
        type_annotation = TensorType(shape, dtype)
    elif isinstance(type_annotation, str):
        type_annotation = TensorType((), type_annotation)
    return Var(name_hint, type_annotation, span)


def const(value: Any, dtype: str | TensorType | None = None, span: Span | None = None) -> Constant:
    """Return a constant of a number, a numpy array or an NDArray; Python ints are int32, floats float32.

    ``dtype`` may be given as the type of a scalar.
    """
    if isinstance(dtype, TensorType):
        dtype = dtype.dtype
    if isinstance(value, _nd.NDArray):
        return Constant(value, span)
    if dtype is None and isinstance(value, (bool, int, float, list, tuple)):
        array = np.asarray(value)
        narrow = {"int64": "int32", "float64": "float32"}
        dtype = narrow.get(str(array.dtype), str(array.dtype))
    array = np.asarray(value, dtype=_nd.numpy_dtype(dtype) if dtype else None)
    return Constant(_nd.array(array), span)


def scalar_value(expr: RelayExpr) -> float | int | None:
    """Return the Python number of a constant with one element, else None."""
    if isinstance(expr, Constant) and int(np.prod(expr.data.shape)) == 1:
        number: float | int = expr.data.numpy().reshape(()).item()
        return number
    return None


def _make_call(op: RelayExpr, args: Sequence[RelayExpr]) -> Call:
    return Call(op, args)


RelayExpr.make_call = staticmethod(_make_call)

__all__ = [
    "Call", "Constant", "Expr", "Function", "GlobalVar", "If", "Let", "RefCreate", "RefRead", "RefWrite",
    "RelayExpr", "TempExpr", "Tuple", "TupleGetItem", "TupleWrapper", "Var", "const", "scalar_value", "var",
]  # fmt: skip
