"""Reductions, sums along an axis, softmax and losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.tensorflow.context import NodeContext, channels_first_order
from tilewright.relay.frontend.tensorflow.registry import converter


def _axes(ctx: NodeContext, rank: int) -> list[int]:
    return sorted({ctx.axis(a, rank) for a in ctx.ints(1, "the axes")})


def _reduction(name: str, op_type: str) -> None:
    @converter(name)
    def convert(ctx: NodeContext) -> RelayExpr:
        data = ctx.input(0)
        rank, keeps = ctx.rank(data), bool(ctx.attr("keep_dims", False))
        axes = _axes(ctx, rank)
        if not axes:
            return data
        if not ctx.is_image(data):
            return _reduced(ctx, op_type, data, axes, keeps)
        places = [channels_first_order(rank).index(a) for a in axes]
        if keeps:
            return ctx.channels_last(_reduced(ctx, op_type, ctx.channels_first(data), places, True))
        left = [a for a in range(rank) if a not in axes]
        made = [a for a in channels_first_order(rank) if a in left]
        found = _reduced(ctx, op_type, ctx.channels_first(data), places, False)
        return found if made == left else typed(relay_op.transpose(found, axes=[made.index(a) for a in left]))


def _reduced(ctx: NodeContext, op_type: str, data: RelayExpr, axes: Sequence[int], keeps: bool) -> RelayExpr:
    if op_type in ("any", "all"):
        build = relay_op.any if op_type == "any" else relay_op.all
        return typed(build(data, axis=list(axes), keepdims=keeps))
    if op_type == "ReduceMean" and not dt.is_float(ctx.dtype(data)):
        total = ctx.part("ReduceSum", [data, ctx.int64(axes)], keepdims=int(keeps))
        count = int(np.prod([ctx.shape(data)[a] for a in axes]))
        return ctx.part("Div", [total, ctx.like(count, data)])
    name = op_type if op_type != "EuclideanNorm" else "ReduceL2"
    return ctx.part(name, [data, ctx.int64(axes)], keepdims=int(keeps))


for _name, _op_type in {
    "Sum": "ReduceSum", "Mean": "ReduceMean", "Max": "ReduceMax", "Min": "ReduceMin", "Prod": "ReduceProd",
    "Any": "any", "All": "all", "EuclideanNorm": "EuclideanNorm",
}.items():  # fmt: skip
    _reduction(_name, _op_type)


def _arg(name: str) -> None:
    @converter(name)
    def convert(ctx: NodeContext) -> RelayExpr:
        data = ctx.input(0)
        axis = ctx.axis(int(ctx.scalar(1, "the axis")), ctx.rank(data))
        found = ctx.part(name, [data], axis=axis, keepdims=0)
        return ctx.cast(found, ctx.attr("output_type", "int64"))


_arg("ArgMax")
_arg("ArgMin")


@converter("Cumsum", "Cumprod")
def convert_cumsum(ctx: NodeContext) -> RelayExpr:
    """Sums or products of all elements up to each one along an axis; ``reverse`` from the end."""
    data = ctx.input(0)
    axis = ctx.axis(int(ctx.scalar(1, "the axis")), ctx.rank(data))
    build = relay_op.cumsum if ctx.node.op == "Cumsum" else relay_op.cumprod
    turned = bool(ctx.attr("reverse", False))
    if turned:
        data = typed(relay_op.reverse(data, axis))
    data = typed(build(data, axis=axis, exclusive=bool(ctx.attr("exclusive", False))))
    return typed(relay_op.reverse(data, axis)) if turned else data


@converter("Softmax")
def convert_softmax(ctx: NodeContext) -> RelayExpr:
    """Shares of exponentials along the last axis."""
    return ctx.part("Softmax", [ctx.input(0)], axis=-1)


@converter("LogSoftmax")
def convert_log_softmax(ctx: NodeContext) -> RelayExpr:
    """Logarithms of the shares of exponentials along the last axis."""
    return ctx.part("LogSoftmax", [ctx.input(0)], axis=-1)


@converter("L2Loss")
def convert_l2_loss(ctx: NodeContext) -> RelayExpr:
    """Half the sum of squares."""
    data = ctx.input(0)
    squares = relay_op.sum(typed(relay_op.multiply(data, data)))
    return typed(relay_op.multiply(squares, ctx.like(0.5, data)))


@converter("SoftmaxCrossEntropyWithLogits")
def convert_softmax_cross_entropy(ctx: NodeContext) -> list[Any]:
    """Losses of rows, and their gradients."""
    logits, labels = ctx.inputs()
    logs = ctx.part("LogSoftmax", [logits], axis=-1)
    losses = relay_op.negative(relay_op.sum(relay_op.multiply(labels, logs), axis=[-1]))
    return [losses, relay_op.subtract(relay_op.exp(logs), labels)]


@converter("Bincount", "DenseBincount")
def convert_bincount(ctx: NodeContext) -> RelayExpr:
    """How often each number occurs, or the sums of weights."""
    data, size = ctx.input(0), int(ctx.scalar(1, "the number of bins"))
    dtype = ctx.attr("T", "int32") if ctx.node.op == "Bincount" else ctx.dtype(ctx.input(2))
    flat = typed(relay_op.reshape(data, (-1,)))
    hits = relay_op.equal(relay_op.expand_dims(flat, axis=1), const(np.arange(size), ctx.dtype(flat)))
    found = relay_op.cast(hits, dtype)
    if 0 not in ctx.dims(ctx.input(2)) and ctx.dims(ctx.input(2)) and not ctx.attr("binary_output", False):
        found = relay_op.multiply(found, relay_op.reshape(ctx.input(2), (-1, 1)))
    return typed(relay_op.sum(typed(found), axis=[0]))
