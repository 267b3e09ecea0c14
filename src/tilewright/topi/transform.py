"""Computes that rearrange elements: shape changes, transposition, joining, splitting, slicing, repetition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm, PrimExpr
from tilewright.ir.type import as_shape
from tilewright.te.broadcast import broadcast_indices, broadcast_shape
from tilewright.tir.layout import layout_conversion
from tilewright.topi import tag
from tilewright.topi.utils import (
    InvalidShapeError,
    as_list,
    get_const_int,
    get_const_tuple,
    prod,
    ravel_index,
    simplify,
    unravel_index,
)


def normalize_axis(axis: Any, ndim: int) -> int:
    """Return ``axis`` counted from the front; raises InvalidShapeError when the tensor has no such axis."""
    axis = int(axis)
    if not -ndim <= axis < ndim:
        raise InvalidShapeError(f"axis {axis} is out of range for a tensor of rank {ndim}")
    return axis + ndim if axis < 0 else axis


def expand_dims(a: te.Tensor, axis: int, num_newaxis: int = 1) -> te.Tensor:
    """Insert ``num_newaxis`` dimensions of extent 1 before ``axis``."""
    axis = normalize_axis(axis, a.ndim + 1) if axis >= 0 else axis + a.ndim + 1
    shape = (*a.shape[:axis], *[1] * num_newaxis, *a.shape[axis:])
    return te.compute(shape, lambda *i: a(*i[:axis], *i[axis + num_newaxis :]), name="T_expand_dims", tag=tag.BROADCAST)


def squeeze(a: te.Tensor, axis: Any = None) -> te.Tensor:
    """Remove the dimensions ``axis``, or all dimensions of extent 1."""
    shape = get_const_tuple(a.shape)
    if axis is None:
        drop = {i for i, d in enumerate(shape) if isinstance(d, int) and d == 1}
    else:
        drop = {normalize_axis(x, a.ndim) for x in as_list(axis)}
    kept = [d for i, d in enumerate(a.shape) if i not in drop]

    def body(*i: PrimExpr) -> PrimExpr:
        rest = iter(i)
        return a(*(0 if k in drop else next(rest) for k in range(a.ndim)))

    return te.compute(kept, body, name="T_squeeze", tag=tag.INJECTIVE)


def _reshape_groups(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[int, int, int, int]] | None:
    """Cut both shapes into runs of equal size, ``(old begin, old end, new begin, new end)``; None when unknown."""
    if not all(isinstance(d, int) and d > 0 for d in (*old, *new)):
        return None
    groups = []
    i = j = 0
    while i < len(old) and j < len(new):
        begin_i, begin_j = i, j
        size_i, size_j = old[i], new[j]
        i, j = i + 1, j + 1
        while size_i != size_j:
            if size_i < size_j:
                size_i, i = size_i * old[i], i + 1
            else:
                size_j, j = size_j * new[j], j + 1
        groups.append((begin_i, i, begin_j, j))
    return [*groups, (i, len(old), j, len(new))]


def _reshape_indices(indices: Sequence[PrimExpr], old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    """Return the indices in shape ``old`` of the element ``indices`` of shape ``new``.

    Working in groups of dimensions keeps index expressions free of divisions wherever dimensions stay as they are.
    """
    groups = _reshape_groups(old, new)
    if groups is None:
        return unravel_index(ravel_index(indices, new), old) if old else []
    result: list[Any] = []
    for begin_i, end_i, begin_j, end_j in groups:
        live = [k for k in range(begin_i, end_i) if old[k] != 1]
        flat = ravel_index(indices[begin_j:end_j], new[begin_j:end_j])
        values = dict(zip(live, unravel_index(flat, [old[k] for k in live]), strict=True)) if live else {}
        result += [values.get(k, 0) for k in range(begin_i, end_i)]
    return result


def reshape(a: te.Tensor, newshape: Sequence[Any]) -> te.Tensor:
    """Reshape ``a``, in row-major order."""
    new = get_const_tuple(as_shape(newshape))
    old = get_const_tuple(a.shape)
    if all(isinstance(d, int) for d in (*old, *new)) and math.prod(old) != math.prod(new):
        raise InvalidShapeError(
            f"reshape: the shape {old} has {math.prod(old)} elements, and {new} has {math.prod(new)}"
        )
    if any(isinstance(d, int) and d == 0 for d in old):
        return te.compute(new, lambda *i: ops.const(0, a.dtype), name="T_reshape", tag=tag.INJECTIVE)
    return te.compute(new, lambda *i: a(*_reshape_indices(i, old, new)), name="T_reshape", tag=tag.INJECTIVE)


def transpose(a: te.Tensor, axes: Sequence[int] | None = None) -> te.Tensor:
    """Permute the dimensions of ``a`` to the order ``axes``, reversed by default."""
    order = [normalize_axis(x, a.ndim) for x in axes] if axes else list(range(a.ndim))[::-1]
    if sorted(order) != list(range(a.ndim)):
        raise InvalidShapeError(f"axes {tuple(order)} do not name each of the {a.ndim} dimensions once")

    def body(*i: PrimExpr) -> PrimExpr:
        source: list[Any] = [0] * a.ndim
        for position, axis in enumerate(order):
            source[axis] = i[position]
        return a(*source)

    return te.compute([a.shape[x] for x in order], body, name="T_transpose", tag=tag.INJECTIVE)


def flip(a: te.Tensor, axis: int = 0) -> te.Tensor:
    """Reverse ``a`` along ``axis``."""
    axis = normalize_axis(axis, a.ndim)

    def body(*i: PrimExpr) -> PrimExpr:
        return a(*(a.shape[axis] - 1 - v if k == axis else v for k, v in enumerate(i)))

    return te.compute(a.shape, body, name="T_flip", tag=tag.INJECTIVE)


def reverse_sequence(a: te.Tensor, seq_lengths: te.Tensor, seq_axis: int = 1, batch_axis: int = 0) -> te.Tensor:
    """Reverse the first ``seq_lengths[b]`` elements along ``seq_axis`` of each batch element b, all if it has less.

    Raises InvalidShapeError unless ``seq_lengths`` is one-dimensional, with a length for each batch element.
    """
    seq_axis, batch_axis = normalize_axis(seq_axis, a.ndim), normalize_axis(batch_axis, a.ndim)
    lengths, batch = get_const_tuple(seq_lengths.shape), get_const_tuple(a.shape)[batch_axis]
    if len(lengths) != 1 or (isinstance(lengths[0], int) and isinstance(batch, int) and lengths[0] != batch):
        raise InvalidShapeError(
            f"reverse_sequence wants a length for each of {batch} elements along batch_axis={batch_axis}, "
            f"found seq_lengths of shape {lengths}"
        )

    def body(*i: PrimExpr) -> PrimExpr:
        length = ops.cast(i[seq_axis].dtype, seq_lengths(i[batch_axis]))
        length = ops.minimum(length, ops.cast(length.dtype, ops.as_expr(a.shape[seq_axis])))
        at = i[seq_axis]
        source = tir.if_then_else(at < length, length - 1 - at, at)
        return a(*(source if k == seq_axis else v for k, v in enumerate(i)))

    return te.compute(a.shape, body, name="T_reverse_sequence", tag=tag.INJECTIVE)


def concatenate(a_tuple: Sequence[te.Tensor], axis: int = 0) -> te.Tensor:
    """Concatenate the tensors along ``axis``."""
    axis = normalize_axis(axis, a_tuple[0].ndim)
    ends: list[Any] = [a_tuple[0].shape[axis]]
    for a in a_tuple[1:]:
        ends.append(simplify(ends[-1] + a.shape[axis]))
    shape = (*a_tuple[0].shape[:axis], ends[-1], *a_tuple[0].shape[axis + 1 :])

    def body(*i: PrimExpr) -> PrimExpr:
        def element(k: int) -> PrimExpr:
            begin = ends[k - 1] if k else 0
            return a_tuple[k](*i[:axis], i[axis] - begin, *i[axis + 1 :])

        result = element(len(a_tuple) - 1)
        for k in reversed(range(len(a_tuple) - 1)):
            result = tir.if_then_else(i[axis] < ends[k], element(k), result)
        return result

    return te.compute(shape, body, name="T_concat", tag=tag.INJECTIVE)


def stack(a: Sequence[te.Tensor], axis: int = 0) -> te.Tensor:
    """Stack the tensors along a new dimension ``axis``."""
    axis = axis if axis >= 0 else axis + a[0].ndim + 1
    shape = (*a[0].shape[:axis], len(a), *a[0].shape[axis:])

    def body(*i: PrimExpr) -> PrimExpr:
        rest = (*i[:axis], *i[axis + 1 :])
        result = a[-1](*rest)
        for k in reversed(range(len(a) - 1)):
            result = tir.if_then_else(i[axis] <= k, a[k](*rest), result)
        return result

    return te.compute(shape, body, name="T_stack", tag=tag.INJECTIVE)


def split(ary: te.Tensor, indices_or_sections: Any, axis: int = 0) -> list[te.Tensor]:
    """Split ``ary`` along ``axis`` into equal parts, or at positions, negative ones counting from its end."""
    axis = normalize_axis(axis, ary.ndim)
    total = simplify(ary.shape[axis])
    if isinstance(indices_or_sections, (int, IntImm)):
        count = int(indices_or_sections)
        if count <= 0 or (isinstance(total, IntImm) and int(total) % count):
            raise InvalidShapeError(f"cannot split a dimension of extent {total} into {count} equal parts")
        cuts: list[Any] = [ops.floordiv(total, count) * k for k in range(1, count)]
    else:
        cuts = [c if not isinstance(c, int) or c >= 0 else total + c for c in indices_or_sections]
    begins, ends = [0, *cuts], [*cuts, total]

    def part(begin: Any, end: Any) -> te.Tensor:
        shape = (*ary.shape[:axis], simplify(end - ops.as_expr(begin)), *ary.shape[axis + 1 :])
        return te.compute(
            shape,
            lambda *i: ary(*i[:axis], i[axis] + begin, *i[axis + 1 :]),
            name="T_split",
            tag=tag.INJECTIVE,
        )

    return [part(b, e) for b, e in zip(begins, ends, strict=True)]


def _slice_bounds(extent: int, begin: int | None, end: int | None, stride: int) -> tuple[int, int]:
    """Return the first position and the number of elements of ``begin:end:stride``, by Python's rules."""
    start, stop, step = slice(begin, end, stride).indices(extent)
    return start, len(range(start, stop, step))


