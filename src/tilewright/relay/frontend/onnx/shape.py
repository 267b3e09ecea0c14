"""Shape operators: reshape, transpose, concat, slice, gather, pad, and the arithmetic of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.dimensions import as_elements, element, is_number, resolved, same_element
from tilewright.relay.frontend.dynamic import (
    FAR,
    counted,
    expand_to,
    integer,
    joined,
    known_dims,
    reshape_to,
    runtime_extent,
    runtime_shape,
    slice_length,
    vector,
)
from tilewright.relay.frontend.onnx.context import NodeContext, int_const, typed
from tilewright.relay.frontend.onnx.indices import checked_indices, checked_lengths, checked_range, checked_shape
from tilewright.relay.frontend.onnx.matrix_blocks import rows_of_blocks
from tilewright.relay.frontend.onnx.products_of_rows import row_of_product
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.op.relations import dim_mul


@converter("Shape")
def convert_shape(ctx: NodeContext) -> RelayExpr:
    """The shape, or a slice of it, as int64."""
    data = ctx.input(0)
    dims = ctx.dims(data)
    first, last, _ = slice(ctx.attr("start", 0), ctx.attr("end", len(dims))).indices(len(dims))
    chosen = dims[first:last]
    if all(map(is_number, chosen)):
        return int_const(chosen)
    ctx.result_elements = as_elements(chosen)
    shape = runtime_shape(data)
    return shape if len(chosen) == len(dims) else relay_op.strided_slice(shape, [first], [last])


@converter("Size")
def convert_size(ctx: NodeContext) -> RelayExpr:
    """The number of elements, as int64."""
    data = ctx.input(0)
    dims = ctx.dims(data)
    if all(map(is_number, dims)):
        return const(np.array(int(np.prod(dims, dtype=np.int64)), dtype="int64"), "int64")
    if None not in dims:
        ctx.result_elements = as_elements([dim_mul(*dims)]).reshape(())
    return relay_op.ndarray_size(data, "int64")


@converter("Reshape")
def convert_reshape(ctx: NodeContext) -> RelayExpr:
    """Reshape: 0 keeps a dimension (unless allowzero), -1 is inferred."""
    data = ctx.input(0)
    shape, given = ctx.dims(data), ctx.attr("shape")  # an attribute before opset 5
    wanted = ctx.shape_elements(1) if given is None else list(given)
    allowzero = bool(ctx.attr("allowzero", 0))
    if wanted is None:
        ctx.unsupported(f"how many dimensions its result has must be known; {ctx.node.input[1]!r} may have any length")
    if not all(map(is_number, (*shape, *wanted))):
        runtime = ctx.input(1) if given is None else vector(wanted)
        if None in wanted:
            rule = "reshape_allowzero" if allowzero else "reshape"
            runtime = checked_shape(
                ctx, 1, rule, "the shape", "does not hold the elements of data of shape", runtime_shape(data)
            )
        return reshape_to(ctx, data, resolved(shape, wanted, allowzero), runtime, allowzero)
    if not allowzero:
        for i, extent in enumerate(wanted):
            if extent == 0:
                if i >= len(shape):
                    ctx.fail(f"the new shape {wanted} keeps dimension {i}, but the input has the shape {tuple(shape)}")
                wanted[i] = shape[i]
    total = int(np.prod(shape, dtype=np.int64))
    if -1 in wanted:
        known = int(np.prod([d for d in wanted if d != -1], dtype=np.int64))
        if wanted.count(-1) > 1 or (known and total % known) or (not known and total):
            ctx.fail(f"cannot reshape {tuple(shape)} to {wanted}")
        wanted[wanted.index(-1)] = total // known if known else 0
    if int(np.prod(wanted, dtype=np.int64)) != total:
        ctx.fail(f"cannot reshape {tuple(shape)} ({total} elements) to {wanted}")
    return _reshaped(ctx, data, wanted)


def _reshaped(ctx: NodeContext, data: RelayExpr, shape: Sequence[int]) -> RelayExpr:
    """Return exactly ``shape``: Relay reads a 0 as "keep this dimension", but a tensor without elements can be made
    anew.
    """
    if 0 in shape:
        return relay_op.zeros(tuple(shape), ctx.dtype(data))
    return relay_op.reshape(data, newshape=tuple(shape))


@converter("Flatten")
def convert_flatten(ctx: NodeContext) -> RelayExpr:
    """A matrix: the axes before ``axis``, and the others."""
    data = ctx.input(0)
    shape = ctx.dims(data)
    axis = ctx.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    if axis == 1 and len(shape) > 1:
        return relay_op.nn.batch_flatten(data)
    if ctx.is_dynamic(data):
        return joined(data, [axis, len(shape) - axis])
    rows = int(np.prod(shape[:axis], dtype=np.int64))
    columns = int(np.prod(shape[axis:], dtype=np.int64))
    return _reshaped(ctx, data, (rows, columns))


@converter("Transpose")
def convert_transpose(ctx: NodeContext) -> RelayExpr:
    """Permutation of the axes; reversal by default."""
    data = ctx.input(0)
    perm = ctx.attr("perm")
    return relay_op.transpose(data, axes=perm if perm is not None else tuple(reversed(range(ctx.rank(data)))))


def _axes(ctx: NodeContext, index: int = 1) -> tuple[int, ...] | None:
    given = ctx.attr("axes")
    return tuple(given) if given is not None else ctx.ints_or_none(index, "the axes")


@converter("Unsqueeze")
def convert_unsqueeze(ctx: NodeContext) -> RelayExpr:
    """Insert axes of extent 1."""
    data = ctx.input(0)
    axes = _axes(ctx) or ()
    rank = ctx.rank(data) + len(axes)
    for axis in sorted(ctx.normalize_axis(a, rank) for a in axes):
        data = relay_op.expand_dims(data, axis=axis)
    return data


@converter("ExpandDims", domain="com.microsoft")
def convert_expand_dims(ctx: NodeContext) -> RelayExpr:
    """Insert an axis of extent 1 at the position in input 1."""
    data = ctx.input(0)
    return relay_op.expand_dims(data, axis=ctx.normalize_axis(int(ctx.scalar(1, "the axis")), ctx.rank(data) + 1))


@converter("Squeeze")
def convert_squeeze(ctx: NodeContext) -> RelayExpr:
    """Remove axes of extent 1: the listed ones, or all."""
    data = ctx.input(0)
    axes = _axes(ctx)
    rank = ctx.rank(data)
    return relay_op.squeeze(data, axis=None if axes is None else [ctx.normalize_axis(a, rank) for a in axes])


@converter("Concat")
def convert_concat(ctx: NodeContext) -> RelayExpr:
    """Concatenation along an axis."""
    inputs = ctx.inputs()
    axis = ctx.normalize_axis(ctx.attr("axis", 1), ctx.rank(inputs[0]))
    return inputs[0] if len(inputs) == 1 else relay_op.concatenate(inputs, axis=axis)


@converter("Split")
def convert_split(ctx: NodeContext) -> Any:
    """Split along an axis into equal parts or parts of the listed sizes."""
    data = ctx.input(0)
    axis = ctx.normalize_axis(ctx.attr("axis", 0), ctx.rank(data))
    sizes = ctx.attr("split")
    parts = ctx.attr("num_outputs", ctx.num_outputs)
    if parts != ctx.num_outputs:
        ctx.fail(f"attribute 'num_outputs' is {parts}, and {ctx.num_outputs} outputs have names")
    given = sizes is None and ctx.has_input(1)
    if given and ctx.constant_if_known(1, "the sizes") is not None:
        sizes, given = ctx.ints(1, "the sizes"), False
    if given or not is_number(ctx.dims(data)[axis]):
        return _split_at_run_time(ctx, data, axis, parts, sizes)
    if sizes is None:
        extent = ctx.extent(data, axis)
        each = -(-extent // parts)
        sizes = [min(each, max(extent - each * i, 0)) for i in range(parts)]
    elif sum(sizes) != ctx.extent(data, axis) or min(sizes, default=0) < 0 or len(sizes) != ctx.num_outputs:
        wanted = f"{ctx.num_outputs} parts of the extent {ctx.extent(data, axis)} of axis {axis}"
        ctx.fail(f"the sizes {[int(v) for v in sizes]} are not those of {wanted}")
    if len(sizes) == 1:
        return [data]
    return relay_op.split(data, tuple(int(v) for v in np.cumsum(sizes)[:-1]), axis=axis)


def _split_at_run_time(
    ctx: NodeContext, data: RelayExpr, axis: int, parts: int, sizes: Sequence[int] | None
) -> list[RelayExpr]:
    """Split an extent, or into sizes, that are known at run time."""
    dims = ctx.dims(data)
    if sizes is not None or ctx.has_input(1):
        counts = vector(sizes) if sizes is not None else _given_sizes(ctx, data, axis)
    else:
        extent = relay_op.reshape(runtime_extent(data, axis), newshape=(1,))
        each = relay_op.floor_divide(relay_op.add(extent, vector([parts - 1])), vector([parts]))
        counts = relay_op.broadcast_to(each, (parts,))
    ends = relay_op.cumsum(counts, axis=0)
    found: list[RelayExpr] = []
    for i in range(parts):
        last, count = (relay_op.strided_slice(v, [i], [i + 1]) for v in (ends, counts))
        first = relay_op.subtract(last, count)
        part = relay_op.strided_slice(data, first, last, vector([1]), axes=[axis])
        here = sizes[i] if sizes is not None else None
        found.append(known_dims(part, [here if k == axis else d for k, d in enumerate(dims)]))
    return found


def _given_sizes(ctx: NodeContext, data: RelayExpr, axis: int) -> RelayExpr:
    """Return sizes of parts that make up an axis, in int64."""
    counts = relay_op.cast(checked_lengths(ctx, 1, data, axis, "size"), "int64")
    rest = relay_op.subtract(relay_op.sum(counts, axis=[0], keepdims=True), runtime_extent(data, axis))
    nothing = checked_range(ctx, 1, 1, f"the sum of the sizes less the extent of axis {axis}", values=typed(rest))
    return relay_op.add(counts, nothing)


@converter("Slice")
def convert_slice_attributes(ctx: NodeContext) -> RelayExpr:
    """Slice with attributes (before opset 10)."""
    starts, ends = ctx.required("starts"), ctx.required("ends")
    return _slice(ctx, starts, ends, ctx.attr("axes"), None)


@converter("Slice", since=10)
def convert_slice(ctx: NodeContext) -> RelayExpr:
    """Slice with its bounds as inputs."""
    data = ctx.input(0)
    starts, ends = ctx.shape_elements(1), ctx.shape_elements(2)
    axes = ctx.ints_or_none(3, "axes")
    steps = ctx.shape_elements(4) if ctx.has_input(4) else [1] * len(starts or ())
    if starts is None or ends is None or steps is None:
        ctx.unsupported("how many axes it cuts must be known")
    chosen = [ctx.normalize_axis(a, ctx.rank(data)) for a in (range(len(starts)) if axes is None else axes)]
    dims = ctx.dims(data)
    if all(map(is_number, (*starts, *ends, *steps, *(dims[a] for a in chosen)))):
        return _slice(ctx, starts, ends, chosen, steps)
    result = list(dims)
    for axis, start, stop, step in zip(chosen, starts, ends, steps, strict=True):
        if is_number(step) and step == 0:
            ctx.fail(f"the step of axis {axis} is 0")
        result[axis] = slice_length(start, stop, step, dims[axis])
    first, last = (_int64(ctx.input(i)) for i in (1, 2))
    stride = _steps(ctx, steps)
    if any(not is_number(step) or step < 0 for step in steps):
        first, last = _backward_bounds(data, first, last, stride, chosen)

    def cut(whole: RelayExpr) -> RelayExpr:
        dims = [*result[:-1], ctx.dims(whole)[-1]] if whole is not data else result
        return known_dims(relay_op.strided_slice(whole, first, last, stride, axes=chosen), dims)

    one = len(chosen) == 1 and same_element(result[chosen[0]], 1)
    found = row_of_product(ctx, data, chosen[0], cut) if one else None
    return cut(data) if found is None else found


def _steps(ctx: NodeContext, steps: Sequence[Any]) -> RelayExpr:
    """Return the steps of a slice in int64; computed steps are checked not to be 0, and clipped beyond any extent."""
    if not ctx.has_input(4):
        return vector([1] * len(steps))
    if None not in steps:
        return _int64(ctx.input(4))
    given = checked_shape(ctx, 4, "steps", "the steps", "have a 0")
    return relay_op.minimum(relay_op.maximum(given, vector([-FAR])), vector([FAR]))


def _int64(value: RelayExpr) -> RelayExpr:
    return relay_op.cast(value, "int64")


def _backward_bounds(
    data: RelayExpr, first: RelayExpr, last: RelayExpr, stride: RelayExpr, axes: Sequence[int]
) -> tuple[RelayExpr, RelayExpr]:
    """Return bounds by the rules of ``_bounds`` where ``stride`` is negative and extents are known at run time."""
    extents = relay_op.take(runtime_shape(data), vector(axes), axis=0)
    zero, one = vector([0] * len(axes)), vector([1] * len(axes))
    end = relay_op.subtract(extents, one)
    begin, stop = (relay_op.where(relay_op.less(v, zero), relay_op.add(v, extents), v) for v in (first, last))
    begin = relay_op.maximum(relay_op.minimum(begin, end), zero)
    stop = relay_op.minimum(stop, end)
    # In front of the first element: less than any number that counts from the end.
    stop = relay_op.where(relay_op.less(stop, zero), relay_op.subtract(relay_op.negative(extents), one), stop)
    backward = relay_op.less(stride, zero)
    return relay_op.where(backward, begin, first), relay_op.where(backward, stop, last)


def _slice(
    ctx: NodeContext,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> RelayExpr:
    """Slice by the specification's rules, with begins and ends resolved to be in range."""
    data = ctx.input(0)
    shape = ctx.dims(data)
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    begin, end, stride = [0] * len(shape), list(shape), [1] * len(shape)
    for start, stop, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = ctx.normalize_axis(axis, len(shape))
        if step == 0:
            ctx.fail(f"the step of axis {axis} is 0")
        begin[axis], end[axis], stride[axis] = _bounds(start, stop, step, ctx.extent(data, axis))
    if ctx.is_dynamic(data):
        cut = [ctx.normalize_axis(axis, len(shape)) for axis in axes]
        first, last, steps = ([values[axis] for axis in cut] for values in (begin, end, stride))
        return relay_op.strided_slice(data, first, last, steps, axes=cut)
    return relay_op.strided_slice(data, begin, end, stride)


