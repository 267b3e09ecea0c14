"""Operators whose result's shape depends on values: ``reshape(x, newshape)`` with a shape that the program computes.

Each stands beside an operator that has the values as attributes, and becomes it (``DynamicToStatic``) once they are
known. Until then the result has unknown dimensions. A ``DynDef`` states which arguments are values, the attributes that
they become, the result's shape over the arguments' shapes and values (``shape``), and ``compute``, in which the
result's dimensions are variables.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright import te, tir, topi
from tilewright.ir import prim_ops as ops
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError, UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import IntImm, PrimExpr
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.gradients import no_gradient, reshaped_gradient
from tilewright.relay.op.nn.pad import PadAttrs
from tilewright.relay.op.tensor.creation import InitOpAttrs
from tilewright.relay.op.tensor.unary import cast
from tilewright.relay.op.transform.axes import ExpandDimsAttrs, SqueezeAttrs
from tilewright.relay.op.transform.indexing import OneHotAttrs
from tilewright.relay.op.transform.replicate import BroadcastTo, TileAttrs
from tilewright.relay.op.transform.reshape import ReshapeAttrs
from tilewright.relay.op.transform.slicing import StridedSliceAttrs
from tilewright.relay.op.transform.sorting import TopkAttrs
from tilewright.relay.op.transform.sparse import SparseToDenseAttrs
from tilewright.relay.type_infer.dimensions import note_equal
from tilewright.topi.utils import get_const_tuple

Array = np.ndarray[Any, Any]
Dims = Sequence[Sequence[PrimExpr]]
Values = Callable[[int], list[PrimExpr]]


class DynDef(OpDef):
    """Base of the operators whose shapes depend on values."""

    pattern = OpPattern.OPAQUE
    static: ClassVar[str] = ""
    values: ClassVar[tuple[int, ...]] = ()

    @staticmethod
    def fields(attrs: Attrs, values: Sequence[Array]) -> dict[str, Any]:
        """The attributes that the values become."""
        raise TypeError("a declaration defines fields")

    @classmethod
    def static_attrs(cls, attrs: Attrs, values: Sequence[Array]) -> Any:
        """Return the attributes of the static operator."""
        return attrs.replace(**cls.fields(attrs, values))

    @classmethod
    def to_static(cls, call: Call) -> RelayExpr | None:
        """Return the call of the static operator, or None while a value is unknown."""
        values = [call.args[i] for i in cls.values]
        if not all(isinstance(v, Constant) for v in values):
            return None
        attrs = cls.static_attrs(call.attrs, [v.data.numpy() for v in values])  # type: ignore[attr-defined,arg-type]
        rest = [arg for i, arg in enumerate(call.args) if i not in cls.values]
        return Call(Op.get(cls.static), rest, attrs, span=call.span)


def ints_of(value: Array) -> tuple[int, ...]:
    """Return the values of a constant vector or scalar."""
    return tuple(int(v) for v in np.asarray(value).reshape(-1))


def _count(type_: Type, name: str, what: str) -> int:
    """Return the number of values of a vector."""
    found = relations.tensor(type_, what)
    assert found is not None
    count = relations.known(found.shape[0]) if len(found.shape) == 1 else 1
    if count is None:
        raise TypeInferenceError(f"{name}: how many values {what} has must be known, for the result's rank")
    return count


def _dims(attrs: ReshapeAttrs | InitOpAttrs, type_: Type, name: str, what: str) -> list[PrimExpr]:
    """Return the result's dimensions: those in the attributes, or as many unknown ones as there are values."""
    count = _count(type_, name, what)
    known = attrs.newshape if isinstance(attrs, ReshapeAttrs) else attrs.shape
    return [ops.as_expr(d) for d in known] if len(known) == count else _unknown(count)


def _unknown(rank: int) -> list[PrimExpr]:
    return [AnyDim() for _ in range(rank)]