def slice_parameters(
    shape: Sequence[Any], begin: Any, end: Any, strides: Any, axes: Any, slice_mode: str
) -> list[tuple[Any, Any, int]]:
    """Return (first position, extent, stride) for every dimension of a strided slice of a tensor of ``shape``."""
    dims = get_const_tuple(shape)
    chosen = [normalize_axis(a, len(dims)) for a in axes] if axes else list(range(len(begin)))
    result: list[tuple[Any, Any, int]] = [(0, d, 1) for d in dims]
    for k, axis in enumerate(chosen):
        first = None if begin[k] is None else get_const_int(begin[k])
        last = get_const_int(end[k]) if end is not None and k < len(end) and end[k] is not None else None
        step = get_const_int(strides[min(k, len(strides) - 1)]) if strides and slice_mode == "end" else 1
        extent = dims[axis]
        if slice_mode == "size":
            at = (first or 0) + (extent if (first or 0) < 0 else 0)
            last = None if last is None or last < 0 else at + last
        if isinstance(extent, int):
            start, size = _slice_bounds(extent, first, last, step)
            result[axis] = (start, size, step)
        else:
            result[axis] = _symbolic_slice(extent, first, last, step)
    return result


def _symbolic_slice(extent: PrimExpr, first: int | None, last: int | None, step: int) -> tuple[Any, Any, int]:
    lowest, highest = dt.int_range(extent.dtype)

    def position(value: int) -> PrimExpr:
        value = min(max(value, lowest), highest)  # the index keeps the extent's type, however far the bound is
        return ops.minimum(extent, value) if value >= 0 else ops.maximum(extent + value, 0)

    if step > 0:
        start, stop = position(first or 0), extent if last is None else position(last)
        size = (stop - start + (step - 1)) // step
    else:
        start = extent - 1 if first is None else ops.minimum(position(first), extent - 1)
        stop = ops.as_expr(-1) if last is None else position(last)
        size = (start - stop + (-step - 1)) // -step
    return simplify(start), simplify(ops.maximum(size, 0)), step


