"""Quantized programs of PT2E: what quantizes and dequantizes, as ONNX's operators, from which integers are computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.torch.context import TorchContext, is_tensor
from tilewright.relay.frontend.torch.dtypes import dtype_name
from tilewright.relay.frontend.torch.registry import converter

_NAME = "quantized_decomposed::"
_OF_ONNX = ("int8", "uint8", "int16", "uint16")


def _parameter(ctx: TorchContext, value: Any, dtype: str) -> RelayExpr:
    """Return a scale or zero point: as a constant where it is known, which integers are computed with."""
    if not is_tensor(value):
        return const(np.array(value, dtype), dtype)
    known = ctx.importer.param_value(value) if ctx.is_var(value) else ctx.constant_or_none(value)
    if known is not None:
        return const(np.array(known, dtype).reshape(() if known.shape == (1,) else known.shape), dtype)
    made = ctx.cast(value, dtype)
    return ctx.reshape(made, []) if ctx.dims(made) == [1] else made


def _quantized(
    ctx: TorchContext, x: RelayExpr, scale: Any, zero: Any, low: int, high: int, dtype: Any, axis: int
) -> RelayExpr:
    """Quantize; numbers outside [low, high], where these are not all of the type's, are limited."""
    name = dtype_name(dtype)
    if name in _OF_ONNX:
        found = ctx.part(
            "QuantizeLinear", [x, _parameter(ctx, scale, "float32"), _parameter(ctx, zero, name)], axis=axis
        )
        whole = dt.int_range(name)
        return found if (low, high) == whole else typed(relay_op.clip(found, float(low), float(high)))
    factor, offset = (_along(ctx, _parameter(ctx, v, "float32"), axis, ctx.rank(x)) for v in (scale, zero))
    steps = relay_op.add(relay_op.nearbyint(relay_op.divide(x, factor)), offset)
    return ctx.cast(typed(relay_op.clip(steps, float(low), float(high))), name)


def _along(ctx: TorchContext, value: RelayExpr, axis: int, rank: int) -> RelayExpr:
    after = rank - axis % rank - 1 if rank else 0
    return typed(relay_op.expand_dims(value, axis=1, num_newaxis=after)) if ctx.rank(value) and after else value


def _dequantized(ctx: TorchContext, x: RelayExpr, scale: Any, zero: Any, axis: int) -> RelayExpr:
    own = ctx.dtype(x)
    if own in _OF_ONNX:
        offset = None if zero is None else _parameter(ctx, zero, own)
        found: RelayExpr = ctx.part("DequantizeLinear", [x, _parameter(ctx, scale, "float32"), offset], axis=axis)
        return found
    factor, offset = (_along(ctx, _parameter(ctx, v, "float32"), axis, ctx.rank(x)) for v in (scale, zero or 0))
    return relay_op.multiply(relay_op.subtract(ctx.cast(x, "float32"), offset), factor)


@converter(f"{_NAME}quantize_per_tensor")
def convert_quantize(
    ctx: TorchContext, x: RelayExpr, scale: Any, zero: Any, low: int, high: int, dtype: Any
) -> RelayExpr:
    """Integers of one scale."""
    return _quantized(ctx, x, scale, zero, low, high, dtype, 0)


@converter(f"{_NAME}dequantize_per_tensor")
def convert_dequantize(
    ctx: TorchContext, x: RelayExpr, scale: Any, zero: Any, low: int, high: int, dtype: Any, out_dtype: Any = None
) -> RelayExpr:
    """Numbers of integers of one scale."""
    return _dequantized(ctx, x, scale, zero, 0)


@converter(f"{_NAME}quantize_per_channel")
def convert_quantize_per_channel(
    ctx: TorchContext, x: RelayExpr, scale: Any, zero: Any, axis: int, low: int, high: int, dtype: Any
) -> RelayExpr:
    """Integers of a scale for each channel."""
    return _quantized(ctx, x, scale, zero, low, high, dtype, axis)


@converter(f"{_NAME}dequantize_per_channel")
def convert_dequantize_per_channel(
    ctx: TorchContext, x: RelayExpr, scale: Any, zero: Any, axis: int, low: int, high: int, dtype: Any,
    out_dtype: Any = None,
) -> RelayExpr:  # fmt: skip
    """Numbers of integers of a scale for each channel."""
    return _dequantized(ctx, x, scale, zero, axis)


@converter(f"{_NAME}choose_qparams.tensor")
def convert_choose_parameters(
    ctx: TorchContext, x: RelayExpr, low: int, high: int, eps: float, dtype: Any
) -> list[RelayExpr]:
    """Scale and zero point for the range of the data, 0 included."""
    zero = const(0.0, "float32")
    x = ctx.cast(x, "float32")
    least, most = relay_op.minimum(relay_op.min(x), zero), relay_op.maximum(relay_op.max(x), zero)
    steps = const(float(high - low), "float32")
    scale = typed(relay_op.maximum(relay_op.divide(relay_op.subtract(most, least), steps), const(eps, "float32")))
    place = relay_op.subtract(const(float(low), "float32"), relay_op.nearbyint(relay_op.divide(least, scale)))
    point = relay_op.clip(place, float(low), float(high))
    return [ctx.reshape(typed(relay_op.cast(v, t)), [1]) for v, t in ((scale, "float64"), (point, "int64"))]
