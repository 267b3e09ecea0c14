"""Reductions over axes: sum, mean, max, min, prod, all, any, variance."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call, TupleWrapper
from tilewright.relay.expr import Tuple as TupleExpr
from tilewright.relay.op import layout_rules, relations
from tilewright.relay.op.attributes import Axes, axes, call
from tilewright.relay.op.builder import builder, exported, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver, declare
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, collapsed, no_gradient, number, require_shape, spread, tensor_type


class ReduceAttrs(Attrs):
    """The reduced axes (None: all), whether they are kept with extent 1, and whether ``axis`` lists the others
    instead.
    """

    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False
    exclude: bool = False


class VarianceAttrs(ReduceAttrs):
    """As ReduceAttrs; ``unbiased`` divides by n - 1."""

    unbiased: bool = False


def reduced_shape(data: TensorType, attrs: ReduceAttrs | ArgReduceAttrs) -> tuple[PrimExpr, ...]:
    """Return the shape of the reduced tensor."""
    gone = relations.normalize_axes(attrs.axis, len(data.shape), attrs.exclude)
    if attrs.keepdims:
        return tuple(as_expr(1) if i in gone else d for i, d in enumerate(data.shape))
    return tuple(d for i, d in enumerate(data.shape) if i not in gone)


class ArgReduceAttrs(Attrs):
    """As ReduceAttrs; ``select_last_index`` takes the last of equal extremes."""

    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False
    select_last_index: bool = False
    exclude: bool = False


def reduce_axes(attrs: ReduceAttrs | ArgReduceAttrs, rank: int) -> tuple[int, ...]:
    """Return the reduced axes, sorted, counted from the front."""
    return relations.normalize_axes(attrs.axis, rank, attrs.exclude)


def _reduce_type(types: Sequence[Type], attrs: ReduceAttrs, solver: TypeSolver) -> Type | None:
    data = relations.tensor(types[0])
    return TensorType(reduced_shape(data, attrs), data.dtype)


def _reduction(
    name: str, doc: str, compute: Callable[..., Any], evaluate: Callable[..., Any], **traits: Any
) -> type[OpDef[Any]]:
    def run(attrs: ReduceAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        found = reduce_axes(attrs, len(inputs[0].shape))
        return [compute(inputs[0], found, attrs.keepdims) if found else topi.identity(inputs[0])]

    def meaning(attrs: ReduceAttrs, inputs: Sequence[Array]) -> list[Array]:
        data = inputs[0]
        found = reduce_axes(attrs, data.ndim)
        if not found:
            return [data.copy()]
        return [np.asarray(evaluate(data, axis=found, keepdims=bool(attrs.keepdims))).astype(data.dtype, copy=False)]

    return declare(
        name,
        doc,
        inputs=("data",),
        attrs_type=ReduceAttrs,
        pattern=OpPattern.COMM_REDUCE,
        **traits,
        infer_type=_reduce_type,
        compute=run,
        evaluate=meaning,
        infer_correct_layout=layout_rules.reduction,
    )


def _mean(data: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    count = int(np.prod([data.shape[a] for a in axis]))
    if data.dtype.kind in "iu":  # the kernel divides the integer sum
        total = np.sum(data, axis=axis, keepdims=keepdims, dtype=np.int64)
        return np.asarray(np.trunc(total / np.maximum(count, 1)))
    wide = np.dtype(np.float32) if data.dtype.itemsize == 2 else data.dtype
    total = np.sum(data, axis=axis, keepdims=keepdims, dtype=wide)
    return np.asarray(total / wide.type(count))  # of none too, where np.mean warns


def _extreme(function: Callable[..., Array], is_max: bool) -> Callable[..., Array]:
    """Return numpy's maximum or minimum, as kernels compute it: over no elements, the least or greatest value of
    the dtype.
    """

    def evaluate(data: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        return function(data, axis=axis, keepdims=keepdims, initial=_end(data.dtype, least=is_max))

    return evaluate


def _end(dtype: np.dtype[Any], least: bool) -> Any:
    if dtype.kind == "b":
        return not least
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if least else np.iinfo(dtype).max
    return -np.inf if least else np.inf


def _kept(value: RelayExpr, attrs: ReduceAttrs, orig: Call) -> RelayExpr:
    """A value of the reduced shape with the reduced dimensions as 1."""
    for axis in () if attrs.keepdims else _axes_of(attrs, orig):
        value = ops.expand_dims(value, axis)
    return value


def _axes_of(attrs: ReduceAttrs, orig: Call) -> tuple[int, ...]:
    return reduce_axes(attrs, len(tensor_type(orig.args[0]).shape))


def _count(attrs: ReduceAttrs, orig: Call) -> int:
    """How many elements go into one."""
    shape = require_shape(orig.args[0], str(orig.op))
    return math.prod(shape[axis] for axis in _axes_of(attrs, orig))


def _of_sum(attrs: ReduceAttrs, orig: Call, grad: RelayExpr) -> Gradients:
    return [spread(_kept(grad, attrs, orig), orig.args[0])]


def _of_mean(attrs: ReduceAttrs, orig: Call, grad: RelayExpr) -> Gradients:
    x = orig.args[0]
    return [spread(ops.divide(_kept(grad, attrs, orig), number(builtins.max(_count(attrs, orig), 1), x)), x)]


def _of_extreme(attrs: ReduceAttrs, orig: Call, grad: RelayExpr) -> Gradients:
    """Equal shares to all elements that are the greatest, or least."""
    x, axes = orig.args[0], _axes_of(attrs, orig)
    taken = ops.cast(ops.equal(x, _kept(orig, attrs, orig)), tensor_type(x).dtype)
    share = ops.divide(_kept(grad, attrs, orig), sum(taken, axis=axes, keepdims=True) if axes else taken)
    return [ops.multiply(taken, share)]


def _of_product(attrs: ReduceAttrs, orig: Call, grad: RelayExpr) -> Gradients:
    """The product of all others: of those before and of those behind, which zeros do not spoil as a division would."""
    x, axes = orig.args[0], _axes_of(attrs, orig)
    if not axes:
        return [grad]
    shape = require_shape(x, "prod")
    order = [*(i for i in range(len(shape)) if i not in axes), *axes]
    rows = ops.reshape(ops.transpose(x, order), (*(shape[i] for i in order[: -len(axes)]), _count(attrs, orig)))
    before = ops.cumprod(rows, axis=-1, exclusive=True)
    behind = ops.reverse(ops.cumprod(ops.reverse(rows, -1), axis=-1, exclusive=True), -1)
    others = ops.reshape(ops.multiply(before, behind), [shape[i] for i in order])
    return [ops.multiply(_kept(grad, attrs, orig), ops.transpose(others, [order.index(i) for i in range(len(order))]))]


sum = builder(
    _reduction(
        "sum",
        "Sum over ``axis`` (None: all; ``exclude``: all but these).",
        topi.sum,
        np.sum,
        in_float32=True,
        fixed_points=(0,),
        support_level=4,
        gradient=_of_sum,
    )
)
prod = builder(_reduction(
    "prod", "Product over ``axis``.", topi.prod, np.prod, in_float32=True, support_level=4, gradient=_of_product,
))  # fmt: skip
max = builder(_reduction(
    "max", "Maximum over ``axis``.", topi.max, _extreme(np.max, is_max=True), support_level=4, gradient=_of_extreme,
))  # fmt: skip
min = builder(_reduction(
    "min", "Minimum over ``axis``.", topi.min, _extreme(np.min, is_max=False), support_level=4, gradient=_of_extreme,
))  # fmt: skip
all = builder(_reduction(
    "all", "Whether all elements over ``axis`` are true.", topi.all, np.all, support_level=4, gradient=no_gradient,
))  # fmt: skip
any = builder(_reduction(
    "any", "Whether some element over ``axis`` is true.", topi.any, np.any, support_level=4, gradient=no_gradient,
))  # fmt: skip
Mean = _reduction(
    "mean", "Mean over ``axis``.", topi.mean, _mean, in_float32=True, fixed_points=(0, 1), support_level=4,
    gradient=_of_mean,
)  # fmt: skip
mean = builder(Mean)


class Variance(OpDef[VarianceAttrs]):
    """Mean squared distance from ``mean``, which has the reduced shape with the axes kept."""

    name = "variance"
    support_level = 4
    inputs = ("data", "mean")
    pattern = OpPattern.COMM_REDUCE
    in_float32 = True

    infer_type = staticmethod(_reduce_type)

    @staticmethod
    def compute(attrs: VarianceAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        """Sum the squared differences and divide by their number."""
        data, mean = inputs
        found = reduce_axes(attrs, len(data.shape))
        count = relations.dim_mul(*[data.shape[a] for a in found])
        difference = topi.subtract(data, mean)
        total = topi.sum(topi.multiply(difference, difference), found, attrs.keepdims)
        return [topi.divide(total, (count - 1 if attrs.unbiased else count).astype(data.dtype))]

    @staticmethod
    def evaluate(attrs: VarianceAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, mean = inputs
        found = reduce_axes(attrs, data.ndim)
        count = int(np.prod([data.shape[a] for a in found])) - int(attrs.unbiased)
        total = np.sum(np.square(data - mean), axis=found, keepdims=bool(attrs.keepdims))
        return [np.asarray(total / count).astype(data.dtype)]

    @staticmethod
    def gradient(attrs: VarianceAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """Of the mean of (x - m)^2: 2 (x - m) / n, and for m the negative sum of that."""
        x, mean = orig.args
        count = _count(attrs, orig) - int(attrs.unbiased)
        scaled = ops.multiply(_kept(grad, attrs, orig), number(2 / count if count else float("nan"), x))
        by_x = ops.multiply(scaled, ops.subtract(x, mean))
        return [by_x, ops.multiply(collapsed(by_x, x, mean), number(-1, x))]


@exported
def variance(
    data: RelayExpr,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
    with_mean: RelayExpr | None = None,
) -> Call:
    """Return the variance over ``axis``; ``unbiased`` divides by n - 1; ``with_mean`` is the mean with axes kept,
    if known.
    """
    center = mean(data, axis, True, exclude) if with_mean is None else with_mean
    return call("variance", [data, center], VarianceAttrs(axes(axis), bool(keepdims), bool(exclude), bool(unbiased)))


@exported
def std(
    data: RelayExpr, axis: Axes = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False
) -> Call:
    """Return the standard deviation over ``axis``."""
    return ops.sqrt(variance(data, axis, keepdims, exclude, unbiased))


@exported
def mean_variance(
    data: RelayExpr, axis: Axes = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False
) -> TupleWrapper:
    """Return (mean, variance) over ``axis``."""
    kept = mean(data, axis, True, exclude)
    var = variance(data, axis, keepdims, exclude, unbiased, kept)
    return TupleWrapper(TupleExpr((kept if keepdims else mean(data, axis, keepdims, exclude), var)), 2)


@exported
def mean_std(data: RelayExpr, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> TupleWrapper:
    """Return (mean, standard deviation) over ``axis``."""
    kept = mean(data, axis, True, exclude)
    deviation = ops.sqrt(variance(data, axis, keepdims, exclude, False, kept))
    return TupleWrapper(TupleExpr((kept if keepdims else mean(data, axis, keepdims, exclude), deviation)), 2)


@exported
def logsumexp(data: RelayExpr, axis: Axes = None, keepdims: bool = False) -> Call:
    """Return log(sum(exp(data))) over ``axis``, without overflow; an infinite maximum is the result."""

    def finite(largest: RelayExpr) -> RelayExpr:
        return ops.where(ops.isinf(largest), ops.zeros_like(largest), largest)

    largest = max(data, axis, True)
    total = sum(ops.exp(ops.subtract(data, finite(largest))), axis, keepdims)
    return ops.add(finite(largest if keepdims else max(data, axis, keepdims)), ops.log(total))


__all__ = [
    "ReduceAttrs", "VarianceAttrs", "all", "any", "logsumexp", "max", "mean", "mean_std", "mean_variance",
    "min", "prod", "reduce_axes", "reduced_shape", "std", "sum", "variance",
]  # fmt: skip