def strided_slice(
    a: te.Tensor, begin: Any, end: Any, strides: Any = None, axes: Any = None, slice_mode: str = "end"
) -> te.Tensor:
    """Slice ``begin:end:strides`` of each dimension (or of ``axes``), as numpy does.

    ``slice_mode`` "size" takes ``end`` as sizes, -1 meaning up to the end, and ignores ``strides``. Bounds may be
    vectors of all dimensions; then the shape is known when the kernel runs.
    """
    if isinstance(begin, te.Tensor):
        return _tensor_slice(a, begin, end, strides)
    parameters = slice_parameters(a.shape, begin, end, strides, axes, slice_mode)
    return te.compute(
        [size for _, size, _ in parameters],
        lambda *i: a(*(v * step + start for v, (start, _, step) in zip(i, parameters, strict=True))),
        name="T_strided_slice",
        tag=tag.INJECTIVE,
    )


def _tensor_slice(a: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor | None) -> te.Tensor:
    """Slice with bounds in vectors: each extent is a variable of its own."""
    if strides is None:
        strides = te.compute(begin.shape, lambda i: ops.const(1, begin.dtype), name="ones", tag=tag.INJECTIVE)
    return dynamic_strided_slice(a, begin, end, strides, [tir.Var(f"dim{k}", "int32") for k in range(a.ndim)])


