"""Linear quantization: QuantizeLinear, DequantizeLinear, products and convolutions of quantized tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.onnx.attributes import dtype_of
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.conv import convolution, pads_at_run_time
from tilewright.relay.frontend.onnx.elementwise import small_float
from tilewright.relay.frontend.onnx.linear import matmul
from tilewright.relay.frontend.onnx.matrix_blocks import matrix_of_blocks
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.qnn import op as qnn

_FLIP = 128  # between uint8 and the int8 of the same bits but the first


def folded(ctx: NodeContext, value: RelayExpr, source: RelayExpr) -> RelayExpr:
    """``value``, as a constant where ``source``, which alone it comes from, is known: quantized groups want one."""
    found = ctx.folded(value) if ctx.importer.is_known(source) else None
    return typed(value if found is None else const(found))


def in_float32(ctx: NodeContext, value: RelayExpr) -> RelayExpr:
    """``value`` itself, or as float32."""
    return value if ctx.dtype(value) == "float32" else folded(ctx, relay_op.cast(value, "float32"), value)


def checked_scale(ctx: NodeContext, index: int, signed: bool = False) -> RelayExpr:
    """The scale in an input; those that are known are finite, and greater than 0 where not ``signed``."""
    scale, name = ctx.input(index), f"input {index}, {ctx.node.input[index]!r}"
    if not dt.is_float(ctx.dtype(scale)):
        ctx.fail(f"{name}: scales are floating-point numbers, found {ctx.dtype(scale)}")
    known = ctx.constant_or_none(scale) if ctx.is_known(index) else None
    if known is not None:
        numbers = known.astype("float32").reshape(-1)
        wrong = numbers[~(((numbers > 0) | signed) & np.isfinite(numbers))]
        if wrong.size:
            advice = "; the range of that tensor is too large for float32: quantize again without it"
            advice = advice if np.isinf(wrong).any() else ""
            ctx.fail(
                f"{name}: a scale is {wrong[0]}; scales are finite{'' if signed else ' and greater than 0'}{advice}"
            )
    return scale


def checked_zero(ctx: NodeContext, index: int, dtype: str, scale: RelayExpr) -> RelayExpr | None:
    """The zero point in an input, of the type of the integers, and as many as scales; None where it is omitted."""
    zero = ctx.optional(index)
    if zero is None:
        return None
    name = f"input {index}, {ctx.node.input[index]!r}"
    if ctx.dtype(zero) != dtype:
        ctx.fail(f"{name}: the zero point is {ctx.dtype(zero)}, what it belongs to is {dtype}")
    shapes = [ctx.shape(e) for e in (zero, scale)]
    if math.prod(shapes[0]) != 1 and shapes[0] != shapes[1]:
        ctx.fail(f"{name}: zero points of shape {shapes[0]} do not fit scales of shape {shapes[1]}")
    return zero


def _along(ctx: NodeContext, scale: RelayExpr) -> int | None:
    """The axis that scales vary along, whose extent they have; None of one scale for all."""
    shape, data = ctx.shape(scale), ctx.dims(ctx.input(0))
    if math.prod(shape) == 1 and len(shape) < 2:
        return None
    axis = ctx.normalize_axis(ctx.attr("axis", 1), len(data))
    if len(shape) != 1 or (is_number(data[axis]) and shape[0] != data[axis]):
        ctx.fail(f"scales of shape {shape} do not fit axis {axis} of a tensor of {data}")
    return axis


def _spread(ctx: NodeContext, parameter: RelayExpr) -> RelayExpr:
    """A scale or zero point as float32 that broadcasts: one for all, for each entry of ``axis`` or each block."""
    shape, block = ctx.shape(parameter), ctx.attr("block_size", 0)
    number = in_float32(ctx, parameter)
    if block and shape:
        return _spread_blocks(ctx, number, block)
    axis = _along(ctx, parameter)
    rank = ctx.rank(ctx.input(0))
    wide = () if axis is None else tuple(-1 if i == axis else 1 for i in range(rank))
    return typed(relay_op.reshape(number, wide))


def _spread_blocks(ctx: NodeContext, number: RelayExpr, block: int) -> RelayExpr:
    shape, data = ctx.shape(number), ctx.shape(ctx.input(0))
    axis = ctx.normalize_axis(ctx.attr("axis", 1), len(data))
    if block < 0:
        ctx.fail(f"attribute 'block_size' is {block}; it must be 0 or more")
    if shape != tuple(-(-n // block) if i == axis else n for i, n in enumerate(data)):
        ctx.fail(f"scales of shape {shape} do not fit blocks of {block} along axis {axis} of {data}")
    whole = relay_op.repeat(number, block, axis)
    return typed(relay_op.strided_slice(whole, [0] * len(data), list(data)))


def _in_blocks(ctx: NodeContext) -> bool:
    """Return whether scales are those of blocks along an axis, which have the rank of the data."""
    rank = ctx.rank(ctx.input(1))
    return rank > 1 or (rank == 1 and bool(ctx.attr("block_size", 0)))


def _is_plain(ctx: NodeContext, dtype: str) -> bool:
    """Whether Relay's operators have the data type, and a scale for all or for each entry of an axis."""
    return dt.is_int(dtype) and 8 <= dt.bits(dtype) <= 16 and not _in_blocks(ctx)


