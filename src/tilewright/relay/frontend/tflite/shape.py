"""Operators that move elements: shapes, slices, joins, padding. Integers stay as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.tflite.context import FIRST, OperatorContext
from tilewright.relay.frontend.tflite.elementwise import same_scale
from tilewright.relay.frontend.tflite.registry import ANY, converter


@converter("RESHAPE")
def convert_reshape(ctx: OperatorContext) -> RelayExpr:
    """The same elements in another shape; -1 is what is left. One that is computed is known when the model runs."""
    if ctx.has(1) and ctx.constant_or_none(1) is not None:
        wanted = list(ctx.ints(1, "its shape"))
    elif ctx.operator.options is not None and len(ctx.option("new_shape")):
        wanted = [int(d) for d in ctx.option("new_shape")]
        wanted = [] if wanted == [0] else wanted  # how old writers write a scalar
    else:
        wanted = list(ctx.out().shape)
        if ctx.has(1) and math.prod(wanted) != math.prod(
            ctx.shape(ctx.raw(0))
        ):  # a file writes 1 for what it leaves open
            return relay_op.reshape(ctx.raw(0), ctx.plain(1))
    shape, size = ctx.shape(ctx.raw(0)), math.prod(ctx.shape(ctx.raw(0)))
    known = math.prod(d for d in wanted if d != -1)
    if wanted.count(-1) == 1 and known:
        wanted[wanted.index(-1)] = size // known
    if min(wanted, default=0) < 0 or math.prod(wanted) != size:
        ctx.fail(f"its data of shape {shape} do not have the shape {tuple(wanted)}")
    return relay_op.reshape(ctx.raw(0), tuple(wanted), allowzero=True)


@converter("SQUEEZE")
def convert_squeeze(ctx: OperatorContext) -> RelayExpr:
    """Without dimensions of 1: those listed, or all."""
    shape = ctx.shape(ctx.raw(0))
    listed = [ctx.axis(int(a), len(shape)) for a in ctx.option("squeeze_dims", np.zeros(0, int))]
    gone = listed or [i for i, d in enumerate(shape) if d == 1]
    if any(shape[a] != 1 for a in gone):
        ctx.fail(f"dimensions {gone} of {shape} are not all 1")
    return relay_op.reshape(ctx.raw(0), tuple(d for i, d in enumerate(shape) if i not in gone), allowzero=True)


@converter("EXPAND_DIMS")
def convert_expand_dims(ctx: OperatorContext) -> RelayExpr:
    """One more dimension, of 1."""
    (axis,) = ctx.ints(1, "its axis")
    return relay_op.expand_dims(ctx.raw(0), ctx.axis(axis, ctx.rank(ctx.raw(0)) + 1))


@converter("TRANSPOSE")
def convert_transpose(ctx: OperatorContext) -> RelayExpr:
    """Dimensions in another order."""
    return relay_op.transpose(ctx.raw(0), axes=ctx.ints(1, "its order"))


@converter("CONCATENATION", form=ANY)
def convert_concatenation(ctx: OperatorContext) -> RelayExpr:
    """Tensors one behind the other; of other scales than the result's they are rescaled."""
    out = ctx.out()
    axis = ctx.axis(int(ctx.option("axis")), ctx.rank(ctx.raw(0)))
    alike = all(same_scale(ctx.tensor(i), out) for i in range(ctx.num_inputs))
    if alike and not (out.is_quantized and ctx.option("activation")):
        joined = relay_op.concatenate([ctx.raw(i) for i in range(ctx.num_inputs)], axis=axis)
        return joined if out.is_quantized else ctx.activation(joined)
    parts = [_rescaled(ctx, i) for i in range(ctx.num_inputs)]
    return relay_op.concatenate(parts, axis=axis)


def _rescaled(ctx: OperatorContext, index: int) -> RelayExpr:
    same = same_scale(ctx.tensor(index), ctx.out()) and not ctx.option("activation")
    return ctx.raw(index) if same else ctx.finished(ctx.real(index))