def dynamic_strided_slice(
    a: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor, output_shape: Sequence[Any]
) -> te.Tensor:
    """Slice with bounds in tensors; the caller knows ``output_shape``."""

    def body(*i: PrimExpr) -> PrimExpr:
        source = []
        for k, v in enumerate(i):
            first = ops.cast(v.dtype, begin(k))
            first = tir.if_then_else(first < 0, first + a.shape[k], first)
            step = ops.cast(v.dtype, strides(k))
            limit = tir.if_then_else(step < 0, a.shape[k] - 1, a.shape[k])
            source.append(v * step + ops.maximum(ops.minimum(first, limit), 0))
        return a(*source)

    return te.compute(output_shape, body, name="T_dynamic_strided_slice", tag=tag.INJECTIVE)


def strided_set(a: te.Tensor, v: te.Tensor, begin: Any, end: Any, strides: Any = None) -> te.Tensor:
    """Replace the slice ``begin:end:strides`` of ``a`` by ``v``; the bounds are lists of ints or vectors."""
    if isinstance(begin, te.Tensor):
        begin, end = _tensor_elements(begin, a.ndim, [0] * a.ndim), _tensor_elements(end, a.ndim, a.shape)
        strides = _tensor_elements(strides, a.ndim, [1] * a.ndim) if strides is not None else None
        parameters = _dynamic_slice_parameters(a.shape, begin, end, strides)
    else:
        parameters = slice_parameters(a.shape, begin, end, strides, None, "end")

    def body(*i: PrimExpr) -> PrimExpr:
        inside, source = [], []
        for index, (start, size, step) in zip(i, parameters, strict=True):
            offset = index - start
            position = tir.floordiv(offset, step)
            inside += [tir.floormod(offset, step).equal(0), position >= 0, position < size]
            source.append(position)
        return tir.if_then_else(tir.all(*inside), v(*source), a(*i))

    return te.compute(a.shape, body, name="T_strided_set", tag=tag.INJECTIVE)


