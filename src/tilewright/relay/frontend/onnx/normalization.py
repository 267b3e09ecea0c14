"""Normalizations and softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import element, is_number
from tilewright.relay.frontend.dynamic import reshape_to, vector
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.indices import with_extent
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.op.relations import dim_mul


@converter("BatchNormalization")
def convert_batch_norm(ctx: NodeContext) -> Any:
    """Batch normalization; in training mode by the batch's own mean and variance, and with the running ones."""
    data, *parameters = ctx.inputs()
    dtype = ctx.dtype(data)  # the parameters may have others
    scale, bias, mean, var = (p if ctx.dtype(p) == dtype else relay_op.cast(p, dtype) for p in parameters)
    if ctx.attr("training_mode", 0):
        ctx.runs_as_in_training("normalizes by each batch's own mean and variance")
        axes = [axis for axis in range(ctx.rank(data)) if axis != 1]
        old, momentum = (mean, var), ctx.attr("momentum", 0.9)
        mean, var = typed(relay_op.mean(data, axis=axes)), typed(relay_op.variance(data, axis=axes))
        result = relay_op.nn.batch_norm(data, scale, bias, mean, var, axis=1, epsilon=ctx.attr("epsilon", 1e-5))
        keep, take = const(momentum, dtype), const(1 - momentum, dtype)
        running = [
            relay_op.cast(typed(relay_op.add(relay_op.multiply(a, keep), relay_op.multiply(b, take))), ctx.dtype(p))
            for a, b, p in zip(old, (mean, var), parameters[2:], strict=True)
        ]
        return [result[0], *running][: ctx.num_outputs]
    result = relay_op.nn.batch_norm(data, scale, bias, mean, var, axis=1, epsilon=ctx.attr("epsilon", 1e-5))
    return result[0]


@converter("InstanceNormalization")
def convert_instance_norm(ctx: NodeContext) -> RelayExpr:
    """Normalization of each sample's channels."""
    return relay_op.nn.instance_norm(
        ctx.input(0), ctx.input(1), ctx.input(2), axis=1, epsilon=ctx.attr("epsilon", 1e-5)
    )


def _one_row(ctx: NodeContext, value: RelayExpr | None, extent: int) -> RelayExpr | None:
    """Return ``value`` as a vector for the last dimension, or None where it varies along others."""
    shape = () if value is None else ctx.shape(value)
    if value is None or math.prod(shape[:-1]) != 1:
        return None
    row = value if len(shape) == 1 else relay_op.reshape(value, newshape=(math.prod(shape),))
    return row if shape and shape[-1] == extent else relay_op.broadcast_to(row, (extent,))


@converter("LayerNormalization")
def convert_layer_norm(ctx: NodeContext) -> Any:
    """Normalization over the trailing axes from ``axis`` on."""
    data = ctx.input(0)
    rank = ctx.rank(data)
    axis = ctx.normalize_axis(ctx.attr("axis", -1), rank)
    epsilon = ctx.attr("epsilon", 1e-5)
    dtype = ctx.dtype(data)
    if (width := ctx.shape(ctx.input(1))[-1:]) > (1,):
        data = with_extent(ctx, data, rank - 1, width[0])
    extent = ctx.extent(data, -1)
    scale = _one_row(ctx, ctx.input(1), extent)
    bias = _one_row(ctx, ctx.optional(2), extent) if ctx.has_input(2) else relay_op.zeros((extent,), dtype)
    if axis == rank - 1 and ctx.num_outputs == 1 and scale is not None and bias is not None:
        return relay_op.nn.layer_norm(data, scale, bias, axis=-1, epsilon=epsilon)
    axes = tuple(range(axis, rank))
    if dt.is_half(dtype):  # attribute stash_type: mean and inverse are float32
        wide, _ = ctx.in_float32(())
        made: Any = convert_layer_norm(wide)
        return [ctx.rounded(made[0], dtype), *made[1:]]
    mean = relay_op.mean(data, axis=axes, keepdims=True)
    centered = relay_op.subtract(data, mean)
    variance = relay_op.mean(relay_op.multiply(centered, centered), axis=axes, keepdims=True)
    inverse = relay_op.rsqrt(relay_op.add(variance, const(epsilon, dtype)))
    out = relay_op.multiply(relay_op.multiply(centered, inverse), ctx.input(1))
    if ctx.has_input(2):
        out = relay_op.add(out, ctx.input(2))
    # Of float64 too, as ONNX types them.
    return [out, *(relay_op.cast(v, "float32") if dtype == "float64" else v for v in (mean, inverse))][
        : ctx.num_outputs
    ]


