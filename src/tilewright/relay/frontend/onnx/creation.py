"""Operators that create tensors: Constant, ConstantOfShape, Range, EyeLike, OneHot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.dynamic import counted, filled, integer, low_of, runtime_extent
from tilewright.relay.frontend.onnx.attributes import dtype_of
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.elements import difference
from tilewright.relay.frontend.onnx.indices import checked_range, checked_shape
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.strings import is_text
from tilewright.relay.op.dyn import range_of
from tilewright.topi.shape_checks import MOST_ELEMENTS

_MOST_CLASSES = 2**31 - 1  # of OneHot


@converter("Constant")
def convert_constant(ctx: NodeContext) -> RelayExpr:
    """A constant, in any of the attribute's forms."""
    for name, dtype in (("value_float", "float32"), ("value_int", "int64")):
        if name in ctx.attrs:
            return const(np.array(ctx.attrs[name], dtype=dtype), dtype)
    for name, dtype in (("value_floats", "float32"), ("value_ints", "int64")):
        if name in ctx.attrs:
            return const(np.array(ctx.attrs[name], dtype=dtype), dtype)
    for name in ("value_string", "value_strings"):
        if name in ctx.attrs:
            return const(ctx.strings.encode(np.array(ctx.attrs[name], dtype=object)))
    if "value" not in ctx.attrs:
        ctx.unsupported(f"Constant with the attributes {sorted(ctx.attrs)}")
    value = ctx.attrs["value"]
    if is_text(value):
        return const(ctx.strings.encode(value))
    return const(value, str(value.dtype))


@converter("ConstantOfShape")
def convert_constant_of_shape(ctx: NodeContext) -> RelayExpr:
    """A tensor filled with one value."""
    value = ctx.attr("value", np.zeros(1, dtype="float32")).reshape(-1)[0]
    dims = ctx.shape_elements(0)
    if dims is None:
        ctx.unsupported(f"how many dimensions its result has must be known; {ctx.node.input[0]!r} may have any length")
    dtype = str(value.dtype)
    if not all(map(is_number, dims)):
        shape = (
            checked_shape(ctx, 0, "shape", "the shape", "is negative, or too large") if None in dims else ctx.input(0)
        )
        return filled(const(value, dtype), dims, shape, dtype)
    ctx.check_constant(dims, dtype)
    return const(np.full(dims, value), dtype)


@converter("Range")
def convert_range(ctx: NodeContext) -> RelayExpr:
    """Numbers from start to limit."""
    values = [ctx.constant_if_known(i, what) for i, what in enumerate(("start", "limit", "delta"))]
    if any(v is None for v in values):
        return _range_at_run_time(ctx)
    start, limit, delta = (ctx.constant(i, what).reshape(()) for i, what in enumerate(("start", "limit", "delta")))
    if delta == 0:
        ctx.fail("the step of Range is 0")
    count = max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
    ctx.check_constant((count,), str(start.dtype))
    made = np.asarray(start + np.arange(count) * delta, dtype=start.dtype)
    return const(made, str(made.dtype))


def _checked_range(ctx: NodeContext, *numbers: RelayExpr) -> list[RelayExpr]:
    """Return start, limit and step, checked that a tensor can hold the range."""
    start, limit, step = numbers
    dtype = ctx.dtype(start)
    if dtype.startswith("float"):
        wide = [relay_op.cast(v, "float64") for v in numbers]
        count = relay_op.ceil(relay_op.divide(relay_op.subtract(wide[1], wide[0]), wide[2]))
        most = MOST_ELEMENTS + 1
        checked = checked_range(ctx, 1, most, "the number of elements", least=-most, values=typed(count))
        # What does not change the limit holds it back until the number is known to be in range.
        nothing = relay_op.cast(relay_op.greater(checked, const(np.array(float(most)), "float64")), dtype)
        return [start, relay_op.add(limit, nothing), step]
    given = relay_op.stack([relay_op.cast(v, "int64") for v in numbers], axis=0)
    found = checked_shape(
        ctx, 1, "range", "start, limit and step", "have a step of 0, or are too far apart", numbers=typed(given)
    )
    return [relay_op.cast(relay_op.take(found, integer(k, "int32")), dtype) for k in range(3)]


