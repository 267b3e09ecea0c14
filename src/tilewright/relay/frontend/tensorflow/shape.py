"""Shapes: reshapes, slices, joins, padding, repetitions, and tensors made of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dimensions import is_number
from tilewright.relay.frontend.dynamic import FAR, broadcast_shape
from tilewright.relay.frontend.tensorflow.context import NodeContext, channels_first_order, channels_last_order
from tilewright.relay.frontend.tensorflow.registry import converter


def vector(ctx: NodeContext, index: int) -> RelayExpr:
    """Return the integers in an input as a vector of int64."""
    found = ctx.cast(ctx.input(index), "int64")
    return found if ctx.rank(found) == 1 else ctx.part("Reshape", [found, ctx.int64([-1])])


@converter("Reshape")
def convert_reshape(ctx: NodeContext) -> RelayExpr:
    """Another shape; -1 is inferred."""
    return ctx.part("Reshape", [ctx.input(0), vector(ctx, 1)], allowzero=1)


@converter("Squeeze")
def convert_squeeze(ctx: NodeContext) -> RelayExpr:
    """Without dimensions of 1: the listed ones, or all."""
    data, rank = ctx.input(0), ctx.rank(ctx.input(0))
    axes = sorted({ctx.axis(int(a), rank) for a in ctx.attr("squeeze_dims") or ctx.attr("axis") or []})
    dims = ctx.dims(data)
    axes = axes or [i for i, d in enumerate(dims) if is_number(d) and d == 1]
    return ctx.part("Squeeze", [data, ctx.int64(axes)]) if axes else data


@converter("ExpandDims")
def convert_expand_dims(ctx: NodeContext) -> RelayExpr:
    """A new dimension of 1."""
    return ctx.part("Unsqueeze", [ctx.input(0), ctx.int64([ctx.scalar(1, "the axis")])])


@converter("Transpose", "ConjugateTranspose")
def convert_transpose(ctx: NodeContext) -> RelayExpr:
    """Dimensions in another order."""
    data, order = ctx.input(0), ctx.ints(1, "the order")
    rank = ctx.rank(data)
    if sorted(order) != list(range(rank)):
        ctx.fail(f"its order is {order} for a tensor of rank {rank}")
    if order == tuple(range(rank)):
        return data
    if rank >= 3 and order == channels_first_order(rank):
        return ctx.channels_first(data)
    if rank >= 3 and order == channels_last_order(rank) and not ctx.is_image(data):
        return ctx.channels_last(data)
    return typed(relay_op.transpose(data, axes=order))


# ---- what is known of shapes ----


@converter("Shape")
def convert_shape(ctx: NodeContext) -> RelayExpr:
    """The dimensions."""
    return ctx.cast(ctx.part("Shape", [ctx.input(0)]), ctx.attr("out_type", "int32"))


@converter("Size")
def convert_size(ctx: NodeContext) -> RelayExpr:
    """The number of elements."""
    return ctx.cast(ctx.part("Size", [ctx.input(0)]), ctx.attr("out_type", "int32"))


@converter("Rank")
def convert_rank(ctx: NodeContext) -> RelayExpr:
    """The number of dimensions."""
    return const(np.array(ctx.rank(ctx.input(0)), "int32"))


@converter("BroadcastArgs")
def convert_broadcast_args(ctx: NodeContext) -> RelayExpr:
    """The shape that two shapes broadcast to."""
    known = [ctx.constant_or_none(ctx.input(i)) for i in range(2)]
    dtype = ctx.dtype(ctx.input(0))
    if known[0] is not None and known[1] is not None:
        return const(np.array(np.broadcast_shapes(tuple(known[0]), tuple(known[1])), dtype))
    a, b = vector(ctx, 0), vector(ctx, 1)
    return ctx.cast(typed(broadcast_shape(a, ctx.shape(a)[0], b, ctx.shape(b)[0])), dtype)


@converter("BroadcastTo")
def convert_broadcast_to(ctx: NodeContext) -> RelayExpr:
    """Dimensions of 1 repeated up to a shape."""
    return ctx.part("Expand", [ctx.input(0), vector(ctx, 1)])


@converter("Fill")
def convert_fill(ctx: NodeContext) -> RelayExpr:
    """One value in a shape."""
    return ctx.part("Expand", [ctx.input(1), vector(ctx, 0)])


@converter("Tile")
def convert_tile(ctx: NodeContext) -> RelayExpr:
    """Repetitions along each dimension."""
    return ctx.part("Tile", [ctx.input(0), vector(ctx, 1)]) if ctx.rank(ctx.input(0)) else ctx.input(0)


@converter("Range")
def convert_range(ctx: NodeContext) -> RelayExpr:
    """Numbers from a first one up to a last one, in steps."""
    return ctx.part("Range", ctx.inputs())


@converter("LinSpace")
def convert_lin_space(ctx: NodeContext) -> RelayExpr:
    """So many numbers from a first to a last one, at equal distances."""
    start, stop, count = (ctx.scalar(i, what) for i, what in enumerate(("the first", "the last", "the count")))
    return const(np.linspace(start, stop, int(count), dtype=ctx.dtype(ctx.input(0))))


# ---- joins and parts ----


@converter("ConcatV2")
def convert_concat_v2(ctx: NodeContext) -> RelayExpr:
    """Tensors joined along an axis."""
    return _joined(ctx, ctx.inputs(0, ctx.num_inputs - 1), int(ctx.scalar(ctx.num_inputs - 1, "the axis")))


@converter("Concat")
def convert_concat(ctx: NodeContext) -> RelayExpr:
    """Tensors joined along the axis in the first input."""
    return _joined(ctx, ctx.inputs(1), int(ctx.scalar(0, "the axis")))


def _joined(ctx: NodeContext, parts: Sequence[RelayExpr], axis: int) -> RelayExpr:
    rank = ctx.rank(parts[0])
    axis = ctx.axis(axis, rank)
    if any(map(ctx.is_image, parts)):
        whole = ctx.part(
            "Concat", [ctx.channels_first(p) for p in parts], axis=channels_first_order(rank).index(axis)
        )  # fmt: skip
        return ctx.channels_last(whole)
    return ctx.part("Concat", parts, axis=axis)


@converter("Pack")
def convert_pack(ctx: NodeContext) -> RelayExpr:
    """Tensors joined along a new axis."""
    axis = ctx.axis(int(ctx.attr("axis", 0)), ctx.rank(ctx.input(0)) + 1)
    parts = [ctx.part("Unsqueeze", [x, ctx.int64([axis])]) for x in ctx.inputs()]
    return ctx.part("Concat", parts, axis=axis)


@converter("Unpack")
def convert_unpack(ctx: NodeContext) -> list[RelayExpr]:
    """The parts along an axis."""
    data = ctx.input(0)
    axis = ctx.axis(int(ctx.attr("axis", 0)), ctx.rank(data))
    count = int(ctx.attr("num", 0)) or ctx.shape(data)[axis]
    ctx.write_out(count, f"its {count} parts")
    if ctx.rank(data) == 1:
        return [ctx.part("Gather", [data, const(np.array(i, "int64"))], axis=0) for i in range(count)]
    parts = [data] if count == 1 else [typed(p) for p in relay_op.split(data, count, axis=axis)]
    return [typed(relay_op.squeeze(p, axis=[axis])) for p in parts]


def _split(ctx: NodeContext, data: RelayExpr, axis: int, sizes: Sequence[int]) -> list[RelayExpr]:
    rank = ctx.rank(data)
    axis = ctx.axis(axis, rank)
    image = ctx.is_image(data)
    whole, place = (ctx.channels_first(data), channels_first_order(rank).index(axis)) if image else (data, axis)
    if len(sizes) == 1:
        return [data]
    made = ctx.part("Split", [whole, ctx.int64(sizes)], axis=place, outputs=len(sizes))
    return [ctx.channels_last(m) for m in made] if image else list(made)


@converter("Split")
def convert_split(ctx: NodeContext) -> list[RelayExpr]:
    """Equal parts along an axis."""
    data, axis, count = ctx.input(1), int(ctx.scalar(0, "the axis")), int(ctx.required("num_split"))
    extent = ctx.dims(data)[ctx.axis(axis, ctx.rank(data))]
    if not is_number(extent) or count < 1 or extent % count:
        ctx.unsupported(f"{count} equal parts of an extent of {extent}")
    return _split(ctx, data, axis, [extent // count] * count)


@converter("SplitV")
def convert_split_v(ctx: NodeContext) -> list[RelayExpr]:
    """Parts of given sizes along an axis; one may be -1."""
    data, sizes, axis = ctx.input(0), list(ctx.ints(1, "the sizes")), int(ctx.scalar(2, "the axis"))
    if -1 in sizes:
        extent = ctx.dims(data)[ctx.axis(axis, ctx.rank(data))]
        if not is_number(extent):
            ctx.unsupported(f"a part of what is left of an extent of {extent}")
        sizes[sizes.index(-1)] = extent - sum(s for s in sizes if s != -1)
    return _split(ctx, data, axis, sizes)


@converter("Slice")
def convert_slice(ctx: NodeContext) -> RelayExpr:
    """A block by its begin and its size; a size of -1 reaches to the end."""
    begin, size = vector(ctx, 1), vector(ctx, 2)
    far = ctx.int64([FAR])
    to_end = ctx.part("Equal", [size, ctx.int64([-1])])
    end = ctx.part("Where", [to_end, far, ctx.part("Add", [begin, size])])
    return ctx.part("Slice", [ctx.input(0), begin, end])


class _Slices:
    """The plan of a StridedSlice: which dimensions are cut, dropped and new."""

    def __init__(self, ctx: NodeContext, rank: int, count: int) -> None:
        masks = {n: int(ctx.attr(f"{n}_mask", 0)) for n in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
        self.cut: list[tuple[int, int]] = []  # axes, and the entries that cut them
        self.dropped: list[tuple[int, int]] = []
        self.result: list[bool] = []  # of each dimension of the result: whether it is new
        self.open = {"begin": masks["begin"], "end": masks["end"]}
        ellipses = [i for i in range(count) if masks["ellipsis"] >> i & 1]
        new = sum(masks["new_axis"] >> i & 1 for i in range(count) if i not in ellipses)
        inside = rank - (count - new - len(ellipses))
        axis = 0
        for i in range(count):
            if i in ellipses:
                axis += max(inside, 0)
                self.result += [False] * inside
            elif masks["new_axis"] >> i & 1:
                self.result.append(True)
            else:
                if axis >= rank:
                    ctx.fail(f"it has entries for {axis + 1} dimensions; its data have the rank {rank}")
                drops = masks["shrink_axis"] >> i & 1
                (self.dropped if drops else self.cut).append((axis, i))
                self.result += [] if drops else [False]
                axis += 1
        self.result += [False] * (rank - axis)


@converter("StridedSlice")
def convert_strided_slice(ctx: NodeContext) -> RelayExpr:
    """A part by begin, end and stride, as Python's slices; bits of masks say what holds for which of them."""
    data, begin, end = ctx.input(0), vector(ctx, 1), vector(ctx, 2)
    strides = ctx.ints(3, "the stride")
    plan = _Slices(ctx, ctx.rank(data), len(strides))
    if plan.cut:
        data = _cut(ctx, data, plan, begin, end, strides)
    for axis, entry in reversed(plan.dropped):
        data = _dropped(ctx, data, axis, _entry(ctx, begin, entry))
    new = [i for i, is_new in enumerate(plan.result) if is_new]
    return ctx.part("Unsqueeze", [data, ctx.int64(new)]) if new else data


