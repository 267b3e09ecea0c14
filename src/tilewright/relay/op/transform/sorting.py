"""Sorting and running totals: sort, argsort, topk, cumsum, cumprod."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, TupleGetItem, TupleWrapper
from tilewright.relay.op import relations, value_ranges
from tilewright.relay.op.attributes import call, computed, static_ints
from tilewright.relay.op.builder import Builder, builder, exported, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver, declare
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, no_gradient, reshaped, tensor_type, zeros_of
from tilewright.relay.op.relations import known
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.op.value_ranges import Range, positions
from tilewright.relay.type_infer.dimensions import note_at_least
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.target.generic_func import GenericFunc


class ArgsortAttrs(Attrs):
    """The dimension, the direction, and the dtype of indices."""

    axis: int = -1
    is_ascend: bool = True
    dtype: str = "int32"


class TopkAttrs(Attrs):
    """Number of elements, the dimension, the results (both, values, indices), and the order."""

    k: int | None = 1
    axis: int = -1
    ret_type: str = "both"
    is_ascend: bool = False
    dtype: str = "int32"


class ScanopAttrs(Attrs):
    """The dimension (None: flattened), the dtype of the sum, and whether each sum excludes its own element."""

    axis: int | None = None
    dtype: str = ""
    exclusive: bool = False


def sorted_indices(data: Array, axis: int, ascending: bool) -> Array:
    """Return the indices that sort ``data``; equal elements keep their order in both directions."""
    if ascending:
        return np.argsort(data, axis=axis, kind="stable")
    mirrored = np.flip(data, axis)
    order = np.flip(np.argsort(mirrored, axis=axis, kind="stable"), axis)
    return np.asarray(data.shape[axis] - 1 - order)


def _same_shape(types: Sequence[Type], attrs: ArgsortAttrs | TopkAttrs, solver: TypeSolver) -> TensorType | None:
    data = relations.tensor(types[0])
    relations.normalize_axis(attrs.axis, len(data.shape))
    return data


class Sort(OpDef[ArgsortAttrs]):
    """The elements in order along a dimension."""

    name = "sort"
    indirect = True
    support_level = 6
    inputs = ("data",)
    pattern = OpPattern.OPAQUE
    moves = True

    infer_type = staticmethod(_same_shape)
    strategy = strategies.sort_strategy

    @staticmethod
    def evaluate(attrs: ArgsortAttrs, inputs: Sequence[Array]) -> list[Array]:
        order = sorted_indices(inputs[0], attrs.axis, attrs.is_ascend)
        return [np.take_along_axis(inputs[0], order, attrs.axis)]

    @staticmethod
    def gradient(attrs: ArgsortAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        x = orig.args[0]
        order = argsort(x, attrs.axis, attrs.is_ascend)
        return [ops.scatter(zeros_of(x, "sort"), order, grad, attrs.axis)]


sort = builder(Sort, order="data axis is_ascend")


class Argsort(OpDef[ArgsortAttrs]):
    """The indices that sort ``data`` along ``axis``."""

    name = "argsort"
    indirect = True
    support_level = 6
    inputs = ("data",)
    pattern = OpPattern.OPAQUE
    gradient = staticmethod(no_gradient)

    strategy = strategies.argsort_strategy
    value_range = staticmethod(value_ranges.order)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ArgsortAttrs, solver: TypeSolver) -> Type | None:
        data = _same_shape(types, attrs, solver)
        return None if data is None else TensorType(data.shape, attrs.dtype)

    @staticmethod
    def evaluate(attrs: ArgsortAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [sorted_indices(inputs[0], attrs.axis, attrs.is_ascend).astype(numpy_dtype(attrs.dtype))]


argsort = builder(Argsort)


class Topk(OpDef[TopkAttrs]):
    """The k largest (or smallest) elements along a dimension, and their indices."""

    name = "topk"
    indirect = True
    support_level = 6
    inputs = ("data",)
    pattern = OpPattern.OPAQUE

    strategy = strategies.topk_strategy

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: TopkAttrs, solver: TypeSolver) -> Type | None:
        """(values, indices), or one of them."""
        data = _same_shape(types, attrs, solver)
        if data is None:
            return None
        shape = list(data.shape)
        axis = attrs.axis % len(shape)
        if attrs.k is None:
            shape[axis] = AnyDim()
        elif attrs.k >= 1:
            extent = known(shape[axis])
            relations.require(extent is None or attrs.k <= extent, f"k is {attrs.k}, but dimension {axis} is {extent}")
            note_at_least(shape[axis], attrs.k)
            shape[axis] = relations.dim_map(lambda k: k, attrs.k)
        values, indices = TensorType(shape, data.dtype), TensorType(shape, attrs.dtype)
        if attrs.ret_type == "both":
            return TupleType((values, indices))
        relations.require(attrs.ret_type in ("values", "indices"), "ret_type should be both, values or indices")
        return values if attrs.ret_type == "values" else indices

    @staticmethod
    def evaluate(attrs: TopkAttrs, inputs: Sequence[Array]) -> list[Array]:
        data = inputs[0]
        count = data.shape[attrs.axis] if attrs.k is None or attrs.k < 1 else attrs.k
        order = np.take(sorted_indices(data, attrs.axis, attrs.is_ascend), np.arange(count), attrs.axis)
        results = {
            "values": np.take_along_axis(data, order, attrs.axis),
            "indices": order.astype(numpy_dtype(attrs.dtype)),
        }
        return list(results.values()) if attrs.ret_type == "both" else [results[attrs.ret_type]]

    @staticmethod
    def value_range(attrs: Any, ranges: Sequence[Range], types: Sequence[Type]) -> list[Range]:
        """Values of the data, and indices along the axis."""
        results = {"values": ranges[0], "indices": positions(types[0], (attrs.axis,))}
        return list(results.values()) if attrs.ret_type == "both" else [results[attrs.ret_type]]

    @staticmethod
    def gradient(attrs: TopkAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        x = orig.args[0]
        if attrs.ret_type == "indices":
            return [None]
        if attrs.ret_type == "both":
            grad, order = TupleGetItem(grad, 0), TupleGetItem(orig, 1)
        else:
            order = topk(x, attrs.k, attrs.axis, "indices", attrs.is_ascend)
        return [ops.scatter(zeros_of(x, "topk"), order, grad, attrs.axis)]


def _scan_type(types: Sequence[Type], attrs: ScanopAttrs, solver: TypeSolver) -> Type | None:
    data = relations.tensor(types[0])
    dtype = attrs.dtype or ("int32" if data.dtype == "bool" else data.dtype)
    if attrs.axis is None:
        return TensorType((relations.dim_mul(*data.shape),), dtype)
    relations.normalize_axis(attrs.axis, len(data.shape))
    return TensorType(data.shape, dtype)


def _scan(
    name: str, doc: str, strategy: GenericFunc, total: Callable[..., Array], start: int, gradient: Any = None
) -> Builder:
    def evaluate(attrs: ScanopAttrs, inputs: Sequence[Array]) -> list[Array]:
        data = inputs[0]
        dtype = numpy_dtype(attrs.dtype) if attrs.dtype else (np.int32 if data.dtype == bool else data.dtype)
        axis = 0 if attrs.axis is None else attrs.axis % data.ndim
        data = (data.reshape(-1) if attrs.axis is None else data).astype(dtype)
        result = total(data, axis=axis, dtype=dtype)
        if attrs.exclusive:
            first = np.full_like(np.take(result, [0], axis), start)
            result = np.concatenate([first, np.take(result, np.arange(data.shape[axis] - 1), axis)], axis)
        return [result]

    made = declare(
        name,
        doc,
        inputs=("data",),
        attrs_type=ScanopAttrs,
        pattern=OpPattern.OPAQUE,
        in_float32=True,
        fixed_points=(start,),
        infer_type=_scan_type,
        strategy=strategy,
        evaluate=evaluate,
        gradient=gradient,
    )
    return builder(made, module=__name__, dtype=None, exclusive=None)


def _of_cumsum(attrs: ScanopAttrs, orig: Call, grad: RelayExpr) -> Gradients:
    """A running sum from behind."""
    type_, axis = tensor_type(orig.args[0]), attrs.axis or 0
    found: RelayExpr = ops.reverse(
        ops.cumsum(ops.reverse(grad, axis), axis=axis, exclusive=bool(attrs.exclusive)), axis
    )
    found = reshaped(found, orig.args[0]) if attrs.axis is None else found
    return [found if tensor_type(orig).dtype == type_.dtype else ops.cast(found, type_.dtype)]


cumsum = _scan(
    "cumsum",
    "Running sum along ``axis`` (None: of the flattened data); ``exclusive`` leaves the element itself out.",
    strategies.cumsum_strategy,
    np.cumsum,
    0,
    _of_cumsum,
)
cumprod = _scan("cumprod", "Running product along ``axis``, as ``cumsum``.", strategies.cumprod_strategy, np.cumprod, 1)


@exported
def topk(
    data: RelayExpr, k: Any = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int32"
) -> Any:
    """Return the ``k`` largest (``is_ascend``: smallest) elements along ``axis``; k < 1 takes all.

    With ``ret_type`` "both" the result is (values, indices), else one of them.
    """
    rest = int(axis), ret_type, bool(is_ascend), dtype
    if computed(k):
        out = call("dyn.topk", [data, k], TopkAttrs(0, *rest))
    else:
        out = call("topk", [data], TopkAttrs(static_ints(k, "k")[0], *rest))
    return TupleWrapper(out, 2) if ret_type == "both" else out
