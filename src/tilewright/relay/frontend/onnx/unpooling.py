"""MaxUnpool, Col2Im, TensorScatter and BitCast."""

from __future__ import annotations

import math

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.onnx.context import NodeContext, typed
from tilewright.relay.frontend.onnx.indices import checked_range
from tilewright.relay.frontend.onnx.registry import converter


@converter("BitCast", since=26)
def convert_bitcast(ctx: NodeContext) -> RelayExpr:
    """The bits of every element as another data type of the same width."""
    data, dtype = ctx.input(0), ctx.onnx_dtype(ctx.required("to"))
    if dt.nbytes(ctx.dtype(data)) != dt.nbytes(dtype):
        ctx.fail(f"{ctx.dtype(data)} and {dtype} have different sizes")
    if "bool" in (dtype, ctx.dtype(data)):  # a byte of 0 or 1
        return relay_op.cast(data, dtype)
    return relay_op.reinterpret(data, dtype) if ctx.dtype(data) != dtype else data


@converter("MaxUnpool", since=9)
def convert_max_unpool(ctx: NodeContext) -> RelayExpr:
    """Values at the indices of MaxPool, zeros elsewhere; indices count in the tensor of the implied shape."""
    data = ctx.input(0)
    shape = ctx.shape(data)
    rank = len(shape) - 2
    kernel = ctx.required("kernel_shape")
    strides, pads = ctx.attr("strides", (1,) * rank), ctx.attr("pads", (0,) * 2 * rank)
    implied = [*shape[:2]]
    for i in range(rank):
        implied.append((shape[2 + i] - 1) * strides[i] - pads[i] - pads[i + rank] + kernel[i])
    out = ctx.ints(2, "the output's shape") if ctx.has_input(2) else tuple(implied)
    if any(a < b for a, b in zip(out, implied, strict=True)):
        ctx.fail(f"output_shape {tuple(out)} is smaller than the shape {tuple(implied)} that is unpooled")
    flat = lambda x: relay_op.reshape(x, newshape=(-1,))  # noqa: E731
    empty = relay_op.zeros((math.prod(implied),), ctx.dtype(data))
    places = checked_range(ctx, 1, math.prod(implied), "index")
    filled = relay_op.reshape(relay_op.scatter(empty, flat(places), flat(data), axis=0), newshape=tuple(implied))
    widths = [(0, a - b) for a, b in zip(out, implied, strict=True)]
    return relay_op.nn.pad(filled, widths) if any(after for _, after in widths) else filled


@converter("Col2Im", since=18)
def convert_col2im(ctx: NodeContext) -> RelayExpr:
    """An image of the sums of overlapping blocks, which are the columns of the input."""
    data = ctx.input(0)
    image, block = ctx.ints(1, "the image's shape"), ctx.ints(2, "the block's shape")
    rank = len(image)
    strides, dilations = ctx.attr("strides", (1,) * rank), ctx.attr("dilations", (1,) * rank)
    pads = ctx.attr("pads", (0,) * 2 * rank)
    batch, rows, columns = ctx.shape(data)
    size = math.prod(block)
    if rows % size:
        ctx.fail(f"{rows} rows are no whole number of blocks of {size}")
    padded = [image[i] + pads[i] + pads[i + rank] for i in range(rank)]
    counts = [(padded[i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(rank)]
    if math.prod(counts) != columns:
        ctx.fail(f"an image of {image} has {math.prod(counts)} blocks, but there are {columns} columns")
    places = np.zeros((*block, *counts), np.int64)
    for i in range(rank):
        inside = np.arange(block[i]).reshape([-1 if j == i else 1 for j in range(2 * rank)])
        start = np.arange(counts[i]).reshape([-1 if j == rank + i else 1 for j in range(2 * rank)])
        places = places * padded[i] + inside * dilations[i] + start * strides[i]
    channels = rows // size
    updates = relay_op.reshape(data, newshape=(batch * channels, size * columns))
    empty = relay_op.zeros((math.prod(padded), batch * channels), ctx.dtype(data))
    where = const(places.reshape(1, -1), "int64")
    sums = relay_op.scatter_nd(empty, where, relay_op.transpose(updates, axes=(1, 0)), mode="add")
    whole = relay_op.reshape(relay_op.transpose(sums, axes=(1, 0)), newshape=(batch, channels, *padded))
    ends = [pads[i] + image[i] for i in range(rank)]
    return relay_op.strided_slice(whole, list(pads[:rank]), ends, axes=[2 + i for i in range(rank)])


@converter("TensorScatter", since=24)
def convert_tensor_scatter(ctx: NodeContext) -> RelayExpr:
    """A cache with new entries along an axis, from an index for each batch item on."""
    past, update = ctx.input(0), ctx.input(1)
    shape, rank = ctx.shape(past), ctx.rank(past)
    axis = ctx.normalize_axis(ctx.attr("axis", -2), rank)
    length, added = shape[axis], ctx.shape(update)[axis]
    circular = ctx.attr("mode", "linear") == "circular"
    if added > length:
        ctx.fail(f"{added} entries do not fit axis {axis} of the cache, whose extent is {length}")
    start: RelayExpr = const(np.zeros(shape[0]), "int64")
    if ctx.has_input(2):
        start = checked_range(ctx, 2, length if circular else length - added + 1, "start")
    along = lambda x: relay_op.reshape(x, newshape=tuple(-1 if i == axis else 1 for i in range(rank)))  # noqa: E731
    first = relay_op.reshape(start, newshape=(-1, *[1] * (rank - 1)))
    offset = relay_op.subtract(along(const(np.arange(length), "int64")), first)
    if circular:
        offset = relay_op.floor_mod(offset, const(length, "int64"))
    inside = relay_op.logical_and(
        relay_op.greater_equal(offset, const(0, "int64")), relay_op.less(offset, const(added, "int64"))
    )
    places = typed(relay_op.broadcast_to(relay_op.clip(offset, 0, added - 1), shape))
    return relay_op.where(relay_op.broadcast_to(inside, shape), relay_op.gather(update, axis, places), past)