def _bounds(start: int, stop: int, step: int, extent: int) -> tuple[int, int, int]:
    """Return begin, end and step of a slice, clipped by ONNX's rules.

    Numpy differs where a backward slice starts before the first element: it takes nothing, ONNX starts there.
    """
    if extent == 0:
        return 0, 0, 1
    first, last = (v + extent if v < 0 else v for v in (start, stop))
    if step > 0:
        return min(max(first, 0), extent), min(max(last, 0), extent), min(step, extent)
    first, last = min(max(first, 0), extent - 1), min(max(last, -1), extent - 1)
    # Past the front is -1, which strided_slice would count from the end.
    return first, last if last >= 0 else -(extent + 1), max(step, -extent)


@converter("Gather")
def convert_gather(ctx: NodeContext) -> RelayExpr:
    """Entries along an axis; negative indices count from the end."""
    data = ctx.input(0)
    axis = ctx.normalize_axis(ctx.attr("axis", 0), ctx.rank(data))

    def entries(whole: RelayExpr) -> RelayExpr:
        return relay_op.take(whole, checked_indices(ctx, 1, whole, [axis]), axis=axis, mode="fast")

    one = all(same_element(n, 1) for n in ctx.dims(ctx.input(1)))
    found = row_of_product(ctx, data, axis, entries) if one else None
    if found is None and axis == 0:
        found = rows_of_blocks(ctx, data, checked_indices(ctx, 1, data, [axis]))
    return entries(data) if found is None else found