@converter("GroupNormalization")
def convert_group_norm(ctx: NodeContext) -> RelayExpr:
    """Normalization of groups of channels; scale and bias for each group (opset 18) or channel (21)."""
    data, scale, bias = ctx.input(0), ctx.input(1), ctx.input(2)
    groups = ctx.required("num_groups")
    channels = ctx.extent(data, 1)
    if ctx.extent(scale, 0) != channels:
        scale = relay_op.repeat(scale, repeats=channels // groups, axis=0)
        bias = relay_op.repeat(bias, repeats=channels // groups, axis=0)
    return relay_op.nn.group_norm(data, scale, bias, groups, axis=1, epsilon=ctx.attr("epsilon", 1e-5))


@converter("LpNormalization", in_float32=True)
def convert_lp_norm(ctx: NodeContext) -> RelayExpr:
    """Division by the 1- or 2-norm along an axis; zero where the norm is."""
    data = ctx.input(0)
    axis = ctx.normalize_axis(ctx.attr("axis", -1), ctx.rank(data))
    if ctx.attr("p", 2) == 1:
        norm = relay_op.sum(relay_op.abs(data), axis=axis, keepdims=True)
    else:
        norm = relay_op.sqrt(relay_op.sum(relay_op.multiply(data, data), axis=axis, keepdims=True))
    zero = const(0.0, ctx.dtype(data))
    return relay_op.where(relay_op.equal(norm, zero), relay_op.zeros_like(data), relay_op.divide(data, norm))


@converter("LRN")
def convert_lrn(ctx: NodeContext) -> RelayExpr:
    """Local response normalization across channels."""
    size = ctx.required("size")
    # Attributes are float32, and so is a default, which a float64 kernel tells from 0.0001.
    bias, alpha, beta = ctx.attr("bias", 1.0), ctx.attr("alpha", float(np.float32(0.0001))), ctx.attr("beta", 0.75)
    data = ctx.input(0)
    if size < 1:
        ctx.fail(f"attribute 'size' is {size}; expected a positive number of channels")
    if size % 2:
        return relay_op.nn.lrn(data, size=size, axis=1, bias=bias, alpha=alpha, beta=beta)
    # Relay's lrn is symmetric; of an even size, one more channel counts above than below.
    ctx.write_out(size, f"sums of {size} channels, written out")
    shape, dtype = ctx.shape(data), ctx.dtype(data)
    width = [(0, 0)] * len(shape)
    width[1] = ((size - 1) // 2, size // 2)
    squares = relay_op.nn.pad(relay_op.multiply(data, data), width)
    total: Any = relay_op.zeros(shape, dtype)
    for i in range(size):
        total = relay_op.add(total, relay_op.strided_slice(squares, [i], [i + shape[1]], axes=[1]))
    base = relay_op.add(relay_op.multiply(total, const(alpha / size, dtype)), const(bias, dtype))
    return relay_op.divide(data, relay_op.power(base, const(beta, dtype)))


def _flattened_softmax(ctx: NodeContext, build: Any) -> RelayExpr:
    """Apply softmax over all axes from ``axis`` on, flattened (before opset 13)."""
    data = ctx.input(0)
    shape = ctx.dims(data)
    axis = ctx.normalize_axis(ctx.attr("axis", 1), len(shape))
    if axis == len(shape) - 1 or all(is_number(d) and d == 1 for d in shape[axis + 1 :]):
        return build(data, axis=axis)
    if ctx.is_dynamic(data):
        inner = None if None in shape[axis:] else element(dim_mul(*shape[axis:]))
        flat = build(reshape_to(ctx, data, [None, inner], vector([0] * axis + [-1]) if axis == 1 else None), axis=-1)
        return relay_op.reshape_like(flat, data)
    rows = 1
    for extent in shape[:axis]:
        rows *= extent
    if 0 in shape:
        return data
    flat = build(relay_op.reshape(data, newshape=(rows, -1)), axis=-1)
    return relay_op.reshape(flat, newshape=shape)


@converter("Softmax")
def convert_softmax_flat(ctx: NodeContext) -> RelayExpr:
    """Softmax before opset 13."""
    return _flattened_softmax(ctx, relay_op.nn.softmax)


@converter("Softmax", since=13)
def convert_softmax(ctx: NodeContext) -> RelayExpr:
    """Softmax along one axis."""
    return relay_op.nn.softmax(ctx.input(0), axis=ctx.normalize_axis(ctx.attr("axis", -1), ctx.rank(ctx.input(0))))


@converter("LogSoftmax")
def convert_log_softmax_flat(ctx: NodeContext) -> RelayExpr:
    """Logarithm of softmax before opset 13."""
    return _flattened_softmax(ctx, relay_op.nn.log_softmax)


@converter("LogSoftmax", since=13)
def convert_log_softmax(ctx: NodeContext) -> RelayExpr:
    """Logarithm of softmax along one axis."""
    data = ctx.input(0)
    return relay_op.nn.log_softmax(data, axis=ctx.normalize_axis(ctx.attr("axis", -1), ctx.rank(data)))


def _hardmax(data: RelayExpr, axis: int) -> RelayExpr:
    type_ = typed(data).checked_type
    assert isinstance(type_, TensorType)
    shape, dtype = type_.concrete_shape, type_.dtype
    axis %= len(shape)
    if 0 in shape:
        return relay_op.zeros(shape, dtype)
    index = relay_op.argmax(data, axis=(axis,))
    return relay_op.one_hot(index, const(1.0, dtype), const(0.0, dtype), shape[axis], axis, dtype)


@converter("Hardmax")
def convert_hardmax_flat(ctx: NodeContext) -> RelayExpr:
    """Hardmax before opset 13."""
    return _flattened_softmax(ctx, _hardmax)


@converter("Hardmax", since=13)
def convert_hardmax(ctx: NodeContext) -> RelayExpr:
    """One at the first maximum along the axis, zero elsewhere."""
    return _hardmax(ctx.input(0), ctx.normalize_axis(ctx.attr("axis", -1), ctx.rank(ctx.input(0))))