def _range_at_run_time(ctx: NodeContext) -> RelayExpr:
    numbers: list[RelayExpr] = [relay_op.reshape(ctx.input(i), newshape=()) for i in range(3)]
    first, last, step = (None if e is None else e.reshape(-1)[0] for e in map(ctx.elements, ctx.inputs()))
    if None in (first, last, step):
        numbers = _checked_range(ctx, *numbers)
    start, limit, delta = numbers
    if first == 0 and step == 1:
        return relay_op.cast(counted(limit, [last]), ctx.dtype(start))
    count = difference(last, first)
    if step == 1 and is_number(count) and count >= 0:  # past, ..., past + tokens - 1
        return relay_op.add(const(np.arange(count), ctx.dtype(start)), start)
    if step == 1 and count is not None and low_of(count) > 0:
        steps = counted(relay_op.subtract(limit, start), [count])
        return relay_op.add(relay_op.cast(steps, ctx.dtype(start)), start)
    return range_of(start, limit, delta, ctx.dtype(start))


@converter("EyeLike")
def convert_eye_like(ctx: NodeContext) -> RelayExpr:
    """Ones on a diagonal of a matrix of the input's shape."""
    data = ctx.input(0)
    if ctx.is_dynamic(data):
        return _eye_at_run_time(ctx, data)
    rows, columns = ctx.shape(data)
    ctx.check_constant((rows, columns), "float32")
    dtype = dtype_of(ctx.attr("dtype"), "attribute 'dtype'") if ctx.attr("dtype") else ctx.dtype(data)
    return const(np.eye(rows, columns, k=ctx.attr("k", 0), dtype="float32").astype(dtype), dtype)


def _eye_at_run_time(ctx: NodeContext, data: RelayExpr) -> RelayExpr:
    dtype = dtype_of(ctx.attr("dtype"), "attribute 'dtype'") if ctx.attr("dtype") else ctx.dtype(data)
    rows, columns = (counted(runtime_extent(data, axis), [ctx.dims(data)[axis]]) for axis in (0, 1))
    wanted = relay_op.add(relay_op.expand_dims(rows, axis=1), integer(ctx.attr("k", 0)))
    return relay_op.cast(relay_op.equal(columns, wanted), dtype)


@converter("OneHot")
def convert_one_hot(ctx: NodeContext) -> RelayExpr:
    """One-hot encoding; negative indices count from the end."""
    indices = ctx.input(0)
    known = ctx.constant_if_known(1, "the depth")
    depth: Any = None if known is None else int(known.reshape(-1)[0].item())
    values = ctx.input(2)
    dtype = ctx.dtype(values)
    rank = ctx.rank(indices)
    axis = ctx.attr("axis", -1)
    axis = axis + rank + 1 if axis < 0 else axis
    whole = relay_op.cast(indices, "int64")
    if depth is None:
        count = checked_range(ctx, 1, _MOST_CLASSES + 1, "depth", least=1)
        depth = relay_op.reshape(relay_op.cast(count, "int64"), newshape=())
    elif depth < 1:
        ctx.fail(f"the depth is {depth}; expected at least 1")
    limit = const(np.array(depth, dtype="int64"), "int64") if known is not None else depth
    wrapped = relay_op.where(relay_op.less(whole, const(np.array(0, "int64"), "int64")), whole + limit, whole)
    off = relay_op.take(values, const(0, "int32"))
    on = relay_op.take(values, const(1, "int32"))
    return relay_op.one_hot(wrapped, on, off, depth, axis, dtype)