@converter("GatherElements")
def convert_gather_elements(ctx: NodeContext) -> RelayExpr:
    """Entry by entry along an axis."""
    data = ctx.input(0)
    axis = ctx.normalize_axis(ctx.attr("axis", 0), ctx.rank(data))
    return relay_op.gather(data, axis, checked_indices(ctx, 1, data, [axis]))


@converter("GatherND")
def convert_gather_nd(ctx: NodeContext) -> RelayExpr:
    """Slices by index tuples; the tuples move to the front for Relay's gather_nd."""
    batch = ctx.attr("batch_dims", 0)
    return relay_op.gather_nd(ctx.input(0), _coordinates(ctx, batch), batch_dims=batch)


def _coordinates(ctx: NodeContext, batch: int = 0) -> RelayExpr:
    """Return input 1, whose last dimension lists coordinates of input 0 after ``batch`` dimensions, with that one
    first.
    """
    data, indices = ctx.input(0), ctx.input(1)
    rank = ctx.rank(indices)
    axes = range(batch, batch + ctx.extent(indices, -1))
    if axes.stop > ctx.rank(data):
        ctx.fail(f"{len(axes)} coordinates behind {batch} dimensions, of data of {ctx.rank(data)} dimensions")
    found = checked_indices(ctx, 1, data, axes, axis=rank - 1) if axes else indices
    return relay_op.transpose(found, axes=(rank - 1, *range(rank - 1)))


