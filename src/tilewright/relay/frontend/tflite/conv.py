"""Convolutions and matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.frontend.tflite.context import OperatorContext, parameter, typed
from tilewright.relay.frontend.tflite.hybrid import convolution_of_rounded, dense_of_rounded
from tilewright.relay.frontend.tflite.registry import IMAGES, converter
from tilewright.relay.frontend.windows import same_padding
from tilewright.relay.qnn import op as qnn

SAME, VALID = 0, 1


def padding(
    ctx: OperatorContext,
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...]:
    """Return the padding before and after each spatial dimension that the option asks for."""
    kind = ctx.option("padding")
    if kind not in (SAME, VALID):
        ctx.fail(f"padding {kind} is unknown; 0 (same) and 1 (valid) are defined")
    if kind == VALID:
        return (0,) * (2 * len(kernel))
    pairs = [same_padding(*part) for part in zip(extents, kernel, strides, dilations, strict=True)]
    return (*(p[0] for p in pairs), *(p[1] for p in pairs))


def positive(ctx: OperatorContext, *names: str) -> tuple[int, ...]:
    """Return options that are 1 or more."""
    found = tuple(int(ctx.option(name)) for name in names)
    if min(found) < 1:
        ctx.fail(f"{', '.join(names)} are {found}; they have to be 1 or more")
    return found


def bias_added(ctx: OperatorContext, value: RelayExpr, index: int, axis: int = 1) -> RelayExpr:
    """Return numbers with the optional bias added along an axis."""
    if not ctx.has(index):
        return value
    bias = ctx.plain(index)
    return relay_op.nn.bias_add(value, ctx.dequantized(bias, ctx.tensor(index)), axis=axis)


def weight_of(ctx: OperatorContext, index: int, order: Sequence[int]) -> RelayExpr:
    """Return the numbers of a constant weight whose axes are put in another order."""
    tensor = ctx.tensor(index)
    whole = ctx.weight(index, lambda array: np.ascontiguousarray(array.transpose(order)))
    if tensor.scale is None or not dt.is_int(tensor.dtype):
        return whole if ctx.dtype(whole) == "float32" else relay_op.cast(whole, "float32")
    axis = list(order).index(tensor.axis) if tensor.is_per_axis else 0
    return typed(qnn.dequantize(whole, parameter(tensor.scale), parameter(tensor.zero), axis))


def is_hybrid(ctx: OperatorContext, data: int, weight: int) -> bool:
    """Return whether data are floats, and the weight has 8-bit integers."""
    return not ctx.tensor(data).is_quantized and ctx.tensor(weight).is_quantized and ctx.tensor(data).dtype == "float32"


@converter("CONV_2D", form=IMAGES)
def convert_conv_2d(ctx: OperatorContext) -> RelayExpr:
    """Convolution of images, in groups where the weight has fewer channels."""
    shape = ctx.tensor(1).shape
    channels = ctx.shape(ctx.raw(0))[1]
    if len(shape) != 4 or not shape[3] or channels % shape[3]:
        ctx.fail(f"its image has {channels} channels, its weight the shape {shape}")
    return _convolution(ctx, (0, 3, 1, 2), shape[0], channels // shape[3])


@converter("DEPTHWISE_CONV_2D", form=IMAGES)
def convert_depthwise_conv_2d(ctx: OperatorContext) -> RelayExpr:
    """Convolution of each channel by itself."""
    shape, channels = ctx.tensor(1).shape, ctx.shape(ctx.raw(0))[1]
    if len(shape) != 4 or not channels or shape[3] % channels:
        ctx.fail(f"its image has {channels} channels, its weight the shape {shape}")
    return _convolution(ctx, (3, 0, 1, 2), shape[3], channels)


def _convolution(ctx: OperatorContext, order: Sequence[int], channels: int, groups: int) -> RelayExpr:
    kernel = ctx.tensor(1).shape[1:3]
    strides, dilations = positive(ctx, "stride_h", "stride_w"), positive(ctx, "dilation_h", "dilation_w")
    attrs: dict[str, Any] = {
        "strides": strides,
        "dilation": dilations,
        "padding": padding(ctx, ctx.shape(ctx.raw(0))[2:], kernel, strides, dilations),
        "groups": groups,
        "channels": channels,
        "kernel_size": kernel,
    }
    if is_hybrid(ctx, 0, 1):
        found = convolution_of_rounded(ctx, order, attrs)
    else:
        found = relay_op.nn.conv2d(ctx.real(0), weight_of(ctx, 1, order), **attrs)
    return ctx.finished(bias_added(ctx, found, 2))


@converter("TRANSPOSE_CONV", form=IMAGES)
def convert_transpose_conv(ctx: OperatorContext) -> RelayExpr:
    """Transposed convolution to a given size."""
    wanted = ctx.ints(0, "its size")
    kernel, strides = ctx.tensor(1).shape[1:3], positive(ctx, "stride_h", "stride_w")
    if len(wanted) != 4 or len(kernel) != 2:
        ctx.fail(f"its size is {wanted}, its weight has the shape {ctx.tensor(1).shape}")
    data = ctx.real(2)
    pads, extra = _transposed_padding(ctx, ctx.shape(data)[2:], wanted[1:3], kernel, strides)
    found = relay_op.nn.conv2d_transpose(
        data,
        weight_of(ctx, 1, (3, 0, 1, 2)),
        strides=strides,
        padding=pads,
        channels=ctx.tensor(1).shape[0],
        kernel_size=kernel,
        output_padding=extra,
    )
    biased = bias_added(ctx, found, 3)
    return ctx.result(ctx.activation(biased, 0) if hasattr(ctx.operator.options, "activation") else biased)


def _transposed_padding(
    ctx: OperatorContext, extents: Sequence[int], wanted: Sequence[int], kernel: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return padding, and what is added at the end, so that the result has the wanted extents."""
    before, after, extra = [], [], []
    for extent, size, k, stride in zip(extents, wanted, kernel, strides, strict=True):
        total = (extent - 1) * stride + k - size
        if total < 0 and -total >= stride:
            ctx.unsupported(f"a size of {size} from {extent} with stride {stride} and a kernel of {k}")
        small = max(total, 0) // 2 if ctx.option("padding") == SAME else 0
        before.append(small)
        after.append(max(total, 0) - small)
        extra.append(max(-total, 0))
    return (*before, *after), tuple(extra)