def _entry(ctx: NodeContext, values: RelayExpr, place: int) -> RelayExpr:
    return ctx.part("Gather", [values, const(np.array(place, "int64"))], axis=0)


def _dropped(ctx: NodeContext, data: RelayExpr, axis: int, index: RelayExpr) -> RelayExpr:
    """Return one place of a dimension, which is dropped."""
    known, extent = ctx.constant_or_none(index), ctx.dims(data)[axis]
    if known is not None and ctx.rank(data) > 1 and is_number(extent):
        place = int(known.reshape(-1)[0])
        place += extent if place < 0 else 0
        if not 0 <= place < extent:
            ctx.fail(f"entry {place} of a dimension of {extent}")
        part = relay_op.strided_slice(data, [place], [place + 1], axes=[axis])
        return typed(relay_op.squeeze(part, axis=[axis]))
    return ctx.part("Gather", [data, index], axis=axis)


def _cut(
    ctx: NodeContext, data: RelayExpr, plan: _Slices, begin: RelayExpr, end: RelayExpr, strides: Sequence[int]
) -> RelayExpr:  # fmt: skip
    """Return the slices of the dimensions that stay."""
    starts, ends, axes, steps = [], [], [], []
    for axis, entry in plan.cut:
        step = strides[entry]
        if not step:
            ctx.fail("a stride is 0")
        opened = [bool(plan.open[side] >> entry & 1) for side in ("begin", "end")]
        if all(opened) and step == 1:
            continue
        first, last = (0, FAR) if step > 0 else (FAR, -FAR)
        starts.append(ctx.int64([first]) if opened[0] else _one(ctx, begin, entry))
        ends.append(ctx.int64([last]) if opened[1] else _one(ctx, end, entry))
        axes.append(axis)
        steps.append(step)
    if not axes:
        return data
    bounds = [ctx.part("Concat", part, axis=0) for part in (starts, ends)]
    return ctx.part("Slice", [data, *bounds, ctx.int64(axes), ctx.int64(steps)])