@converter("ScatterElements", "Scatter")
def convert_scatter_elements(ctx: NodeContext) -> RelayExpr:
    """Replace entries along an axis, or combine them with the old ones."""
    data, updates = ctx.input(0), ctx.input(2)
    axis = ctx.normalize_axis(ctx.attr("axis", 0), ctx.rank(data))
    indices = checked_indices(ctx, 1, data, [axis])
    reduction = ctx.attr("reduction", "none")
    if reduction == "none":
        return relay_op.scatter(data, indices, updates, axis)
    if reduction == "add":
        return relay_op.scatter_add(data, indices, updates, axis)
    return relay_op.scatter_nd(data, _places(ctx, indices, axis), updates, _scatter_mode(ctx))


def _places(ctx: NodeContext, indices: RelayExpr, axis: int) -> RelayExpr:
    """Return the coordinates that ``indices`` along ``axis`` address: a row for each axis."""
    shape, dtype = ctx.shape(indices), ctx.dtype(indices)
    rows = [
        indices if i == axis else const(np.ascontiguousarray(row), dtype)
        for i, row in enumerate(np.indices(shape, dtype))
    ]
    return relay_op.stack(rows, axis=0)


_SCATTER_MODES = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _scatter_mode(ctx: NodeContext) -> str:
    """Return Relay's name of the attribute ``reduction``."""
    reduction = ctx.attr("reduction", "none")
    if reduction not in _SCATTER_MODES:
        ctx.unsupported(f"reduction {reduction!r}; supported are {', '.join(_SCATTER_MODES)}")
    return _SCATTER_MODES[reduction]


