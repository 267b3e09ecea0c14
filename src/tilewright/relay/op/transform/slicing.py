"""Slices: strided_slice, strided_set, slice_like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call, const
from tilewright.relay.op import layout_rules, relations
from tilewright.relay.op.attributes import SomeAxes, call, computed, ints, static_ints
from tilewright.relay.op.builder import builder, exported, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, number, require_shape, tensor_type
from tilewright.relay.op.layout_rules import InferCorrectLayoutOutput
from tilewright.relay.op.relations import known
from tilewright.tir.layout import Layout, convertible


class StridedSliceAttrs(Attrs):
    """begin:end:strides of each dimension, or of ``axes``; mode "size" takes end as sizes (-1: all)."""

    begin: tuple[int, ...]
    end: tuple[int, ...]
    strides: tuple[int, ...] = (1,)
    slice_mode: str = "end"
    axes: tuple[int, ...] | None = None


def slices_of(shape: Sequence[int | None], attrs: StridedSliceAttrs) -> list[slice]:
    """Return one Python slice for each dimension; where the extent is unknown, bounds stay as written."""
    axes = range(len(attrs.begin)) if attrs.axes is None else [a % len(shape) for a in attrs.axes]
    result = [slice(None)] * len(shape)
    for i, axis in enumerate(axes):
        begin = attrs.begin[i]
        end = attrs.end[i] if i < len(attrs.end) else None
        if attrs.slice_mode == "size":
            extent = shape[axis]
            start = begin + (extent or 0) if begin < 0 else begin
            result[axis] = slice(start, None if end is None or end < 0 else start + end)
            continue
        step = attrs.strides[min(i, len(attrs.strides) - 1)] if attrs.strides else 1
        result[axis] = slice(begin, end, step)
    return result


def _simplest(part: slice, extent: int | None) -> slice:
    """Return ``:`` for a slice of the whole dimension."""
    return slice(None) if extent is not None and part.indices(extent) == (0, extent, 1) else part


def _of_blocks(part: slice, extent: int | None, size: int) -> slice | None:
    """Return the slice in units of the blocks that a dimension is split into; None where it cuts a block or has
    steps.
    """
    if part == slice(None):
        return part
    begin, end, step = part.indices(extent or 0)
    whole = step == 1 and begin < end and begin % size == end % size == 0
    return slice(begin // size, end // size, 1) if whole else None


def _length(part: slice, dim: Any) -> Any:
    extent = known(dim)
    if part == slice(None):
        return dim
    if extent is None:
        return AnyDim()
    return len(range(*part.indices(extent)))


def _slice_layouts(
    attrs: StridedSliceAttrs,
    new_in_layouts: Sequence[Layout],
    old_in_layouts: Sequence[Layout],
    old_in_types: Sequence[Type],
) -> InferCorrectLayoutOutput:
    """Allow whole dimensions to move; a split one must be sliced between its blocks."""
    old, data = old_in_layouts[0], old_in_types[0]
    chosen = old
    new = new_in_layouts[0] if new_in_layouts else old
    if old and new and new is not old and convertible(old, new) and old.is_primal and isinstance(data, TensorType):
        extents = [known(d) for d in data.shape]
        found = [_simplest(p, e) for p, e in zip(slices_of(extents, attrs), extents, strict=True)]
        parts: dict[str, slice | None] = {
            letter: _of_blocks(part, extent, new.factor_of(letter)) if new.factor_of(letter) > 0 else part
            for (letter, _), part, extent in zip(old.axes, found, extents, strict=True)
        }
        if None not in parts.values() and attrs.slice_mode == "end":
            places = [(i, parts[letter]) for i, (letter, factor) in enumerate(new.axes) if not factor]
            cut = [(i, p) for i, p in places if p is not None and p != slice(None)]
            chosen = new
            attrs = attrs.replace(
                begin=tuple(p.start for _, p in cut),
                end=tuple(p.stop for _, p in cut),
                strides=tuple(p.step for _, p in cut) or (1,),
                axes=tuple(i for i, _ in cut),
            )
    return InferCorrectLayoutOutput([chosen], [chosen], attrs)


class StridedSlice(OpDef[StridedSliceAttrs]):
    """begin:end:strides, as numpy slices."""

    name = "strided_slice"
    support_level = 4
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE
    moves = True

    infer_correct_layout = staticmethod(_slice_layouts)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: StridedSliceAttrs, solver: TypeSolver) -> Type | None:
        """The number of elements of each slice."""
        data = relations.tensor(types[0])
        rank = len(data.shape)
        count = len(attrs.begin)
        relations.require(count <= rank, f"begin has {count} values for {rank} dimensions")
        if attrs.axes is not None:
            relations.normalize_axes(attrs.axes, rank)
            relations.require(len(attrs.axes) == count, f"{len(attrs.axes)} axes for {count} values of begin")
        relations.require(0 not in attrs.strides, "a stride is 0")
        parts = slices_of([known(d) for d in data.shape], attrs)
        return TensorType([_length(p, d) for p, d in zip(parts, data.shape, strict=True)], data.dtype)

    @staticmethod
    def compute(attrs: StridedSliceAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        args = list(attrs.begin), list(attrs.end), list(attrs.strides), attrs.axes, attrs.slice_mode
        return [topi.strided_slice(inputs[0], *args)]

    @staticmethod
    def evaluate(attrs: StridedSliceAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.ascontiguousarray(inputs[0][tuple(slices_of(inputs[0].shape, attrs))])]

    @staticmethod
    def gradient(attrs: StridedSliceAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """The gradient where the slice was, zeros around it."""
        x = orig.args[0]
        shape = require_shape(x, "strided_slice")
        parts = [p.indices(extent) for p, extent in zip(slices_of(shape, attrs), shape, strict=True)]
        if 0 in require_shape(orig, "strided_slice"):
            return [None]
        if all(step == 1 for _, _, step in parts):
            widths = [(begin, extent - end) for (begin, end, _), extent in zip(parts, shape, strict=True)]
            return [ops.nn.pad(grad, widths, number(0, x))]
        # from the lowest element on, so that no end lies before the first
        for axis, (_, _, step) in enumerate(parts):
            grad = ops.reverse(grad, axis) if step < 0 else grad
        taken = [range(*p) if p[2] > 0 else range(*p)[::-1] for p in parts]
        begin, end, steps = ([getattr(r, key) for r in taken] for key in ("start", "stop", "step"))
        return [strided_set(ops.zeros(shape, tensor_type(x).dtype), grad, begin, end, steps)]


class StridedSet(OpDef[None]):
    """data with the slice begin:end:strides replaced by v; the bounds are rank-1 tensors."""

    name = "strided_set"
    inputs = ("data", "v", "begin", "end", "strides")
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        found = relations.tensors(types, StridedSet.inputs)
        relations.require_same_dtype(found[:2], "data and v")
        return found[0]

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.strided_set(*inputs)]

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        data, value, begin, end, strides = inputs
        result = data.copy()
        steps = [int(s) for s in strides] or [1] * len(begin)
        parts = [slice(int(b), int(e), s) for b, e, s in zip(begin, end, steps, strict=True)]
        result[tuple(parts)] = value
        return [result]

    @staticmethod
    def gradient(attrs: None, orig: Call, grad: RelayExpr) -> Gradients:
        """The replaced slice of the data has gradient 0; the value has the gradient of that slice."""
        _, value, begin, end, steps = orig.args
        shape = require_shape(value, "strided_set")
        inside = strided_slice(grad, begin, end, steps)
        return [
            strided_set(grad, ops.zeros(shape, tensor_type(value).dtype), begin, end, steps),
            inside,
            None,
            None,
            None,
        ]


class SliceLikeAttrs(Attrs):
    """The dimensions to cut; empty: all."""

    axes: SomeAxes = None


def _cut_axes(attrs: SliceLikeAttrs, rank: int, like_rank: int) -> list[int]:
    return list(range(min(rank, like_rank))) if not attrs.axes else [a % rank for a in attrs.axes]


class SliceLike(OpDef[SliceLikeAttrs]):
    """``data`` cut to the extents of ``shape_like`` in ``axes`` (all by default)."""

    name = "slice_like"
    inputs = ("data", "shape_like")
    pattern = OpPattern.INJECTIVE

    infer_correct_layout = staticmethod(layout_rules.cut_like)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: SliceLikeAttrs, solver: TypeSolver) -> Type | None:
        data, like = relations.tensors(types, SliceLike.inputs)
        shape = list(data.shape)
        for axis in _cut_axes(attrs, len(shape), len(like.shape)):
            if axis >= len(like.shape):
                raise TypeInferenceError(f"shape_like has no dimension {axis}")
            have, want = known(shape[axis]), known(like.shape[axis])
            relations.require(
                have is None or want is None or want <= have, f"dimension {axis} is {have}, less than {want}"
            )
            shape[axis] = like.shape[axis]
        return TensorType(shape, data.dtype)

    @staticmethod
    def compute(attrs: SliceLikeAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.slice_like(inputs[0], inputs[1], _cut_axes(attrs, len(inputs[0].shape), len(inputs[1].shape)))]

    @staticmethod
    def evaluate(attrs: SliceLikeAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, like = inputs
        parts = [slice(None)] * data.ndim
        for axis in _cut_axes(attrs, data.ndim, like.ndim):
            parts[axis] = slice(0, like.shape[axis])
        return [np.ascontiguousarray(data[tuple(parts)])]

    @staticmethod
    def gradient(attrs: SliceLikeAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        x = orig.args[0]
        shape, cut = require_shape(x, "slice_like"), require_shape(orig, "slice_like")
        return [ops.nn.pad(grad, [(0, a - b) for a, b in zip(shape, cut, strict=True)], number(0, x)), None]


slice_like = builder(SliceLike)


def operand_vector(values: Any) -> RelayExpr:
    """Return numbers as a constant vector; an expression is unchanged."""
    return values if isinstance(values, RelayExpr) else const(np.array(ints(values), "int64"))


@exported
def strided_slice(
    data: RelayExpr, begin: Any, end: Any, strides: Any = None, axes: Any = None, slice_mode: str = "end"
) -> Call:
    """Return ``data[begin:end:strides]`` in each dimension, or in ``axes``; mode "size" takes ``end`` as sizes.

    A dimension with an ``end`` but no ``begin`` is sliced from 0.
    """
    if computed(begin, end, strides):
        values = [operand_vector(v) for v in (begin, end, [1] if strides is None else strides)]
        chosen = None if axes is None else ints(axes)
        return call("dyn.strided_slice", [data, *values], StridedSliceAttrs((), (), (), slice_mode, chosen))
    first, last = static_ints(begin, "begin"), static_ints(end, "end")
    steps = static_ints([1] if strides is None else strides, "strides") or (1,)
    if axes is None:
        first += tuple(-1 if steps[min(i, len(steps) - 1)] < 0 else 0 for i in range(len(first), len(last)))
    attrs = StridedSliceAttrs(
        first,
        last,
        steps,
        slice_mode,
        None if axes is None else ints(axes),
    )
    return call("strided_slice", [data], attrs)


@exported
def strided_set(data: RelayExpr, v: RelayExpr, begin: Any, end: Any, strides: Any = None) -> Call:
    """Return ``data`` with ``data[begin:end:strides]`` replaced by ``v``."""
    bounds = [b if isinstance(b, RelayExpr) else const(list(b)) for b in (begin, end)]
    if strides is None:
        rank = len(static_ints(bounds[0], "begin"))
        strides = const([1] * rank)
    steps = strides if isinstance(strides, RelayExpr) else const(list(strides))
    return call("strided_set", [data, v, *bounds, steps])