def declare_dyn(
    name: str, static: str, inputs: tuple[str, ...], values: tuple[int, ...], attrs: type[Attrs], **members: Any
) -> type[DynDef]:
    """Declare an operator by its parts."""

    def evaluate(found: Attrs, arrays: Sequence[Array]) -> list[Array]:
        fixed = made.static_attrs(found, [arrays[i] for i in values])
        rest = [a for i, a in enumerate(arrays) if i not in values]
        result: list[Array] = Op.get(static).get_attr("FEvaluate")(fixed, rest)
        return result

    infer = members.pop("infer")

    def infer_type(types: Sequence[Type], found: Attrs, solver: TypeSolver) -> Type | None:
        known = relations.tensors(types, inputs)
        return infer(known, found)

    body = {k: staticmethod(v) for k, v in members.items()}
    if Op.get(static).has_attr("FEvaluate"):
        body["evaluate"] = staticmethod(evaluate)
    doc = {"__doc__": f"``{static}`` with values that the program computes.", "__module__": __name__}
    own = {
        "name": name,
        "static": static,
        "moves": bool(Op.get(static).get_attr("TMovesData")),
        "inputs": inputs,
        "values": values,
        "attrs_type": attrs,
    }
    made: Any = type(name.replace(".", "_"), (DynDef,), {**doc, **own, "infer_type": staticmethod(infer_type), **body})
    if "shape" in members:
        made.op.set_attr("FShapeFunction", members["shape"])
        made.op.set_attr("ShapeValues", values)
    found: type[DynDef] = made
    return found


def _i64(value: Any) -> PrimExpr:
    return ops.cast("int64", ops.as_expr(value))


def _product(dims: Sequence[PrimExpr]) -> PrimExpr:
    result = ops.const(1, "int64")
    for dim in dims:
        result = result * dim
    return result


# ---- shapes ----


def _reshaped(attrs: ReshapeAttrs, dims: Dims, values: Values) -> list[PrimExpr]:
    """Return the new shape: 0 copies a dimension, -1 is inferred, -3 joins two; other negative numbers have no
    meaning, and the allocation of such a shape fails.
    """
    wanted, data = values(1), dims[0]
    kept: Sequence[PrimExpr] = wanted if attrs.allowzero else _copied(wanted, data)
    known = _product([tir.Select(ops.equal(v, -1), ops.const(1, "int64"), v) for v in kept])
    rest = ops.floordiv(_product(data), _at_least(known, 1))
    return _if_fits([tir.Select(ops.equal(v, -1), rest, v) for v in kept], _product(data))