def _one(ctx: NodeContext, values: RelayExpr, entry: int) -> RelayExpr:
    """Return one entry of a vector, as a vector."""
    return ctx.part("Slice", [values, ctx.int64([entry]), ctx.int64([entry + 1])])


# ---- padding ----


@converter("Pad", "PadV2")
def convert_pad(ctx: NodeContext) -> RelayExpr:
    """Data with a number around them."""
    data, known = ctx.input(0), ctx.constant_or_none(ctx.input(1))
    value = ctx.input(2) if ctx.node.op == "PadV2" else ctx.like(0, data)
    if known is None:
        pads = ctx.part("Transpose", [ctx.cast(ctx.input(1), "int64")], perm=[1, 0])
        return ctx.part("Pad", [data, ctx.part("Reshape", [pads, ctx.int64([-1])]), value])
    rows = known.reshape(-1, 2).tolist()
    if ctx.is_image(data):
        turned = [rows[a] for a in channels_first_order(ctx.rank(data))]
        return ctx.channels_last(_padded(ctx, ctx.channels_first(data), turned, value))
    return _padded(ctx, data, rows, value)


def _padded(ctx: NodeContext, data: RelayExpr, rows: Sequence[Sequence[int]], value: RelayExpr) -> RelayExpr:
    pads = [*(r[0] for r in rows), *(r[1] for r in rows)]
    return ctx.part("Pad", [data, ctx.int64(pads), value])


