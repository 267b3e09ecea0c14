"""Random numbers, by Threefry: the same in every run of a program, which has its seed inside."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import TupleGetItem, const
from tilewright.relay.frontend.onnx.attributes import dtype_of
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.op.random import threefry


def uniform(ctx: NodeContext, shape: Sequence[int], dtype: str = "float32") -> RelayExpr:
    """Numbers from [0, 1) by the attribute ``seed``; without one, by the position of the node in the model."""
    name = next((o for o in ctx.node.output if o), "")
    seed = ctx.attrs.get("seed")
    number = sum(name.encode()) if seed is None else int(np.float32(seed).view(np.uint32))
    drawn = threefry.uniform(
        threefry.threefry_key(number), tuple(shape), "float64" if dtype == "float64" else "float32"
    )
    return typed(TupleGetItem(typed(drawn), 1))


def _normal(ctx: NodeContext, shape: Sequence[int], dtype: str) -> RelayExpr:
    """Numbers of the standard normal distribution (Box and Muller, 1958)."""
    wide = "float64" if dtype == "float64" else "float32"
    pair = uniform(ctx, (2, *shape), wide)
    first, second = (relay_op.take(pair, const(i, "int32"), axis=0) for i in range(2))
    radius = relay_op.sqrt(const(-2.0, wide) * relay_op.log(const(1.0, wide) - first))
    return typed(relay_op.multiply(radius, relay_op.cos(const(2 * math.pi, wide) * second)))


def _drawn(ctx: NodeContext, shape: Sequence[int], dtype: str) -> RelayExpr:
    """Numbers of the node's distribution."""
    ctx.check_constant(shape, dtype)
    wide = "float64" if dtype == "float64" else "float32"
    if "Normal" in ctx.node.op_type:
        low, width = ctx.attr("mean", 0.0), ctx.attr("scale", 1.0)
        numbers = _normal(ctx, shape, dtype)
    else:
        low = ctx.attr("low", 0.0)
        width = ctx.attr("high", 1.0) - low
        numbers = uniform(ctx, shape, dtype)
    moved = relay_op.add(relay_op.multiply(numbers, const(width, wide)), const(low, wide))
    return relay_op.cast(moved, dtype) if dtype != wide else moved


@converter("RandomNormal", "RandomUniform")
def convert_random(ctx: NodeContext) -> RelayExpr:
    """Numbers of a shape."""
    return _drawn(ctx, ctx.required("shape"), dtype_of(ctx.attr("dtype", 1), "attribute 'dtype'"))


@converter("RandomNormalLike", "RandomUniformLike")
def convert_random_like(ctx: NodeContext) -> RelayExpr:
    """Numbers of the input's shape, and by default of its data type."""
    data = ctx.input(0)
    dtype = dtype_of(ctx.attr("dtype"), "attribute 'dtype'") if ctx.attr("dtype") else ctx.dtype(data)
    return _drawn(ctx, _known_shape(ctx, data), dtype)


@converter("Bernoulli", since=15)
def convert_bernoulli(ctx: NodeContext) -> RelayExpr:
    """1 with the probability that the input has, else 0."""
    data = ctx.input(0)
    dtype = dtype_of(ctx.attr("dtype"), "attribute 'dtype'") if ctx.attr("dtype") else ctx.dtype(data)
    wide = "float64" if ctx.dtype(data) == "float64" else "float32"
    drawn = uniform(ctx, _known_shape(ctx, data), wide)
    return relay_op.cast(relay_op.less(drawn, relay_op.cast(data, wide)), dtype)


@converter("Multinomial", since=7)
def convert_multinomial(ctx: NodeContext) -> RelayExpr:
    """Classes by the logarithms of their probabilities, ``sample_size`` for each row (by the Gumbel-max method)."""
    data = ctx.input(0)
    batch, classes = _known_shape(ctx, data)
    dtype = dtype_of(ctx.attr("dtype", 6), "attribute 'dtype'")
    drawn = uniform(ctx, (batch, ctx.attr("sample_size", 1), classes))
    least = const(2.0**-25, "float32")  # a uniform number may be 0
    noise = relay_op.negative(relay_op.log(relay_op.negative(relay_op.log(relay_op.add(drawn, least)))))
    logits = relay_op.expand_dims(relay_op.cast(data, "float32"), 1)
    return relay_op.cast(relay_op.argmax(relay_op.add(logits, noise), axis=-1), dtype)


def _known_shape(ctx: NodeContext, data: RelayExpr) -> tuple[int, ...]:
    if ctx.is_dynamic(data):
        ctx.unsupported(
            f"random numbers for a {ctx.tensor_type(data)}, whose dimensions are not all known; where the model was "
            "exported in training mode, call .eval() before the export; else give numbers for its inputs "
            "(--input-shape)"
        )
    return ctx.shape(data)


def dropout(ctx: NodeContext, data: RelayExpr, ratio: float) -> list[RelayExpr]:
    """Training's dropout: the kept elements, scaled, and the mask."""
    dtype = ctx.dtype(data)
    if not 0 <= ratio < 1 or not dt.is_float(dtype):
        ctx.fail(f"a ratio of {ratio}; it must be at least 0 and less than 1")
    kept = typed(relay_op.greater_equal(uniform(ctx, _known_shape(ctx, data)), const(ratio, "float32")))
    scaled = relay_op.multiply(data, const(1 / (1 - ratio), dtype))
    return [relay_op.where(kept, scaled, const(0.0, dtype)), kept]