def _copied(wanted: Sequence[PrimExpr], data: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Replace 0 by the dimension that stands there, and -3 by the product of it and the next."""
    result: list[PrimExpr] = []
    places: PrimExpr = ops.const(0, "int64")  # one more for each join before
    for i, value in enumerate(wanted):
        here = joined = value
        for joins in range(min(i, len(data) - 1 - i) if i < len(data) else -1, -1, -1):
            at, own = ops.equal(places, joins), data[i + joins]
            here = tir.Select(at, own, here)
            if i + joins + 1 < len(data):
                joined = tir.Select(at, own * data[i + joins + 1], joined)
        join = ops.equal(value, -3)
        result.append(tir.Select(ops.equal(value, 0), here, tir.Select(join, joined, value)))
        places = places + tir.Select(join, ops.const(1, "int64"), ops.const(0, "int64"))
    return result


def _if_fits(shape: list[PrimExpr], element_count: PrimExpr) -> list[PrimExpr]:
    """Return the shape if it has as many elements, else a shape of -1, whose allocation fails."""
    bad = ops.const(-1, "int64")
    fits = ops.equal(_product(shape), element_count)
    return [tir.Select(fits, dim, bad) for dim in shape] if shape else shape


def _at_least(a: PrimExpr, b: int) -> PrimExpr:
    """Return the greater of two numbers, in int64."""
    return ops.maximum(a, ops.const(b, "int64"))


def _same_elements(inputs: Sequence[te.Tensor], out_type: TensorType) -> list[te.Tensor]:
    return [topi.reshape(inputs[0], out_type.shape)]


declare_dyn(
    "dyn.reshape", "reshape", ("data", "newshape"), (1,), ReshapeAttrs,
    fields=lambda attrs, values: {"newshape": ints_of(values[0])},
    infer=lambda types, attrs: TensorType(_dims(attrs, types[1], "dyn.reshape", "newshape"), types[0].dtype),
    shape=_reshaped,
    compute=lambda attrs, inputs, out_type: _same_elements(inputs, out_type),
    gradient=reshaped_gradient,
)  # fmt: skip


def _expanded(attrs: ExpandDimsAttrs, dims: Dims, values: Values) -> list[PrimExpr]:
    """Return the dimensions with 1s before an axis, which counts from behind where it is negative; one out of range
    gives a shape of -1, whose allocation fails.
    """
    data, count, one = dims[0], attrs.num_newaxis, ops.const(1, "int64")
    rank = len(data)
    axis = tir.Select(values(1)[0] < 0, values(1)[0] + (rank + 1), values(1)[0])
    inside = ops.logical_and(axis >= 0, axis <= rank)
    result: list[PrimExpr] = []
    for place in range(rank + count):
        kept = data[place] if place < rank else one
        moved = data[place - count] if place >= count else one
        here = tir.Select(place < axis, kept, tir.Select(axis + count > place, one, moved))
        result.append(tir.Select(inside, here, ops.const(-1, "int64")))
    return result


declare_dyn(
    "dyn.expand_dims", "expand_dims", ("data", "axis"), (1,), ExpandDimsAttrs,
    fields=lambda attrs, values: {"axis": ints_of(values[0].reshape(-1))[0]},
    infer=lambda types, attrs: TensorType(_unknown(len(types[0].shape) + attrs.num_newaxis), types[0].dtype),
    shape=_expanded,
    compute=lambda attrs, inputs, out_type: _same_elements(inputs, out_type),
    gradient=reshaped_gradient,
)  # fmt: skip


def _squeezed(attrs: SqueezeAttrs, dims: Dims, values: Values) -> list[PrimExpr]:
    """Return the dimensions that no axis names, in order; those dropped must have extent 1."""
    axes, data = values(1), dims[0]
    zero, one = ops.const(0, "int64"), ops.const(1, "int64")
    result = [zero] * (len(data) - len(axes))
    place: PrimExpr = zero
    for number, dim in enumerate(data):
        named: PrimExpr = ops.const(False, "bool")
        for axis in axes:
            named = ops.logical_or(named, ops.equal(tir.Select(axis < 0, axis + len(data), axis), number))
        here = [ops.logical_and(ops.logical_not(named), ops.equal(place, k)) for k in range(len(result))]
        result = [tir.Select(at, dim, found) for at, found in zip(here, result, strict=True)]
        place = place + tir.Select(named, zero, one)
    return _if_fits(result, _product(data))


declare_dyn(
    "dyn.squeeze", "squeeze", ("data", "axis"), (1,), SqueezeAttrs,
    fields=lambda attrs, values: {"axis": ints_of(values[0])},
    infer=lambda types, attrs: TensorType(
        _unknown(len(types[0].shape) - _count(types[1], "dyn.squeeze", "axis")), types[0].dtype
    ),
    shape=_squeezed,
    compute=lambda attrs, inputs, out_type: _same_elements(inputs, out_type),
    gradient=reshaped_gradient,
)  # fmt: skip


def _of_shape(place: int) -> dict[str, Any]:
    """Return the shape rule of an operator whose result's shape is one of its arguments."""
    return {
        "fields": lambda attrs, values: {"shape": ints_of(values[0])},
        "shape": lambda attrs, dims, values: values(place),
    }


def _filled(value: Any, out_type: TensorType) -> list[te.Tensor]:
    return [te.compute(out_type.shape, lambda *_: ops.cast(out_type.dtype, value), name="T_full")]


def _broadcast(attrs: InitOpAttrs, dims: Dims, values: Values) -> list[PrimExpr]:
    wanted, data = values(1), list(dims[0])
    fits: PrimExpr = ops.const(len(data) <= len(wanted), "bool")
    for dim, to in zip(reversed(data), reversed(wanted), strict=False):
        fits = ops.logical_and(fits, ops.logical_or(ops.equal(dim, to), ops.equal(dim, 1)))
    return [tir.Select(fits, dim, ops.const(-1, "int64")) for dim in wanted]


declare_dyn(
    "dyn.broadcast_to", "broadcast_to", ("data", "shape"), (1,), InitOpAttrs, **{**_of_shape(1), "shape": _broadcast},
    infer=lambda types, attrs: TensorType(_dims(attrs, types[1], "dyn.broadcast_to", "shape"), types[0].dtype),
    compute=lambda attrs, inputs, out_type: [topi.broadcast_to(inputs[0], out_type.shape)],
    gradient=BroadcastTo.gradient,
)  # fmt: skip
for _name, _number in (("zeros", 0), ("ones", 1)):
    declare_dyn(
        f"dyn.{_name}", _name, ("shape",), (0,), InitOpAttrs, **_of_shape(0), gradient=no_gradient,
        infer=lambda types, attrs: TensorType(_dims(attrs, types[0], "a tensor", "shape"), attrs.dtype),
        compute=lambda attrs, inputs, out_type, _number=_number: _filled(ops.const(_number, out_type.dtype), out_type),
    )  # fmt: skip
declare_dyn(
    "dyn.full", "full", ("fill_value", "shape"), (1,), InitOpAttrs, **_of_shape(1),
    infer=lambda types, attrs: TensorType(
        _dims(attrs, types[1], "dyn.full", "shape"), attrs.dtype or types[0].dtype
    ),
    compute=lambda attrs, inputs, out_type: _filled(inputs[0](), out_type),
)  # fmt: skip


def _tiled(attrs: TileAttrs, dims: Dims, values: Values) -> list[PrimExpr]:
    reps, data = [_i64(r) for r in values(1)], list(dims[0])
    rank = max(len(reps), len(data))
    one = [ops.const(1, "int64")]
    data, reps = one * (rank - len(data)) + data, one * (rank - len(reps)) + reps
    return [d * r for d, r in zip(data, reps, strict=True)]


def _tile(attrs: TileAttrs, inputs: Sequence[te.Tensor], out_type: TensorType) -> list[te.Tensor]:
    data = inputs[0]

    def at(*i: PrimExpr) -> PrimExpr:
        own = i[len(i) - data.ndim :]
        return data(*[ops.floormod(k, d) for k, d in zip(own, data.shape, strict=True)])

    return [te.compute(out_type.shape, at, name="T_tile")]


declare_dyn(
    "dyn.tile", "tile", ("data", "reps"), (1,), TileAttrs,
    fields=lambda attrs, values: {"reps": ints_of(values[0])},
    infer=lambda types, attrs: TensorType(
        _unknown(max(len(types[0].shape), _count(types[1], "dyn.tile", "reps"))), types[0].dtype
    ),
    shape=_tiled, compute=_tile,
)  # fmt: skip


class Iota(OpDef):
    """0, 1, ... in int64, as many as a scalar says; none where that is negative."""

    name = "dyn.iota"
    inputs = ("count",)
    pattern = OpPattern.OPAQUE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: InitOpAttrs, solver: TypeSolver) -> Type | None:
        """A vector of unknown extent."""
        relations.tensor(types[0])
        return TensorType([AnyDim()], "int64")

    @staticmethod
    def compute(attrs: InitOpAttrs, inputs: Sequence[te.Tensor], out_type: TensorType) -> list[te.Tensor]:
        return [te.compute(out_type.shape, lambda i: _i64(i), name="T_iota")]

    @staticmethod
    def evaluate(attrs: InitOpAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.arange(int(inputs[0].reshape(())), dtype="int64")]