@converter("MirrorPad")
def convert_mirror_pad(ctx: NodeContext) -> RelayExpr:
    """Data with their mirror image around them."""
    pads = ctx.constant(1, "the padding").reshape(-1, 2).tolist()
    return typed(relay_op.nn.mirror_pad(ctx.input(0), pads, ctx.text("mode", "REFLECT")))


# ---- other orders ----


@converter("ReverseV2")
def convert_reverse_v2(ctx: NodeContext) -> RelayExpr:
    """Axes backwards."""
    data = ctx.input(0)
    for axis in ctx.ints(1, "the axes"):
        data = typed(relay_op.reverse(data, ctx.axis(axis, ctx.rank(data))))
    return data


@converter("ReverseSequence")
def convert_reverse_sequence(ctx: NodeContext) -> RelayExpr:
    """The first elements of each sequence backwards."""
    axes = int(ctx.required("seq_dim")), int(ctx.attr("batch_dim", 0))
    return typed(relay_op.reverse_sequence(ctx.input(0), ctx.input(1), *axes))


@converter("Roll")
def convert_roll(ctx: NodeContext) -> RelayExpr:
    """Elements moved along axes; what leaves at one end enters at the other."""
    data: RelayExpr = ctx.input(0)
    for shift, axis in zip(ctx.ints(1, "the shift"), ctx.ints(2, "the axes"), strict=True):
        extent = ctx.shape(data)[ctx.axis(axis, ctx.rank(data))]
        places = (np.arange(extent) - shift) % max(extent, 1)
        data = typed(relay_op.take(data, const(places), axis=ctx.axis(axis, ctx.rank(data))))
    return data