@converter("CONV_3D")
def convert_conv_3d(ctx: OperatorContext) -> RelayExpr:
    """Convolution of volumes."""
    data = relay_op.transpose(ctx.real(0), axes=(0, 4, 1, 2, 3))
    shape = ctx.tensor(1).shape
    strides = positive(ctx, "stride_d", "stride_h", "stride_w")
    dilations = positive(ctx, "dilation_d", "dilation_h", "dilation_w")
    found = relay_op.nn.conv3d(
        data,
        weight_of(ctx, 1, (4, 3, 0, 1, 2)),
        strides=strides,
        dilation=dilations,
        padding=padding(ctx, ctx.shape(data)[2:], shape[:3], strides, dilations),
        groups=ctx.shape(data)[1] // shape[3],
        channels=shape[4],
        kernel_size=shape[:3],
    )
    return ctx.finished(relay_op.transpose(bias_added(ctx, found, 2), axes=(0, 2, 3, 4, 1)))


@converter("CONV_3D_TRANSPOSE")
def convert_conv_3d_transpose(ctx: OperatorContext) -> RelayExpr:
    """Transposed convolution of volumes to a given size."""
    wanted, shape = ctx.ints(0, "its size"), ctx.tensor(1).shape
    strides = positive(ctx, "stride_d", "stride_h", "stride_w")
    data = relay_op.transpose(ctx.real(2), axes=(0, 4, 1, 2, 3))
    pads, extra = _transposed_padding(ctx, ctx.shape(data)[2:], wanted[1:4], shape[:3], strides)
    found = relay_op.nn.conv3d_transpose(
        data,
        weight_of(ctx, 1, (4, 3, 0, 1, 2)),
        strides=strides,
        padding=pads,
        channels=shape[3],
        kernel_size=shape[:3],
        output_padding=extra,
    )
    return ctx.finished(relay_op.transpose(bias_added(ctx, found, 3), axes=(0, 2, 3, 4, 1)))