def _tensor_elements(tensor: te.Tensor, rank: int, rest: Sequence[Any]) -> list[Any]:
    """The elements of a vector, and ``rest`` for the dimensions that it does not reach."""
    count = get_const_int(tensor.shape[0])
    return [ops.cast("int32", tensor(k)) for k in range(count)] + [ops.as_expr(v) for v in rest[count:rank]]


def _dynamic_slice_parameters(shape: Sequence[Any], begin: Any, end: Any, strides: Any) -> list[tuple[Any, Any, Any]]:
    result = []
    for k, dim in enumerate(shape):
        step = strides[k] if strides else ops.const(1, "int32")
        low = tir.if_then_else(step < 0, -1, 0)
        high = tir.if_then_else(step < 0, dim - 1, dim)

        def limited(value: PrimExpr, dim: Any = dim, low: PrimExpr = low, high: PrimExpr = high) -> PrimExpr:
            value = tir.if_then_else(value < 0, value + dim, value)
            return ops.maximum(ops.minimum(value, high), low)

        start, stop = limited(begin[k]), limited(end[k])
        up = tir.floordiv(stop - start + step - 1, ops.maximum(step, 1))
        down = tir.floordiv(start - stop - step - 1, ops.maximum(-step, 1))
        result.append((start, ops.maximum(tir.if_then_else(step < 0, down, up), 0), step))
    return result


def slice_like(a: te.Tensor, shape_like: te.Tensor, axes: Sequence[int] | None = None) -> te.Tensor:
    """The leading part of ``a`` that has the extents of ``shape_like`` in all dimensions, or in ``axes``."""
    chosen = {normalize_axis(x, a.ndim) for x in axes} if axes else set(range(min(a.ndim, shape_like.ndim)))
    shape = [shape_like.shape[k] if k in chosen else d for k, d in enumerate(a.shape)]
    return te.compute(shape, lambda *i: a(*i), name="T_slice_like", tag=tag.INJECTIVE)


def repeat(a: te.Tensor, repeats: int, axis: int) -> te.Tensor:
    """Every element ``repeats`` times in a row along ``axis``."""
    axis = normalize_axis(axis, a.ndim)
    shape = [d * repeats if k == axis else d for k, d in enumerate(a.shape)]
    return te.compute(
        shape,
        lambda *i: a(*(tir.indexdiv(v, repeats) if k == axis else v for k, v in enumerate(i))),
        name="T_repeat",
        tag=tag.BROADCAST,
    )


def tile(a: te.Tensor, reps: Sequence[Any]) -> te.Tensor:
    """Repeat ``a`` ``reps`` times along each dimension, as ``numpy.tile``."""
    reps = as_list(reps)
    rank = max(a.ndim, len(reps))
    counts = [1] * (rank - len(reps)) + list(reps)
    dims = [1] * (rank - a.ndim) + list(a.shape)
    shape = [simplify(d * ops.as_expr(c)) for d, c in zip(dims, counts, strict=True)]
    if any(isinstance(d, IntImm) and int(d) == 0 for d in shape):
        return te.compute(shape, lambda *i: ops.const(0, a.dtype), name="T_tile", tag=tag.BROADCAST)

    def body(*i: PrimExpr) -> PrimExpr:
        skip = rank - a.ndim
        return a(*(v if ops.is_const_int(c, 1) else tir.indexmod(v, d)
                   for v, d, c in zip(i[skip:], a.shape, counts[skip:], strict=True)))  # fmt: skip

    return te.compute(shape, body, name="T_tile", tag=tag.BROADCAST)


