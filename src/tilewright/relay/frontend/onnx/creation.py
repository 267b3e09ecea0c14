"""Operators that make tensors: Constant, ConstantOfShape, Range, EyeLike, OneHot."""

from __future__ import annotations

import math

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.attributes import dtype_of
from tilewright.relay.frontend.onnx.context import NodeContext
from tilewright.relay.frontend.onnx.registry import converter


@converter("Constant")
def convert_constant(ctx: NodeContext) -> RelayExpr:
    """A constant, in any of the attribute's forms."""
    for name, dtype in (("value_float", "float32"), ("value_int", "int64")):
        if name in ctx.attrs:
            return const(np.array(ctx.attrs[name], dtype=dtype), dtype)
    for name, dtype in (("value_floats", "float32"), ("value_ints", "int64")):
        if name in ctx.attrs:
            return const(np.array(ctx.attrs[name], dtype=dtype), dtype)
    if "value" not in ctx.attrs:
        ctx.unsupported(f"Constant with the attributes {sorted(ctx.attrs)}")
    value = ctx.attrs["value"]
    return const(value, str(value.dtype))


@converter("ConstantOfShape")
def convert_constant_of_shape(ctx: NodeContext) -> RelayExpr:
    """A tensor filled with one value; the shape must be constant."""
    value = ctx.attr("value", np.zeros(1, dtype="float32")).reshape(-1)[0]
    shape = ctx.ints(0, "the shape")
    ctx.check_constant(shape, str(value.dtype))
    return const(np.full(shape, value), str(value.dtype))


@converter("Range")
def convert_range(ctx: NodeContext) -> RelayExpr:
    """Numbers from start to limit, all three constants."""
    start, limit, delta = (ctx.constant(i, what).reshape(()) for i, what in enumerate(("start", "limit", "delta")))
    if delta == 0:
        ctx.fail("the step of Range is 0")
    count = max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
    ctx.check_constant((count,), str(start.dtype))
    values = np.asarray(start + np.arange(count) * delta, dtype=start.dtype)
    return const(values, str(values.dtype))


@converter("EyeLike")
def convert_eye_like(ctx: NodeContext) -> RelayExpr:
    """Ones on a diagonal of a matrix of the input's shape."""
    data = ctx.input(0)
    rows, columns = ctx.shape(data)
    ctx.check_constant((rows, columns), "float32")
    dtype = dtype_of(ctx.attr("dtype"), "attribute 'dtype'") if ctx.attr("dtype") else ctx.dtype(data)
    return const(np.eye(rows, columns, k=ctx.attr("k", 0), dtype="float32").astype(dtype), dtype)


@converter("OneHot")
def convert_one_hot(ctx: NodeContext) -> RelayExpr:
    """One-hot encoding; negative indices count from the end."""
    indices = ctx.input(0)
    depth = int(ctx.scalar(1))
    values = ctx.input(2)
    dtype = ctx.dtype(values)
    rank = ctx.rank(indices)
    axis = ctx.attr("axis", -1)
    axis = axis + rank + 1 if axis < 0 else axis
    whole = relay_op.cast(indices, "int64")
    limit = const(np.array(depth, dtype="int64"), "int64")
    wrapped = relay_op.where(relay_op.less(whole, const(np.array(0, "int64"), "int64")), whole + limit, whole)
    off = relay_op.take(values, const(0, "int32"))
    on = relay_op.take(values, const(1, "int32"))
    return relay_op.one_hot(wrapped, on, off, depth, axis, dtype)