Iota.op.set_attr("FShapeFunction", lambda attrs, dims, values: [_at_least(values(0)[0], 0)])
Iota.op.set_attr("ShapeValues", (0,))


def iota(count: RelayExpr) -> Call:
    """Return 0, 1, ... ``count`` - 1 in int64; ``count`` is a scalar of int64."""
    return Call(Op.get("dyn.iota"), [count])


def range_of(start: RelayExpr, stop: RelayExpr, step: RelayExpr, dtype: str) -> RelayExpr:
    """Return start, start + step, ... below stop; the bounds are computed scalars of ``dtype``."""
    if dtype.startswith("float"):
        count = cast(call("ceil", [call("divide", [call("subtract", [stop, start]), step])]), "int64")
    else:  # the distance of two numbers of 32 bits may take 33
        back = call("subtract", [cast(start, "int64"), cast(stop, "int64")])
        count = call("negative", [call("floor_divide", [back, cast(step, "int64")])])
    return call("add", [call("multiply", [cast(iota(count), dtype), step]), start])


class WithDims(OpDef):
    """A tensor with more of its dimensions known: ``shape`` has expressions over named dimensions."""

    name = "dyn.with_dims"
    inputs = ("data",)
    attrs_type = InitOpAttrs
    pattern = OpPattern.INJECTIVE
    reshapes = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: InitOpAttrs, solver: TypeSolver) -> Type | None:
        """The dimensions of ``data``; where these are unknown, those of the attributes."""
        data = relations.tensor(types[0])
        return TensorType(
            [_refined(d, ops.as_expr(t)) for d, t in zip(data.shape, attrs.shape, strict=True)], data.dtype
        )

    @staticmethod
    def compute(attrs: InitOpAttrs, inputs: Sequence[te.Tensor], out_type: TensorType) -> list[te.Tensor]:
        """Copy the data. A dimension that stays unknown is the data's, about which the kernel may know more."""
        data = inputs[0]
        dims = [own if isinstance(d, AnyDim) else d for own, d in zip(data.shape, out_type.shape, strict=True)]
        return [topi.reshape(data, dims)]

    @staticmethod
    def evaluate(attrs: InitOpAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0]]