@converter("SPLIT", form=ANY)
def convert_split(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """Parts of equal size along an axis."""
    (axis,) = ctx.ints(0, "its axis")
    count, data = int(ctx.option("num_splits")), ctx.raw(1)
    place = ctx.axis(axis, ctx.rank(data))
    if count < 1 or ctx.shape(data)[place] % count:
        ctx.fail(f"{count} equal parts of the dimension {ctx.shape(data)[place]}")
    return list(relay_op.split(data, count, axis=place)) if count > 1 else [data]


@converter("SPLIT_V", form=ANY)
def convert_split_v(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """Parts of given sizes along an axis; -1 is what is left."""
    (axis,), sizes, data = ctx.ints(2, "its axis"), list(ctx.ints(1, "its sizes")), ctx.raw(0)
    place = ctx.axis(axis, ctx.rank(data))
    extent = ctx.shape(data)[place]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = extent - sum(s for s in sizes if s != -1)
    if min(sizes, default=-1) < 0 or sum(sizes) != extent:
        ctx.fail(f"parts of {sizes} of the dimension {extent}")
    ends = np.cumsum(sizes).tolist()
    return [
        relay_op.strided_slice(data, [end - size], [end], axes=[place]) for end, size in zip(ends, sizes, strict=True)
    ]


@converter("PACK")
def convert_pack(ctx: OperatorContext) -> RelayExpr:
    """Tensors along a new axis."""
    parts = [ctx.raw(i) for i in range(ctx.num_inputs)]
    return relay_op.stack(parts, axis=ctx.axis(int(ctx.option("axis")), ctx.rank(parts[0]) + 1))


@converter("UNPACK")
def convert_unpack(ctx: OperatorContext) -> Sequence[RelayExpr]:
    """The entries of an axis, which goes."""
    data = ctx.raw(0)
    axis = ctx.axis(int(ctx.option("axis")), ctx.rank(data))
    ctx.write_out(ctx.shape(data)[axis], "its results")
    return [relay_op.take(data, const(i, "int32"), axis=axis, mode="fast") for i in range(ctx.shape(data)[axis])]


# ------------------------------------------------------------------------------------------- padding


def _widths(ctx: OperatorContext) -> list[tuple[int, int]]:
    """Return how many elements are added before and behind each dimension, in the order of the tensors at hand."""
    widths = ctx.constant(1, "its padding")
    rank = ctx.rank(ctx.raw(0))
    if widths.shape != (rank, 2) or (widths < 0).any():
        ctx.fail(f"its padding {widths.tolist()} is not one pair for each of {rank} dimensions")
    pairs = [(int(a), int(b)) for a, b in widths]
    shape = [ctx.shape(ctx.raw(0))[ctx.axis_of(i, rank)] + a + b for i, (a, b) in enumerate(pairs)]
    ctx.check_size(shape, ctx.dtype(ctx.raw(0)))
    return [pairs[axis] for axis in FIRST] if ctx.first and rank == 4 else pairs


@converter("PAD", "PADV2", form=ANY)
def convert_pad(ctx: OperatorContext) -> RelayExpr:
    """A border of one value: 0 where none is given, which is the zero point of integers."""
    dtype = ctx.dtype(ctx.raw(0))
    value = np.asarray(ctx.out().zero[0] if ctx.out().is_quantized else 0).astype(dtype)
    if ctx.has(2):
        value = ctx.constant(2, "what it pads with").reshape(-1)[0].astype(dtype)
    return relay_op.nn.pad(ctx.raw(0), _widths(ctx), const(value))


@converter("MIRROR_PAD", form=ANY)
def convert_mirror_pad(ctx: OperatorContext) -> RelayExpr:
    """A border that mirrors what is inside, with (1) or without (0) the edge itself."""
    return relay_op.nn.mirror_pad(ctx.raw(0), _widths(ctx), "SYMMETRIC" if ctx.option("mode", 0) else "REFLECT")


# ------------------------------------------------------------------------------------------- slices


@converter("SLICE", form=ANY)
def convert_slice(ctx: OperatorContext) -> RelayExpr:
    """A part by its begin and size; -1 is what is left."""
    begin, size = ctx.ints(1, "its begin"), ctx.ints(2, "its size")
    data = ctx.raw(0)
    rank = ctx.rank(data)
    axes = [ctx.axis_of(i, rank) for i in range(rank)]
    shape = ctx.shape(data)
    if len(begin) != rank or len(size) != rank:
        ctx.fail(f"its begin {begin} and size {size} do not fit {rank} dimensions")
    end = [shape[a] if s == -1 else b + s for a, b, s in zip(axes, begin, size, strict=True)]
    if any(b < 0 or e < b or e > shape[a] for a, b, e in zip(axes, begin, end, strict=True)):
        ctx.fail(f"its begin {begin} and size {size} leave the shape {[shape[a] for a in axes]}")
    cut = [i for i in range(rank) if (begin[i], end[i]) != (0, shape[axes[i]])]
    if not cut:
        return data
    return relay_op.strided_slice(data, [begin[i] for i in cut], [end[i] for i in cut], axes=[axes[i] for i in cut])


@converter("STRIDED_SLICE")
def convert_strided_slice(ctx: OperatorContext) -> RelayExpr:
    """A part by begin, end and stride, as Python's slices; bits of masks say what holds for which of them."""
    begin, end, strides = (ctx.ints(i, what) for i, what in ((1, "its begin"), (2, "its end"), (3, "its stride")))
    shape = ctx.shape(ctx.raw(0))
    masks = {n: int(ctx.option(f"{n}_mask", 0)) for n in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    if not len(begin) == len(end) == len(strides):
        ctx.fail(f"its begin {begin}, end {end} and stride {strides} have several lengths")
    if ctx.option("offset", False):
        end = tuple(b + e for b, e in zip(begin, end, strict=True))
    new = [i for i in range(len(begin)) if masks["new_axis"] >> i & 1 and not masks["ellipsis"] >> i & 1]
    inside = len(shape) - (len(begin) - len(new) - bool(masks["ellipsis"]))
    parts: list[slice] = []
    made: list[int] = []  # the shape of the result
    for i in range(len(begin)):
        if masks["ellipsis"] >> i & 1:
            made += shape[len(parts) : len(parts) + inside]
            parts += [slice(None)] * inside
        elif i in new:
            made.append(1)
        elif len(parts) >= len(shape):
            ctx.fail(f"its begin {begin} has more entries than the shape {shape}")
        else:
            part, count = _part(
                ctx, shape[len(parts)], begin[i], end[i], strides[i], {n: m >> i & 1 for n, m in masks.items()}
            )
            parts.append(part)
            made += [] if masks["shrink_axis"] >> i & 1 else [count]
    made += shape[len(parts) :]
    return relay_op.reshape(_cut(ctx.raw(0), shape, parts), tuple(made), allowzero=True)


def _part(
    ctx: OperatorContext, extent: int, begin: int, end: int, stride: int, masks: dict[str, int]
) -> tuple[slice, int]:
    if not stride:
        ctx.fail("a stride is 0")
    if masks["shrink_axis"]:
        place = begin + extent if begin < 0 else begin
        if not 0 <= place < extent:
            ctx.fail(f"entry {begin} of a dimension of {extent}")
        return slice(place, place + 1, 1), 1
    part = slice(None if masks["begin"] else begin, None if masks["end"] else end, stride)
    return part, len(range(*part.indices(extent)))


def _cut(data: RelayExpr, shape: Sequence[int], parts: Sequence[slice]) -> RelayExpr:
    axes = [i for i, p in enumerate(parts) if p.indices(shape[i]) != (0, shape[i], 1)]
    if not axes:
        return data
    found = [parts[i].indices(shape[i]) for i in axes]
    begin, end, strides = ([f[k] for f in found] for k in range(3))
    # An end of -1 means behind the first element when going backwards, and is the last one to Relay.
    end = [e if e >= 0 else -shape[i] - 1 for e, i in zip(end, axes, strict=True)]
    return relay_op.strided_slice(data, begin, end, strides, axes=axes)


@converter("DYNAMIC_UPDATE_SLICE")
def convert_dynamic_update_slice(ctx: OperatorContext) -> RelayExpr:
    """Data with a block replaced by another tensor, which lies inside."""
    data, update, starts = ctx.raw(0), ctx.raw(1), ctx.raw(2)
    shape, block = ctx.shape(data), ctx.shape(update)
    slack = np.array(shape) - np.array(block)
    starts = relay_op.maximum(relay_op.minimum(relay_op.cast(starts, "int64"), const(slack)), const(0, "int64"))
    places = np.stack(np.meshgrid(*map(np.arange, block), indexing="ij")).reshape(len(block), -1)
    ctx.check_size(places.shape, "int64")
    indices = relay_op.add(const(places), relay_op.reshape(starts, (-1, 1)))
    return relay_op.scatter_nd(data, indices, relay_op.reshape(update, (-1,)))


# ------------------------------------------------------------------------------------------- repeats and reversals


@converter("TILE")
def convert_tile(ctx: OperatorContext) -> RelayExpr:
    """Repetitions along each dimension."""
    reps, shape = ctx.ints(1, "its repetitions"), ctx.shape(ctx.raw(0))
    if len(reps) != len(shape) or min(reps, default=0) < 0:
        ctx.fail(f"its repetitions {reps} do not fit the shape {shape}")
    ctx.check_size([d * r for d, r in zip(shape, reps, strict=True)], ctx.dtype(ctx.raw(0)))
    return relay_op.tile(ctx.raw(0), reps) if reps else ctx.raw(0)


@converter("BROADCAST_TO")
def convert_broadcast_to(ctx: OperatorContext) -> RelayExpr:
    """Dimensions of 1 repeated up to a shape."""
    shape = ctx.ints(1, "its shape")
    ctx.check_size(shape, ctx.dtype(ctx.raw(0)))
    return relay_op.broadcast_to(ctx.raw(0), shape)


@converter("BROADCAST_ARGS")
def convert_broadcast_args(ctx: OperatorContext) -> RelayExpr:
    """The shape that two shapes broadcast to."""
    shape = np.broadcast_shapes(ctx.ints(0, "a shape"), ctx.ints(1, "a shape"))
    return const(np.array(shape, ctx.out().dtype))


@converter("REVERSE_V2")
def convert_reverse_v2(ctx: OperatorContext) -> RelayExpr:
    """Axes backwards."""
    value = ctx.raw(0)
    for axis in ctx.ints(1, "its axes"):
        value = relay_op.reverse(value, ctx.axis(axis, ctx.rank(ctx.raw(0))))
    return value


@converter("REVERSE_SEQUENCE")
def convert_reverse_sequence(ctx: OperatorContext) -> RelayExpr:
    """The first elements of each sequence backwards."""
    axes = int(ctx.option("sequence_axis")), int(ctx.option("batch_axis"))
    return relay_op.reverse_sequence(ctx.raw(0), ctx.raw(1), *axes)


@converter("SPACE_TO_BATCH_ND")
def convert_space_to_batch_nd(ctx: OperatorContext) -> RelayExpr:
    """Pixels of blocks as images of their own."""
    pads = ctx.constant(2, "its padding").tolist()
    value = ctx.out().zero[0] if ctx.out().is_quantized else 0
    return relay_op.nn.space_to_batch_nd(ctx.raw(0), ctx.ints(1, "its block"), pads, float(value))


@converter("BATCH_TO_SPACE_ND")
def convert_batch_to_space_nd(ctx: OperatorContext) -> RelayExpr:
    """Images as pixels of blocks."""
    return relay_op.nn.batch_to_space_nd(ctx.raw(0), ctx.ints(1, "its block"), ctx.constant(2, "its crops").tolist())


# ------------------------------------------------------------------------------------------- known from shapes


@converter("SHAPE")
def convert_shape(ctx: OperatorContext) -> RelayExpr:
    """The dimensions; those of a tensor with unknown ones are known when the model runs."""
    data, dtype = ctx.plain(0), ctx.dtype_option("out_type", 2)
    if ctx.tensor_type(data).is_dynamic:
        return relay_op.shape_of(data, dtype)
    return const(np.array(ctx.shape(data), dtype))


@converter("RANK")
def convert_rank(ctx: OperatorContext) -> RelayExpr:
    """The number of dimensions."""
    return const(np.array(ctx.rank(ctx.plain(0)), "int32"))


@converter("FILL")
def convert_fill(ctx: OperatorContext) -> RelayExpr:
    """One value in a shape."""
    shape = ctx.ints(0, "its shape")
    ctx.check_size(shape, ctx.dtype(ctx.raw(1)))
    return relay_op.broadcast_to(ctx.raw(1), shape)


@converter("RANGE")
def convert_range(ctx: OperatorContext) -> RelayExpr:
    """Numbers from a first one up to a last one, in steps; of computed bounds, so many as there are in a run."""
    if any(ctx.constant_or_none(i) is None for i in range(3)):
        first, last, by = (relay_op.reshape(ctx.raw(i), ()) for i in range(3))
        return relay_op.arange(first, last, by, ctx.out().dtype)
    start, stop, step = (ctx.constant(i, "a bound").reshape(-1)[0] for i in range(3))
    if not step:
        ctx.fail("its step is 0")
    ctx.check_size((max(math.ceil((float(stop) - float(start)) / float(step)), 0),), ctx.out().dtype)
    return const(np.arange(start, stop, step, dtype=ctx.out().dtype))


@converter("DENSIFY")
def convert_densify(ctx: OperatorContext) -> RelayExpr:
    """A sparse constant, which is dense since the file was read."""
    return ctx.raw(0)
