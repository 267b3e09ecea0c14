"""Kernels for shapes that are known at run time only, and functions that compute the shapes of their results.

Each unknown dimension of a primitive function's parameters becomes a variable; a named one keeps its name. Type
inference runs again and finds the results' shapes over the variables; the lowered kernel has loops over them. The shape
function is a kernel over shapes: it takes the shapes of the arguments that have variables (int64 vectors), and computes
the shape and the size in bytes of each result::

    fn (%p0: Tensor[(?, 4), float32], %p1: Tensor[(?, 4), float32]) { concatenate((%p0, %p1)) }

    kernel:          p0: (d0, 4), p1: (d1, 4) -> (d0 + d1, 4)
    shape function:  (s0, s1) -> ([s0[0] + s1[0], 4], (s0[0] + s1[0]) * 16)

The shape function first checks the operators' assumptions, such as the equality of two dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright import te, tir
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.bounds import POS_INF
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir import walk
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.memory import Load, ProducerLoad
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import DimVar, IntImm, PrimExpr, SizeVar
from tilewright.ir.prim_expr import Var as PrimVar
from tilewright.ir.prim_functor import ExprVisitor
from tilewright.ir.type import TensorType, TupleType, Type, is_dynamic, tensors_of
from tilewright.relay.backend.wide import Widener, limit_of
from tilewright.relay.expr import Call, Function, Var
from tilewright.relay.function_attributes import (
    GLOBAL_SYMBOL,
    IMPLEMENTATION,
    LAYOUTS,
    SCHEDULE,
    SCHEDULE_REASON,
    TARGET,
)
from tilewright.relay.op.dyn import WithDims, elements, with_dims
from tilewright.relay.op.tensor.creation import InitOpAttrs
from tilewright.relay.type_infer import infer_module
from tilewright.relay.type_infer.dimensions import AtLeast, Condition, Equal, noted
from tilewright.relay.visitor import ExprRewriter, substitute
from tilewright.target.target import Target
from tilewright.te.lower import lowered
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import AssertStmt
from tilewright.tir.visitor import post_order_visit
from tilewright.tir.visitor import substitute as substitute_dims

_DO_NOT_FIT = "the shapes of the arguments do not fit"
_TOO_MANY = (
    "elements are counted in 32 bits; the ranges of all dimensions (--dim NAME=1:LIMIT) let all operators count in 64 "
    "bits, but those that sort or select"
)


def is_dynamic_function(func: Function) -> bool:
    """Return whether a parameter or the result of a function has an unknown shape."""
    return any(is_dynamic(t) for t in (*(p.checked_type for p in func.params), func.body.checked_type))


@dataclass
class _Namer:
    """Maker of variables for unknown dimensions."""

    named: frozenset[PrimVar] = frozenset()  # those that are dimensions of parameters
    count: int = 0
    known: dict[PrimExpr, PrimExpr] = field(default_factory=dict)

    def tensor(self, type_: TensorType) -> TensorType:
        return TensorType([self._dim(d) for d in type_.shape], type_.dtype)

    def _dim(self, dim: PrimExpr) -> PrimExpr:
        if isinstance(dim, IntImm) or (not isinstance(dim, AnyDim) and self.named.issuperset(variables_of(dim))):
            return dim
        if dim not in self.known or isinstance(dim, AnyDim):
            self.known[dim] = _variable(f"d{self.count}", dim)
            self.count += 1
        return self.known[dim]

    def type(self, type_: Type) -> Type:
        if isinstance(type_, TupleType):
            return TupleType([self.type(item) for item in type_.fields])
        return self.tensor(type_) if isinstance(type_, TensorType) else type_


def _variable(name: str, dim: PrimExpr) -> PrimVar:
    """Return a variable for a dimension, with its limits where they are known."""
    if isinstance(dim, AnyDim):
        return SizeVar(name, "int32")
    low, high = Analyzer().const_int_bound(dim)
    return DimVar(name, max(low, 0), high if max(low, 0) <= high < POS_INF else None)


def _with_dims(type_: Type, dims: dict[PrimVar, PrimExpr]) -> Type:
    if isinstance(type_, TupleType):
        return TupleType([_with_dims(item, dims) for item in type_.fields])
    if not isinstance(type_, TensorType):
        return type_
    return TensorType([substitute_dims(d, dims) for d in type_.shape], type_.dtype)


@dataclass(frozen=True)
class Symbolic:
    """A primitive function whose unknown dimensions are variables, with the conditions that they must satisfy."""

    func: Function
    conditions: tuple[Condition, ...]

    def widened(self, widener: Widener) -> Symbolic:
        """Return the function with a result's type, and conditions, in 64 bits."""
        body = self.func.body.with_checked_type(widener.type(self.func.body.checked_type))
        func = Function(self.func.params, body, None, (), self.func.attrs)
        return Symbolic(func, tuple(_widened(c, widener) for c in self.conditions))

    @property
    def declared(self) -> Any | None:
        """Return the operator's rule for the result's shape, where that depends on values."""
        return _shape_rule(self.func.body)

    @property
    def values(self) -> tuple[int, ...]:
        """Return the parameters on whose values the shape depends."""
        body = self.func.body
        if self.declared is None:
            return ()
        assert isinstance(body, Call) and isinstance(body.op, Op)
        places = body.op.get_attr("ShapeValues")
        return tuple(self.func.params.index(body.args[i]) for i in places)