def _refined(dim: PrimExpr, other: PrimExpr) -> PrimExpr:
    if isinstance(dim, AnyDim):
        return other
    if isinstance(dim, IntImm) or isinstance(other, AnyDim):
        return dim
    note_equal(dim, other)
    return other


def with_dims(data: RelayExpr, dims: Sequence[Any]) -> Call:
    """Return ``data`` with the dimensions ``dims``: numbers, expressions over named dimensions, or ``Any``."""
    return Call(Op.get("dyn.with_dims"), [data], InitOpAttrs(tuple(dims)))


class AnyDims(OpDef):
    """A tensor whose dimensions become unknown where ``shape`` has ``Any``: branches and iterations may differ
    there.
    """

    name = "dyn.any_dims"
    inputs = ("data",)
    attrs_type = InitOpAttrs
    pattern = OpPattern.OPAQUE
    reshapes = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: InitOpAttrs, solver: TypeSolver) -> Type | None:
        """The dimensions of ``data``, ``Any`` where the attributes say so."""
        data = relations.tensor(types[0])
        dims = [new if isinstance(new, AnyDim) else d for d, new in zip(data.shape, attrs.shape, strict=True)]
        return TensorType(dims, data.dtype)

    @staticmethod
    def compute(attrs: InitOpAttrs, inputs: Sequence[te.Tensor], out_type: TensorType) -> list[te.Tensor]:
        return [topi.identity(inputs[0])]

    @staticmethod
    def evaluate(attrs: InitOpAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [inputs[0]]


def any_dims(data: RelayExpr, dims: Sequence[Any]) -> Call:
    """Return ``data`` with its dimensions unknown where ``dims`` has ``Any``."""
    return Call(Op.get("dyn.any_dims"), [data], InitOpAttrs(tuple(dims)))


# ---- slices and borders ----


def _bounds(begin: Any, end: Any, stride: Any, dim: Any, by_size: bool) -> tuple[PrimExpr, PrimExpr]:
    """Return where a slice begins and how many elements it has, as numpy's, with negative indices and strides."""
    zero = ops.const(0, "int64")
    first: PrimExpr = tir.Select(begin < 0, begin + dim, begin)
    if by_size:
        first = ops.minimum(ops.maximum(first, zero), dim)
        return first, ops.minimum(tir.Select(end < 0, dim - first, end), dim - first)
    last: PrimExpr = tir.Select(end < 0, end + dim, end)
    back = stride < 0
    low, high = tir.Select(back, ops.const(-1, "int64"), zero), tir.Select(back, dim - 1, dim)
    first = ops.minimum(ops.maximum(first, low), high)
    last = tir.Select(ops.logical_and(back, end < -dim), ops.const(-1, "int64"), last)
    last = ops.minimum(ops.maximum(last, low), high)
    span = tir.Select(back, first - last, last - first)
    step = ops.maximum(tir.Select(back, -stride, stride), ops.const(1, "int64"))
    return first, ops.maximum(ops.floordiv(span + step - 1, step), zero)


def _slice_of(
    attrs: StridedSliceAttrs, axis: int, rank: int, at: Values, dims: Sequence[PrimExpr]
) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """Return begin, length and stride of the slice of one dimension."""
    axes = list(range(rank)) if attrs.axes is None else [a % rank for a in attrs.axes]
    one, zero = ops.const(1, "int64"), ops.const(0, "int64")
    begin, end, strides = at(1), at(2), at(3)
    place = axes.index(axis) if axis in axes else -1
    if not 0 <= place < len(end):
        return zero, dims[axis], one
    stride = (
        strides[place] if place < len(strides) else one if attrs.slice_mode == "size" or not strides else strides[-1]
    )
    stride = one if attrs.slice_mode == "size" else stride
    first = begin[place] if place < len(begin) else zero
    return (*_bounds(first, end[place], stride, dims[axis], attrs.slice_mode == "size"), stride)


def _slice_shape(attrs: StridedSliceAttrs, shape: Sequence[PrimExpr], end: TensorType) -> list[PrimExpr]:
    """Return unknown dimensions for the axes that are cut, and those of the data for the others."""
    count = relations.known(end.shape[0]) if len(end.shape) == 1 else None
    axes = range(len(shape)) if attrs.axes is None else [a % len(shape) for a in attrs.axes]
    cut = set(axes[:count])
    return [AnyDim() if k in cut else dim for k, dim in enumerate(shape)]


def _sliced(attrs: StridedSliceAttrs, dims: Dims, values: Values) -> list[PrimExpr]:
    return [_slice_of(attrs, k, len(dims[0]), values, dims[0])[1] for k in range(len(dims[0]))]


def elements(tensor: te.Tensor) -> list[PrimExpr]:
    """Return the elements of a tensor of known shape; integers in int64."""
    places = itertools.product(*(range(int(d)) for d in get_const_tuple(tensor.shape)))
    found = [tensor(*(ops.const(k, "int32") for k in place)) for place in places]
    return found if tensor.dtype.startswith("float") else [_i64(element) for element in found]


def _strided_slice(attrs: StridedSliceAttrs, inputs: Sequence[te.Tensor], out_type: TensorType) -> list[te.Tensor]:
    data = inputs[0]
    dims = [_i64(d) for d in data.shape]

    def at(*i: PrimExpr) -> PrimExpr:
        found = []
        for k, index in enumerate(i):
            first, _, stride = _slice_of(attrs, k, data.ndim, lambda n: elements(inputs[n]), dims)
            found.append(ops.cast("int32", first + _i64(index) * stride))
        return data(*found)

    return [te.compute(out_type.shape, at, name="T_strided_slice")]


declare_dyn(
    "dyn.strided_slice", "strided_slice", ("data", "begin", "end", "strides"), (1, 2, 3), StridedSliceAttrs,
    fields=lambda attrs, values: dict(zip(("begin", "end", "strides"), map(ints_of, values), strict=True)),
    infer=lambda types, attrs: TensorType(_slice_shape(attrs, types[0].shape, types[2]), types[0].dtype),
    shape=_sliced, compute=_strided_slice,
)  # fmt: skip


def _padded(attrs: PadAttrs, dims: Dims, values: Values) -> list[PrimExpr]:
    widths = values(1)
    return [d + widths[2 * k] + widths[2 * k + 1] for k, d in enumerate(dims[0])]


def _pad(attrs: PadAttrs, inputs: Sequence[te.Tensor], out_type: TensorType) -> list[te.Tensor]:
    if attrs.pad_mode != "constant":
        raise UnsupportedError(f"dyn.nn.pad fills with a constant; the mode {attrs.pad_mode!r} needs known widths")
    data, widths, value = inputs

    def at(*i: PrimExpr) -> PrimExpr:
        source = [index - ops.cast("int32", widths[k, 0]) for k, index in enumerate(i)]
        inside: PrimExpr = ops.const(True, "bool")
        for index, dim in zip(source, data.shape, strict=True):
            inside = ops.logical_and(inside, ops.logical_and(index >= 0, index < dim))
        return tir.if_then_else(inside, data(*source), ops.cast(data.dtype, value()))

    return [te.compute(out_type.shape, at, name="T_pad")]


declare_dyn(
    "dyn.nn.pad", "nn.pad", ("data", "pad_width", "pad_value"), (1,), PadAttrs,
    fields=lambda attrs, values: {"pad_width": tuple((int(a), int(b)) for a, b in values[0].reshape(-1, 2))},
    infer=lambda types, attrs: TensorType(_unknown(len(types[0].shape)), types[0].dtype),
    shape=_padded, compute=_pad,
)  # fmt: skip


# ---- others ----


def _one_hot_type(types: Sequence[TensorType], attrs: OneHotAttrs) -> Type:
    shape = list(types[0].shape)
    shape.insert(attrs.axis if attrs.axis >= 0 else len(shape), AnyDim())
    return TensorType(shape, attrs.dtype)


def _one_hot_shape(attrs: OneHotAttrs, dims: Dims, values: Values) -> list[PrimExpr]:
    shape = list(dims[0])
    shape.insert(attrs.axis if attrs.axis >= 0 else len(shape), values(3)[0])
    return shape


def _one_hot(attrs: OneHotAttrs, inputs: Sequence[te.Tensor], out_type: TensorType) -> list[te.Tensor]:
    indices, on, off, _ = inputs
    axis = attrs.axis if attrs.axis >= 0 else indices.ndim

    def at(*i: PrimExpr) -> PrimExpr:
        rest = [index for k, index in enumerate(i) if k != axis]
        chosen = ops.equal(_i64(indices(*rest)), _i64(i[axis]))
        return tir.Select(chosen, ops.cast(out_type.dtype, on()), ops.cast(out_type.dtype, off()))

    return [te.compute(out_type.shape, at, name="T_one_hot")]


declare_dyn(
    "dyn.one_hot", "one_hot", ("indices", "on_value", "off_value", "depth"), (3,), OneHotAttrs,
    fields=lambda attrs, values: {"depth": ints_of(values[0])[0]}, infer=_one_hot_type,
    shape=_one_hot_shape, compute=_one_hot,
)  # fmt: skip


def _topk_type(types: Sequence[TensorType], attrs: TopkAttrs) -> Type:
    shape = list(types[0].shape)
    shape[attrs.axis] = AnyDim()
    both = TensorType(shape, types[0].dtype), TensorType(shape, attrs.dtype)
    return {"both": TupleType(both), "values": both[0], "indices": both[1]}[attrs.ret_type]


DynTopk = declare_dyn(
    "dyn.topk", "topk", ("data", "k"), (1,), TopkAttrs,
    fields=lambda attrs, values: {"k": ints_of(values[0])[0]}, infer=_topk_type,
)  # fmt: skip


declare_dyn(
    "dyn.sparse_to_dense", "sparse_to_dense",
    ("sparse_indices", "output_shape", "sparse_values", "default_value"), (1,), SparseToDenseAttrs,
    fields=lambda attrs, values: {"output_shape": ints_of(values[0])},
    infer=lambda types, attrs: TensorType(
        _unknown(_count(types[1], "dyn.sparse_to_dense", "output_shape")), types[2].dtype
    ),
    shape=lambda attrs, dims, values: values(1),
    compute=lambda attrs, inputs, out_type: [
        topi.sparse_to_dense(inputs[0], out_type.shape, inputs[2], inputs[3])
    ],
)  # fmt: skip