@converter("ScatterND")
def convert_scatter_nd(ctx: NodeContext) -> RelayExpr:
    """Replace slices at index tuples, or combine them with the old ones."""
    return relay_op.scatter_nd(ctx.input(0), _coordinates(ctx), ctx.input(2), _scatter_mode(ctx))


@converter("Expand")
def convert_expand(ctx: NodeContext) -> RelayExpr:
    """Broadcast with a shape, both ways."""
    data = ctx.input(0)
    wanted = ctx.shape_elements(1)
    if wanted is None:
        ctx.unsupported(f"how many dimensions its result has must be known; {ctx.node.input[1]!r} may have any length")
    if all(map(is_number, (*ctx.dims(data), *wanted))):
        return relay_op.broadcast_to(data, np.broadcast_shapes(ctx.shape(data), tuple(wanted)))
    to = ctx.input(1)
    if None in wanted:
        to = checked_shape(
            ctx, 1, "broadcast", "the shape", "does not broadcast with data of shape", runtime_shape(data)
        )
    return expand_to(ctx, data, wanted, to)


@converter("Tile", since=6)
def convert_tile(ctx: NodeContext) -> RelayExpr:
    """Repeat along each axis."""
    data = ctx.input(0)
    if ctx.constant_if_known(1, "the repeats") is not None:
        return relay_op.tile(data, ctx.ints(1, "the repeats"))
    repeats = ctx.shape_elements(1) or [None] * ctx.rank(data)
    dims = [
        d if is_number(r) and r == 1 else None if None in (d, r) else element(dim_mul(d, r))
        for d, r in zip(ctx.dims(data), repeats, strict=True)
    ]
    times = _int64(ctx.input(1))
    if None in repeats:
        times = checked_shape(
            ctx, 1, "tile", "the repeats", "are negative, or too large, for data of shape", runtime_shape(data)
        )
    return known_dims(relay_op.tile(data, times), dims)