@converter("QuantizeLinear")
@converter("QuantizeLinear", domain="com.microsoft")
def convert_quantize(ctx: NodeContext) -> RelayExpr:
    """``saturate(round(x / scale) + zero_point)``, halves rounded to even; to float8 and float4 by conversion."""
    scale, asked = checked_scale(ctx, 1), ctx.attr("output_dtype", 0)
    out = dtype_of(asked, "attribute 'output_dtype'") if asked else "uint8"
    if ctx.has_input(2) and not asked:
        out = ctx.dtype(ctx.input(2))
    zero = checked_zero(ctx, 2, out, scale)
    data = in_float32(ctx, ctx.input(0))
    if _is_plain(ctx, out):
        axis = _along(ctx, scale) or 0
        return qnn.quantize(data, in_float32(ctx, scale), const(0) if zero is None else zero, axis, out)
    steps = typed(relay_op.divide(data, _spread(ctx, scale)))
    if dt.is_small_float(out):
        return small_float(ctx, steps, out, bool(ctx.attr("saturate", 1)))
    numbers = relay_op.nearbyint(steps)
    if zero is not None:
        numbers = relay_op.add(numbers, _spread(ctx, zero))
    low, high = dt.int_range(out)
    return relay_op.cast(relay_op.cast(relay_op.clip(numbers, low, high), "int32"), out)


@converter("DynamicQuantizeLinear", since=11)
def convert_dynamic_quantize(ctx: NodeContext) -> tuple[RelayExpr, ...]:
    """To uint8, with the scale and zero point of the tensor's own range and 0; of zeros alone the scale is 1."""
    data, zero = ctx.input(0), const(0.0, "float32")
    low, high = relay_op.minimum(relay_op.min(data), zero), relay_op.maximum(relay_op.max(data), zero)
    steps = const(255.0, "float32")
    span = relay_op.divide(relay_op.subtract(high, low), steps)
    scale = typed(relay_op.where(relay_op.equal(low, high), const(1.0, "float32"), span))
    point = relay_op.clip(relay_op.nearbyint(relay_op.divide(relay_op.negative(low), scale)), 0.0, 255.0)
    whole = typed(relay_op.cast(point, "uint8"))
    return qnn.quantize(data, scale, whole, 0, "uint8"), scale, whole


@converter("DequantizeLinear")
@converter("DequantizeLinear", domain="com.microsoft")
def convert_dequantize(ctx: NodeContext) -> RelayExpr:
    """``(x - zero_point) * scale``"""
    # quantizers let the extreme number of a block be the last code, -8: its scale is negative then; 0 is one of zeros
    data, scale = ctx.input(0), checked_scale(ctx, 1, signed=bool(ctx.attr("block_size", 0)))
    given, dtype = ctx.dtype(data), ctx.dtype(scale)
    zero = checked_zero(ctx, 2, given, scale)
    if ctx.attr("output_dtype", 0):
        dtype = dtype_of(ctx.attr("output_dtype"), "attribute 'output_dtype'")
    if dt.is_int(given) and not _in_blocks(ctx):
        axis = _along(ctx, scale) or 0
        zero = const(0) if zero is None else in_bytes(ctx, zero)
        numbers: RelayExpr = qnn.dequantize(in_bytes(ctx, data), in_float32(ctx, scale), zero, axis)
    elif (matrix := matrix_of_blocks(ctx, data, scale, zero)) is not None:
        numbers = matrix
    else:
        numbers = relay_op.cast(data, "float32")
        if zero is not None:
            numbers = relay_op.subtract(numbers, _spread(ctx, zero))
        numbers = relay_op.multiply(numbers, _spread(ctx, scale))
    return relay_op.cast(numbers, dtype) if dtype != "float32" else numbers


def in_bytes(ctx: NodeContext, data: RelayExpr) -> RelayExpr:
    """Integers of 2 or 4 bits as those of 8; constants at once."""
    dtype = ctx.dtype(data)
    if dt.bits(dtype) >= 8:
        return data
    return folded(ctx, relay_op.cast(data, "int8" if dtype.startswith("int") else "uint8"), data)


# ------------------------------------------------------------------------------------------- operators on integers


def shifted(ctx: NodeContext, data: RelayExpr, zero: RelayExpr | None, axis: int | None = None) -> RelayExpr:
    """``data - zero`` in int32; a zero point for each entry of ``axis`` is a vector."""
    wide = relay_op.cast(data, "int32")
    if zero is None:
        return wide
    offset = relay_op.cast(zero, "int32")
    shape = ctx.shape(zero)
    if len(shape) == 1 and shape != (1,) and axis is not None:
        sizes = [1] * ctx.rank(data)
        sizes[axis] = shape[0]
        offset = relay_op.reshape(offset, newshape=tuple(sizes))
    return typed(relay_op.subtract(wide, offset if shape != (1,) else relay_op.reshape(offset, newshape=())))