def layout_transform(array: te.Tensor, src_layout: str, dst_layout: str) -> te.Tensor:
    """Convert ``array`` from one layout to another, such as NCHW to NCHW16c; padding elements become 0."""
    if src_layout == dst_layout:
        return array
    mapping = layout_conversion(src_layout, dst_layout)
    shape = get_const_tuple(mapping.forward_shape(array.shape))
    exact = ops.is_const_int(simplify(ops.as_expr(prod(shape)) - prod(get_const_tuple(array.shape))), 0)

    def body(*i: PrimExpr) -> PrimExpr:
        source = [simplify(index) for index in mapping.backward_index(i)]
        if exact:
            return array(*source)
        inside = tir.all(*(index < extent for index, extent in zip(source, array.shape, strict=True)))
        return tir.if_then_else(inside, array(*source), ops.const(0, array.dtype))

    return te.compute(
        shape,
        body,
        name="T_layout_trans",
        tag=tag.INJECTIVE,
        attrs={"schedule_rule": "layout_transform", "src_layout": src_layout, "dst_layout": dst_layout},
    )


def shape(array: te.Tensor, dtype: str = "int32") -> te.Tensor:
    """The shape of ``array`` as a tensor of rank 1."""

    def body(i: PrimExpr) -> PrimExpr:
        result = ops.const(0, dtype)
        for k, dim in enumerate(array.shape):
            result = tir.Select(i.equal(k), ops.cast(dtype, dim), result)
        return result

    return te.compute((array.ndim,), body, name="T_shape", tag=tag.INJECTIVE)


def ndarray_size(array: te.Tensor, dtype: str = "int32") -> te.Tensor:
    """The number of elements of ``array`` as a tensor of rank 0."""
    return te.compute((), lambda: ops.cast(dtype, prod(array.shape)), name="ndarray_size", tag=tag.INJECTIVE)