# ------------------------------------------------------------------------------------------- matrices


@converter("FULLY_CONNECTED")
def convert_fully_connected(ctx: OperatorContext) -> RelayExpr:
    """Product of rows with a weight (outputs, inputs), a bias, and the fused activation."""
    if ctx.option("weights_format", 0):
        ctx.unsupported("a weight in shuffled form")
    units, depth = ctx.shape(ctx.plain(1))
    shape = ctx.shape(ctx.plain(0))
    if not depth or math.prod(shape) % depth:
        ctx.fail(f"its data have the shape {shape}, its weight {(units, depth)}")
    lead = shape[:-1] if ctx.option("keep_num_dims", False) else (math.prod(shape) // depth,)
    rows = typed(relay_op.reshape(ctx.plain(0), (-1, depth)))
    if is_hybrid(ctx, 0, 1):
        found = dense_of_rounded(ctx, rows, units)
    else:
        known = ctx.constant_or_none(1) is not None
        weight = weight_of(ctx, 1, (0, 1)) if known else ctx.real(1)
        found = relay_op.nn.dense(ctx.dequantized(rows, ctx.tensor(0)), weight, units=units)
    done = ctx.finished(bias_added(ctx, found, 2))
    return done if len(lead) == 1 else relay_op.reshape(done, (*lead, units))


@converter("BATCH_MATMUL")
def convert_batch_matmul(ctx: OperatorContext) -> RelayExpr:
    """Product of matrices, each perhaps transposed; what is before the last two dimensions broadcasts."""
    turned = bool(ctx.option("transpose_a", False)), bool(ctx.option("transpose_b", False))
    a, b = ctx.real(0), ctx.real(1)
    shapes = [ctx.shape(a), ctx.shape(b)]
    lead = np.broadcast_shapes(shapes[0][:-2], shapes[1][:-2])
    rows = shapes[0][-1 if turned[0] else -2]
    columns = shapes[1][-2 if turned[1] else -1]
    if math.prod(shapes[1][:-2]) == 1 and not turned[0]:
        flat = relay_op.reshape(a, (-1, shapes[0][-1]))
        matrix = relay_op.reshape(b, shapes[1][-2:])
        product = relay_op.nn.dense(
            flat, matrix if turned[1] else relay_op.transpose(matrix, axes=(1, 0)), units=columns
        )
    else:
        left, right = (
            relay_op.reshape(relay_op.broadcast_to(side, (*lead, *shape[-2:])), (-1, *shape[-2:]))
            for side, shape in zip((a, b), shapes, strict=True)
        )
        product = relay_op.nn.batch_matmul(left, right, transpose_a=turned[0], transpose_b=turned[1])
    return relay_op.reshape(ctx.result(product), (*lead, rows, columns))


@converter("EMBEDDING_LOOKUP")
def convert_embedding_lookup(ctx: OperatorContext) -> RelayExpr:
    """Rows of a table."""
    indices, table = ctx.raw(0), ctx.raw(1)
    if ctx.tensor(1).is_quantized and not ctx.out().is_quantized:
        rows = relay_op.take(table, indices, axis=0)
        tensor = ctx.tensor(1)
        if tensor.is_per_axis:
            scale = relay_op.take(parameter(np.asarray(tensor.scale)), indices, axis=0)
            return relay_op.multiply(relay_op.cast(rows, "float32"), relay_op.expand_dims(scale, 1))
        return ctx.dequantized(rows, tensor)
    return relay_op.take(table, indices, axis=0)