@converter("MatrixBandPart")
def convert_matrix_band_part(ctx: NodeContext) -> RelayExpr:
    """Matrices with zeros away from the diagonal."""
    data = ctx.input(0)
    below, above = (int(ctx.scalar(i, "the width of the band")) for i in (1, 2))
    for width, upper, sign in ((below, 1, -1), (above, 0, 1)):
        if width >= 0:
            data = ctx.part("Trilu", [data, const(np.array(sign * width, "int64"))], upper=upper)
    return data


def diagonal(ctx: NodeContext, values: RelayExpr) -> RelayExpr:
    """Return matrices with vectors on their diagonal, and zeros elsewhere."""
    extent = ctx.shape(values)[-1]
    eye = const(np.eye(extent, dtype=ctx.dtype(values)))
    return typed(relay_op.multiply(relay_op.expand_dims(values, axis=-1), eye))


@converter("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3", "Diag")
def convert_matrix_diag(ctx: NodeContext) -> RelayExpr:
    """Matrices with vectors on their diagonal."""
    if ctx.num_inputs > 1 and (any(ctx.ints(1, "the diagonals")) or ctx.scalar(4, "the filling") != 0):
        ctx.unsupported("diagonals other than the main one, or filling other than 0")
    if ctx.node.op == "Diag" and ctx.rank(ctx.input(0)) != 1:
        ctx.unsupported(f"a diagonal tensor of rank {ctx.rank(ctx.input(0))}")
    return diagonal(ctx, ctx.input(0))


@converter("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3", "DiagPart")
def convert_matrix_diag_part(ctx: NodeContext) -> RelayExpr:
    """The diagonals of matrices."""
    if ctx.num_inputs > 1 and any(ctx.ints(1, "the diagonals")):
        ctx.unsupported("diagonals other than the main one")
    data = ctx.input(0)
    *_, rows, columns = ctx.shape(data)
    count = min(rows, columns)
    flat = ctx.part("Reshape", [data, ctx.int64([*ctx.shape(data)[:-2], rows * columns])])
    return typed(relay_op.take(flat, ctx.int64(range(0, count * (columns + 1), columns + 1)), axis=ctx.rank(flat) - 1))


@converter("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def convert_matrix_set_diag(ctx: NodeContext) -> RelayExpr:
    """Matrices with other diagonals."""
    place: Any = 0
    if ctx.num_inputs > 2:
        given = ctx.ints(2, "the diagonals")
        place = given[0] if len(given) == 1 else given
    align = ctx.text("align", "LEFT_LEFT" if ctx.node.op == "MatrixSetDiagV2" else "RIGHT_LEFT")
    return typed(relay_op.matrix_set_diag(ctx.input(0), ctx.input(1), place, align))