@converter("MatMulInteger", since=10)
def convert_matmul_integer(ctx: NodeContext) -> RelayExpr:
    """The product of integers less their zero points, in int32."""
    return integer_product(ctx, (ctx.input(0), ctx.optional(2)), (ctx.input(1), ctx.optional(3)))


def integer_product(
    ctx: NodeContext, left: tuple[RelayExpr, RelayExpr | None], right: tuple[RelayExpr, RelayExpr | None]
) -> RelayExpr:
    """The product in int32 of two matrices less their zero points.

    Of bytes with a known matrix it is a product of the bytes themselves, since zero points come out of the sums::

        sum((a - za) * (b - zb)) = sum(a * b) - za * sum(b - zb) - zb * sum(a)
    """
    (a, a_zero), (b, b_zero) = left, right
    known = ctx.rank(b) == 2 and all(ctx.importer.is_known(e) for e in (b, b_zero) if e is not None)
    zero = ctx.folded(relay_op.cast(const(0) if b_zero is None else b_zero, "int32")) if known else None
    if zero is None or any(ctx.dtype(e) not in ("int8", "uint8") for e in (a, b)):
        return matmul(ctx, shifted(ctx, a, a_zero, -2), shifted(ctx, b, b_zero, -1))
    if ctx.dtype(b) == "uint8":
        b = folded(ctx, relay_op.cast(relay_op.bitwise_xor(b, const(_FLIP, "uint8")), "int8"), b)
        zero = zero - _FLIP
    sums = typed(matmul(ctx, a, b, "int32"))
    if a_zero is not None:
        shift, depth = relay_op.cast(_beside_rows(ctx, a_zero), "int32"), const(ctx.dims(b)[0] * zero, "int32")
        columns = relay_op.subtract(relay_op.sum(relay_op.cast(b, "int32"), axis=[0]), depth)
        sums = relay_op.subtract(sums, relay_op.multiply(shift, folded(ctx, columns, b)))
    if zero.any():
        rows = relay_op.sum(relay_op.cast(a, "int32"), axis=[-1], keepdims=ctx.rank(a) > 1)
        sums = relay_op.subtract(sums, relay_op.multiply(rows, const(zero.astype("int32"))))
    return sums


def _beside_rows(ctx: NodeContext, zero: RelayExpr) -> RelayExpr:
    """A zero point, or one for each row, that broadcasts with a matrix."""
    shape = ctx.shape(zero)
    if math.prod(shape) == 1:
        return relay_op.reshape(zero, newshape=())
    return relay_op.reshape(zero, newshape=(-1, 1)) if len(shape) == 1 else zero


def along(ctx: NodeContext, scale: RelayExpr, axis: int, rank: int) -> RelayExpr:
    """A scale, or one for each entry of an axis, that broadcasts with a tensor of ``rank``."""
    (size,) = ctx.shape(scale) or (1,)
    return typed(relay_op.reshape(scale, newshape=tuple(size if i == axis % rank else 1 for i in range(rank))))


@converter("ConvInteger", since=10)
def convert_conv_integer(ctx: NodeContext) -> RelayExpr:
    """The convolution of integers less their zero points, in int32; what is padded is a zero point."""
    if _is_convolution_of_bytes(ctx):
        return convolution(ctx, ctx.input(0), ctx.input(1), lambda *args, **attrs: _of_bytes(ctx, *args, **attrs))
    data, weight = shifted(ctx, ctx.input(0), ctx.optional(2)), shifted(ctx, ctx.input(1), ctx.optional(3), 0)
    return convolution(ctx, data, weight)


def _is_convolution_of_bytes(ctx: NodeContext) -> bool:
    """Whether ``qnn.conv2d`` has the form: images, a known weight, one zero point of the data, known padding."""
    data, zero = ctx.input(0), ctx.optional(2)
    known = all(ctx.importer.is_known(e) for e in (ctx.input(1), ctx.optional(3)) if e is not None)
    one = zero is None or math.prod(ctx.shape(zero)) == 1
    strides = ctx.attr("strides") or (1, 1)
    return ctx.rank(data) == 4 and known and one and not pads_at_run_time(ctx, data, strides)


def _of_bytes(ctx: NodeContext, data: RelayExpr, weight: RelayExpr, **attrs: Any) -> RelayExpr:
    """``qnn.conv2d`` of bytes; its zero points are inputs 2 and 3, and nobody asks for its scales."""
    zeros = [const(0) if (zero := ctx.optional(i)) is None else relay_op.cast(zero, "int32") for i in (2, 3)]
    scalar = typed(relay_op.reshape(zeros[0], newshape=()))
    points = zeros[1] if ctx.optional(3) is None else folded(ctx, zeros[1], ctx.input(3))
    return qnn.conv2d(data, weight, scalar, points, const(1.0), const(1.0), attrs.pop("kernel_size"), **attrs)
