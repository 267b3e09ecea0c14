"""Reductions, normalizations and softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.tflite.context import OperatorContext
from tilewright.relay.frontend.tflite.elementwise import same_scale
from tilewright.relay.frontend.tflite.registry import ANY, converter


def _reduction(name: str, build: Callable[..., RelayExpr], chooses: bool = False) -> None:
    """Register a reduction; one that ``chooses`` an element reads integers as they are."""

    @converter(name, form=ANY)
    def convert(ctx: OperatorContext) -> RelayExpr:
        keeps = bool(ctx.option("keep_dims", False))
        rank = ctx.rank(ctx.raw(0))
        axes = sorted({ctx.axis(a, rank) for a in ctx.ints(1, "its axes")})
        raw = chooses and same_scale(ctx.tensor(0), ctx.out())
        data = ctx.raw(0) if raw else ctx.real(0)
        # What loses dimensions of an image is no image: the order of what is left has to be the file's.
        left = [a for a in range(rank) if a not in axes]
        if axes:
            data = build(data, axis=axes, keepdims=keeps)
        if ctx.first and not keeps and rank == 4 and left != sorted(left, key=(0, 3, 1, 2).__getitem__):
            order = sorted(range(len(left)), key=lambda i: (0, 3, 1, 2)[left[i]])
            data = relay_op.transpose(data, axes=order)
        return data if raw else ctx.result(data)


def _mean(data: RelayExpr, axis: list[int], keepdims: bool) -> RelayExpr:
    type_ = data.checked_type
    if dt.is_float(type_.dtype):  # type: ignore[attr-defined]
        return relay_op.mean(data, axis=axis, keepdims=keepdims)
    count = int(np.prod([type_.concrete_shape[a] for a in axis]))  # type: ignore[attr-defined]
    return relay_op.divide(relay_op.sum(data, axis=axis, keepdims=keepdims), const(count, type_.dtype))  # type: ignore[attr-defined]


_reduction("MEAN", _mean)
_reduction("SUM", relay_op.sum)
_reduction("REDUCE_PROD", relay_op.prod)
_reduction("REDUCE_MAX", relay_op.max, chooses=True)
_reduction("REDUCE_MIN", relay_op.min, chooses=True)
_reduction("REDUCE_ANY", relay_op.any)
_reduction("REDUCE_ALL", relay_op.all)


@converter("SOFTMAX")
def convert_softmax(ctx: OperatorContext) -> RelayExpr:
    """Shares of exponentials along the last axis, of numbers times ``beta``."""
    beta = float(ctx.option("beta", 1.0))
    data = ctx.real(0)
    return ctx.result(relay_op.nn.softmax(data if beta == 1.0 else relay_op.multiply(data, const(beta)), axis=-1))


@converter("LOG_SOFTMAX")
def convert_log_softmax(ctx: OperatorContext) -> RelayExpr:
    """Logarithms of the shares of exponentials along the last axis."""
    return ctx.result(relay_op.nn.log_softmax(ctx.real(0), axis=-1))


@converter("L2_NORMALIZATION")
def convert_l2_normalization(ctx: OperatorContext) -> RelayExpr:
    """Numbers over the root of the sum of their squares along the last axis."""
    data = ctx.real(0)
    squares = relay_op.sum(relay_op.multiply(data, data), axis=[-1], keepdims=True)
    root = relay_op.maximum(relay_op.sqrt(squares), const(np.float32(1e-6)))
    return ctx.finished(relay_op.divide(data, root))


def _arg(name: str, build: Callable[..., RelayExpr]) -> None:
    @converter(name)
    def convert(ctx: OperatorContext) -> RelayExpr:
        (axis,) = ctx.ints(1, "its axis")
        found = build(ctx.raw(0), axis=[ctx.axis(axis, ctx.rank(ctx.raw(0)))])
        return relay_op.cast(found, ctx.dtype_option("output_type", 4))


_arg("ARG_MAX", relay_op.argmax)
_arg("ARG_MIN", relay_op.argmin)


@converter("CUMSUM")
def convert_cumsum(ctx: OperatorContext) -> RelayExpr:
    """Sums of all elements up to each one along an axis; ``reverse`` from the end."""
    (axis,) = ctx.ints(1, "its axis")
    data = ctx.real(0)
    place = ctx.axis(axis, ctx.rank(data))
    backwards = bool(ctx.option("reverse", False))
    if backwards:
        data = relay_op.reverse(data, place)
    data = relay_op.cumsum(data, axis=place, exclusive=bool(ctx.option("exclusive", False)))
    return ctx.result(relay_op.reverse(data, place) if backwards else data)