def _shape_rule(body: RelayExpr) -> Any | None:
    if isinstance(body, Call) and isinstance(body.op, Op):
        return body.op.get_attr("FShapeFunction")
    return None


class _WithoutForeignNames(ExprRewriter):
    """Drop dimensions of ``dyn.with_dims`` over names that no parameter has: the data's own dimensions are known
    then.
    """

    def __init__(self, named: frozenset[PrimVar]) -> None:
        super().__init__()
        self.named = named

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        """Return ``post``, with unknown dimensions for those over foreign names."""
        if post.op is not WithDims.op:
            return post
        assert isinstance(post.attrs, InitOpAttrs) and post.attrs.shape is not None
        shape = tuple(d if self.named.issuperset(variables_of(ops.as_expr(d))) else AnyDim() for d in post.attrs.shape)
        return with_dims(post.args[0], shape)


def symbolic(func: Function) -> Symbolic:
    """Return ``func`` with variables for unknown dimensions; dimensions that must be equal are one variable, or a
    number.

    Raises
    ------
    UnsupportedError : an operator's rule does not support variables
    """
    given = [t for p in func.params for t in tensors_of(p.checked_type)]
    namer = _Namer(frozenset(d for t in given for d in t.shape if isinstance(d, PrimVar)))
    types = [namer.type(p.checked_type) for p in func.params]
    original = _WithoutForeignNames(namer.named).visit(func.body)
    while True:
        params = [Var(p.name_hint, t) for p, t in zip(func.params, types, strict=True)]
        binds: dict[Var, RelayExpr] = dict(zip(func.params, params, strict=True))
        body = substitute(original, binds)
        if body is func.body:
            body = substitute(func.body, {})
        with noted() as conditions:
            mod = infer_module(IRModule.from_expr(Function(params, body, None, (), func.attrs)))
        solved = _solved(conditions)
        if not solved:
            (made,) = (f for f in mod.functions.values() if isinstance(f, Function))
            if _shape_rule(made.body) is not None:
                assert isinstance(made.body, Call)
                fresh = Call(made.body.op, made.body.args, made.body.attrs).with_checked_type(
                    namer.type(made.body.checked_type)
                )
                made = Function(made.params, fresh, None, (), made.attrs)
            return Symbolic(made, tuple(dict.fromkeys(c for c in conditions if not _holds(c))))
        types = [_with_dims(t, solved) for t in types]


def _widened(condition: Condition, widener: Widener) -> Condition:
    dim = widener.dim
    if isinstance(condition, AtLeast):
        return AtLeast(dim(condition.dim), dim(condition.least))
    return Equal(dim(condition.a), dim(condition.b), condition.or_one)


def _holds(condition: Condition) -> bool:
    """Return whether a condition is always true."""
    if isinstance(condition, AtLeast):
        known = isinstance(condition.dim, IntImm) and isinstance(condition.least, (int, IntImm))
        return known or condition.dim is condition.least  # type inference has compared numbers
    return ops.as_expr(condition.a) is ops.as_expr(condition.b)


def _solved(conditions: Sequence[Condition]) -> dict[PrimVar, PrimExpr]:
    """Return the first variable that must be a number or another variable."""
    for condition in conditions:
        if isinstance(condition, AtLeast):
            continue
        for one, other in ((condition.a, condition.b), (condition.b, condition.a)):
            simple = isinstance(other, (int, IntImm, PrimVar))
            if isinstance(one, PrimVar) and simple and not condition.or_one and one is not other:
                return {one: ops.as_expr(other)}
    return {}


# ---- shape functions ----


def inputs_with_variables(inputs: Sequence[te.Tensor]) -> list[int]:
    """Return the inputs whose shapes a shape function takes."""
    return [i for i, t in enumerate(inputs) if not all(isinstance(d, IntImm) for d in t.shape)]