@converter("ReverseSequence")
def convert_reverse_sequence(ctx: NodeContext) -> RelayExpr:
    """Reverse the first entries of each sequence."""
    data, time = ctx.input(0), ctx.normalize_axis(ctx.attr("time_axis", 0), ctx.rank(ctx.input(0)))
    lengths = checked_lengths(ctx, 1, data, time, "length")
    return relay_op.reverse_sequence(data, lengths, seq_axis=time, batch_axis=ctx.attr("batch_axis", 1))


@converter("Trilu")
@converter("Trilu", domain="com.microsoft")
def convert_trilu(ctx: NodeContext) -> RelayExpr:
    """Upper or lower triangle, by a constant mask where the shape is known."""
    data = ctx.input(0)
    if not all(map(is_number, ctx.dims(data)[-2:])) or (
        ctx.has_input(1) and ctx.constant_if_known(1, "the diagonal") is None
    ):
        k_value = (
            relay_op.reshape(ctx.input(1), newshape=()) if ctx.has_input(1) else const(np.array(0, "int64"), "int64")
        )
        return _trilu_by_places(ctx, data, k_value)
    rows, columns = (int(d) for d in ctx.dims(data)[-2:])
    k = int(ctx.scalar(1, "the diagonal", 0))
    keep = np.tri(rows, columns, k - 1, dtype=bool) if ctx.attr("upper", 1) else ~np.tri(rows, columns, k, dtype=bool)
    dtype = ctx.dtype(data)
    return relay_op.where(const(keep, "bool"), const(np.zeros((), dtype), dtype), data)


def _trilu_by_places(ctx: NodeContext, data: RelayExpr, k: RelayExpr) -> RelayExpr:
    """Keep a triangle by comparing row and column indices at run time."""
    dims, dtype = ctx.dims(data), ctx.dtype(data)
    k = relay_op.minimum(relay_op.maximum(k, integer(-FAR)), integer(FAR))
    rows, columns = (
        const(np.arange(dims[axis], dtype="int64"), "int64")
        if is_number(dims[axis])
        else counted(runtime_extent(data, axis), [dims[axis]])
        for axis in (-2, -1)
    )
    below = relay_op.less(columns, relay_op.add(relay_op.expand_dims(rows, axis=1), k))
    if not ctx.attr("upper", 1):
        below = relay_op.greater(columns, relay_op.add(relay_op.expand_dims(rows, axis=1), k))
    return relay_op.where(below, const(np.zeros((), dtype), dtype), data)