def where(condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """Return ``x`` where ``condition`` is not 0, else ``y``, with numpy's broadcasting."""
    out_shape = broadcast_shape(broadcast_shape(condition.shape, x.shape), y.shape)

    def body(*i: PrimExpr) -> PrimExpr:
        c, a, b = (t(*broadcast_indices(t.shape, out_shape, i)) for t in (condition, x, y))
        return tir.Select(_is_true(c), a, b)

    return te.compute(out_shape, body, name="T_where", tag=tag.BROADCAST)


def _is_true(value: PrimExpr) -> PrimExpr:
    return value if value.dtype == "bool" else ops.not_equal(value, ops.const(0, value.dtype))


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "float32") -> te.Tensor:
    """Return ``start, start + step, ...`` below ``stop``; with one bound, from 0."""
    if stop is None:
        start, stop = 0, start
    if any(isinstance(v, PrimExpr) and not isinstance(v, tir.IntImm | tir.FloatImm) for v in (start, stop, step)):
        span = ops.cast("float32", ops.as_expr(stop) - start) / ops.cast("float32", ops.as_expr(step))
        count: Any = ops.cast("int32", tir.ceil(span))
    else:
        start, stop, step = (float(v) if isinstance(v, tir.FloatImm | float) else int(v) for v in (start, stop, step))
        count = max(0, -int((start - stop) // step))
    return te.compute(
        (count,),
        lambda i: ops.cast(
            dtype, ops.cast(dtype, i) * ops.cast(dtype, ops.as_expr(step)) + ops.cast(dtype, ops.as_expr(start))
        ),
        name="T_arange",
        tag=tag.INJECTIVE,
    )


def meshgrid(a_tuple: Sequence[te.Tensor], indexing: str = "ij") -> list[te.Tensor]:
    """Coordinate tensors from vectors (or scalars); ``indexing`` "xy" exchanges the first two dimensions."""
    order = list(range(len(a_tuple)))
    if indexing == "xy" and len(order) >= 2:
        order[:2] = [1, 0]
    shape = [a_tuple[k].shape[0] if a_tuple[k].ndim else ops.as_expr(1) for k in order]

    def grid(k: int) -> te.Tensor:
        source = a_tuple[k]
        at = order.index(k)
        return te.compute(
            shape, lambda *i: source(i[at]) if source.ndim else source(), name="T_meshgrid", tag=tag.INJECTIVE
        )

    return [grid(k) for k in range(len(a_tuple))]


def one_hot(indices: te.Tensor, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str) -> te.Tensor:
    """Return ``on_value`` where the position along the new dimension ``axis`` is the index, else ``off_value``."""
    axis = indices.ndim if axis == -1 else axis
    on, off = (ops.cast(dtype, ops.as_expr(v)) for v in (on_value, off_value))

    def body(*i: PrimExpr) -> PrimExpr:
        index = indices(*i[:axis], *i[axis + 1 :])
        return tir.Select(ops.equal(index, ops.cast(index.dtype, i[axis])), on, off)

    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
    return te.compute(shape, body, name="T_one_hot", tag=tag.INJECTIVE)


def expand_like(a: te.Tensor, shape_like: te.Tensor, axis: Any) -> te.Tensor:
    """Repeat ``a`` along new dimensions ``axis`` to the shape of ``shape_like``.

    A tensor of rank 1 and extent 1 fills the whole shape.
    """
    rank = shape_like.ndim
    added = sorted(normalize_axis(int(k), rank) for k in as_list(axis))
    whole = a.ndim == 1 and rank == len(added)
    if a.ndim + len(added) != rank and not whole:
        raise InvalidShapeError(f"expand_like: {len(added)} new dimensions do not make rank {rank} of rank {a.ndim}")

    def body(*i: PrimExpr) -> PrimExpr:
        return a(0) if whole else a(*(v for k, v in enumerate(i) if k not in added))

    return te.compute(shape_like.shape, body, name="T_expand_like", tag=tag.BROADCAST)


def matrix_set_diag(data: te.Tensor, diagonal: te.Tensor, k: Any = 0, align: str = "RIGHT_LEFT") -> te.Tensor:
    """Replace the diagonals ``k`` (one, or first to last) of the matrices, as TensorFlow's MatrixSetDiagV3.

    ``diagonal`` has the diagonals, longest extent last; ``align`` says at which end the superdiagonals and the
    subdiagonals are padded.
    """
    lower, upper = (int(k[0]), int(k[-1])) if isinstance(k, (list, tuple)) else (int(k), int(k))
    super_right, sub_right = (side == "RIGHT" for side in align.upper().split("_"))
    rows, columns = data.shape[-2], data.shape[-1]
    longest = diagonal.shape[-1]

    def body(*i: PrimExpr) -> PrimExpr:
        row, column = i[-2], i[-1]
        d = column - row
        position = ops.minimum(row, column)
        if lower != upper:
            length = ops.minimum(columns - ops.maximum(d, 0), rows + ops.minimum(d, 0))
            right = tir.Select(d >= 0, ops.const(super_right, "bool"), ops.const(sub_right, "bool"))
            position = position + tir.Select(right, longest - length, ops.const(0, length.dtype))
            value = diagonal(*i[:-2], upper - d, position)
        else:
            value = diagonal(*i[:-2], position)
        return tir.if_then_else(tir.all(d >= lower, d <= upper), value, data(*i))

    return te.compute(data.shape, body, name="T_matrix_set_diag", tag=tag.INJECTIVE)


__all__ = [
    "arange", "concatenate", "dynamic_strided_slice", "expand_dims", "expand_like", "flip", "layout_transform",
    "matrix_set_diag", "meshgrid", "ndarray_size", "normalize_axis", "one_hot", "repeat", "reshape",
    "reverse_sequence", "shape", "slice_like", "split", "squeeze", "stack", "strided_set", "strided_slice", "tile",
    "transpose", "where",
]  # fmt: skip