def shape_function(
    name: str,
    inputs: Sequence[te.Tensor],
    outputs: Sequence[te.Tensor],
    unknown: Symbolic,
    target: Target,
    limited: Sequence[te.Tensor] = (),
) -> PrimFunc:
    """Return the kernel that computes the results' shapes and sizes in bytes.

    Parameters
    ----------
    limited : tensors whose elements have to be counted in 32 bits

    Raises
    ------
    UnsupportedError : a result's shape depends on data, or on more than the arguments' shapes
    """
    args = _Arguments.of(inputs, unknown)
    given: list[te.Tensor] = []
    for number, output in enumerate(outputs):
        dims = _result_dims(name, output, inputs, unknown, args)
        given.append(_vector(dims, f"shape_of_{number}"))
        given.append(_scalar(_product(dims, dt.nbytes(output.dtype)), f"bytes_of_{number}"))
    checks = dict.fromkeys([*map(_condition, _assumed(outputs, unknown)), *_loop_bounds(outputs)], _DO_NOT_FIT)
    places = args.places
    if limited:
        widener = Widener()
        checks |= dict.fromkeys((limit_of(tensor, widener) for tensor in limited), _TOO_MANY)
        places |= {widener.visit_var(var): place for var, place in places.items()}
    schedule = te.create_schedule([t.op for t in given])
    func = lowered(schedule, [*args.shapes, *args.contents.values(), *given], name=name)[name]
    known = {check: text for check, text in checks.items() if all(v in places for v in variables_of(check))}
    func = _checked(func, name, known, places)
    return func.with_attr(
        {
            GLOBAL_SYMBOL.key: name,
            TARGET.key: target,
            IMPLEMENTATION.key: "",
            SCHEDULE.key: "",
            SCHEDULE_REASON.key: "",
            LAYOUTS.key: (),
        }
    )


@dataclass(frozen=True)
class _Arguments:
    """The arguments of a shape function.

    ``shapes`` are vectors, of the inputs with variables; ``contents`` inputs whose elements decide shapes, by their
    numbers. ``values`` has the element of a vector that each variable is, and ``places`` its vector and position.
    """

    shapes: list[te.Tensor]
    contents: dict[int, te.Tensor]
    values: dict[PrimVar, PrimExpr]
    places: dict[PrimVar, tuple[int, int]]

    @staticmethod
    def of(inputs: Sequence[te.Tensor], unknown: Symbolic) -> _Arguments:
        """Return the arguments for the inputs of a kernel."""
        contents = {i: te.placeholder(inputs[i].shape, inputs[i].dtype, f"value{i}") for i in unknown.values}
        args = _Arguments([], contents, {}, {})
        for number, index in enumerate(inputs_with_variables(inputs)):
            shape = te.placeholder((max(len(inputs[index].shape), 1),), "int64", name=f"shape{index}")
            args.shapes.append(shape)
            for axis, dim in enumerate(inputs[index].shape):
                if isinstance(dim, PrimVar) and dim not in args.values:
                    args.values[dim] = shape[axis]
                    args.places[dim] = number, axis
        return args


def _assumed(outputs: Sequence[te.Tensor], unknown: Symbolic) -> list[Condition]:
    """Return what has to hold of dimensions: what type inference noted, and that results have the inferred types."""
    if unknown.declared is not None:
        return []
    typed = [d for t in tensors_of(unknown.func.body.checked_type) for d in t.shape]
    agree = [Equal(a, b) for a, b in zip(typed, (d for t in outputs for d in t.shape), strict=True) if a is not b]
    return [*unknown.conditions, *(c for c in agree if not isinstance(c.a, AnyDim))]


def _result_dims(
    name: str, output: te.Tensor, inputs: Sequence[te.Tensor], unknown: Symbolic, args: _Arguments
) -> list[PrimExpr]:
    if unknown.declared is None:
        return [_as_int64(name, d, args.values) for d in output.shape]
    return _declared_dims(name, unknown, inputs, args.values, args.contents)


def _declared_dims(
    name: str,
    unknown: Symbolic,
    inputs: Sequence[te.Tensor],
    values: dict[PrimVar, PrimExpr],
    contents: Mapping[int, te.Tensor],
) -> list[PrimExpr]:
    """Return the result's dimensions by the operator's rule, over the shapes and values of its arguments."""
    body, rule = unknown.func.body, unknown.declared
    assert isinstance(body, Call) and rule is not None
    places = [unknown.func.params.index(arg) for arg in body.args]
    dims = [[_as_int64(name, d, values) for d in inputs[place].shape] for place in places]
    found: list[PrimExpr] = rule(body.attrs, dims, lambda i: elements(contents[places[i]]))
    return found


def _as_int64(name: str, dim: PrimExpr, values: dict[PrimVar, PrimExpr]) -> PrimExpr:
    if isinstance(dim, IntImm):
        return ops.const(int(dim), "int64")
    if isinstance(dim, AnyDim):
        raise UnsupportedError(
            f"the shape of the result of {name} depends on data, or is not known over the arguments' shapes"
        )
    narrow = {var: ops.cast(var.dtype, value) for var, value in values.items()}
    free = [e for e in variables_of(dim) if e not in values]
    if free:
        raise UnsupportedError(f"the shape of the result of {name} depends on {free[0]}, which no argument's shape has")
    return ops.cast("int64", substitute_dims(dim, narrow))


def variables_of(expr: PrimExpr) -> list[PrimVar]:
    """Return the variables in an expression."""
    found: list[PrimVar] = []
    post_order_visit(expr, lambda e: found.append(e) if isinstance(e, PrimVar) else None)
    return found


def _vector(dims: Sequence[PrimExpr], name: str) -> te.Tensor:
    def at(i: PrimExpr) -> PrimExpr:
        result = dims[-1] if dims else ops.const(0, "int64")
        for k in range(len(dims) - 2, -1, -1):
            result = tir.Select(ops.equal(i, k), dims[k], result)
        return result

    return te.compute((len(dims),), at, name=name)


def _scalar(value: PrimExpr, name: str) -> te.Tensor:
    return te.compute((), lambda *_: value, name=name)


def _product(dims: Sequence[PrimExpr], item: int) -> PrimExpr:
    return math.prod(dims, start=ops.const(item, "int64"))


class _Loads(ExprVisitor):
    """Collect unconditional loads: a guarded load may be out of bounds where its guard is false."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[ProducerLoad] = []

    def visit_expr(self, expr: PrimExpr) -> Any:
        if isinstance(expr, ProducerLoad):
            self.found.append(expr)
        if not (isinstance(expr, tir.Call) and getattr(expr.op, "name", expr.op) == "tir.if_then_else"):
            super().visit_expr(expr)


def _loads(op: te.ComputeOp) -> list[ProducerLoad]:
    collector = _Loads()
    for body in op.body:
        collector.visit_expr(body)
    return collector.found


def _loop_bounds(outputs: Sequence[te.Tensor]) -> list[PrimExpr]:
    """Return conditions that loops over one tensor's dimension end within the dimensions of other tensors they
    index.
    """
    found: dict[PrimExpr, None] = {}
    for tensor in walk.post_order(outputs, lambda tensor: tensor.op.input_tensors):
        if not isinstance(tensor.op, te.ComputeOp):
            continue
        extents = {v.var: v.dom.extent for v in (*tensor.op.axis, *tensor.op.reduce_axis) if v.dom}
        for load in _loads(tensor.op):
            for index, dim in zip(load.indices, load.producer.shape, strict=True):
                extent = extents.get(index) if isinstance(index, PrimVar) else None
                known = isinstance(extent, IntImm) and isinstance(dim, IntImm)
                if extent is not None and not known and ops.as_expr(dim) is not extent:
                    found[extent <= dim] = None
    return list(found)


def _condition(item: Condition) -> PrimExpr:
    if isinstance(item, AtLeast):
        return item.dim >= item.least
    a, b = ops.as_expr(item.a), ops.as_expr(item.b)
    equal = ops.equal(a, b)
    return ops.logical_or(equal, ops.logical_or(ops.equal(a, 1), ops.equal(b, 1))) if item.or_one else equal


def _checked(
    func: PrimFunc, name: str, checks: Mapping[PrimExpr, str], dims: Mapping[PrimVar, tuple[int, int]]
) -> PrimFunc:
    """Return ``func`` with checks, each with its error, before its body.

    ``dims`` has the parameter and the position of each variable.
    """
    buffers = [func.buffer_map[p] for p in func.params]
    loads = {
        var: ops.cast(var.dtype, Load("int64", buffers[at].data, ops.as_expr(axis))) for var, (at, axis) in dims.items()
    }
    body = func.body
    for check, why in reversed(list(checks.items())):
        if isinstance(check, IntImm):
            continue
        text = f"{name}: {why}: {check} does not hold of them"
        body = AssertStmt(substitute_dims(check, loads), text, body)
    return func.replace(body=body)
