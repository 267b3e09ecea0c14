"""Joining and splitting tensors: concatenate, stack, split, meshgrid."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir import prim_ops
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Tuple, TupleGetItem, TupleWrapper
from tilewright.relay.expr import Tuple as TupleExpr
from tilewright.relay.op import layout_rules, relations, slice_rules
from tilewright.relay.op.attributes import call, ints, tuple_operand, whole_int
from tilewright.relay.op.builder import builder, exported, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, tensor_type
from tilewright.relay.op.relations import known, normalize_axis
from tilewright.relay.op.strategy.generic import schedule_concatenate
from tilewright.relay.type_infer.describe import describe_dim, describe_shape
from tilewright.relay.type_infer.dimensions import note_equal
from tilewright.tir.layout import Layout, convertible


class ConcatenateAttrs(Attrs):
    """The dimension along which tensors are joined."""

    axis: int = 0


def _fields(expr: RelayExpr) -> list[Any]:
    """The types of a tuple's fields."""
    type_: Any = expr.checked_type
    return list(type_.fields)


class Concatenate(OpDef[ConcatenateAttrs]):
    """The tensors of ``data`` (a list or tuple) joined along ``axis``."""

    name = "concatenate"
    support_level = 1
    inputs = ("data",)
    takes_tuple = True
    pattern = OpPattern.INJECTIVE
    moves = True

    schedule = schedule_concatenate

    infer_correct_layout = staticmethod(layout_rules.concatenation)
    band_operands = staticmethod(slice_rules.concatenation)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ConcatenateAttrs, solver: TypeSolver) -> Type | None:
        """Check that the other dimensions agree; the joined extents add up."""
        fields = relations.tuple_of_tensors(types[0])
        relations.require(bool(fields), "the tuple is empty")
        relations.require_same_dtype(fields, "the tensors")
        rank = len(fields[0].shape)
        axis = relations.normalize_axis(attrs.axis, rank)
        shape = list(fields[0].shape)
        for item in fields[1:]:
            if len(item.shape) != rank:
                shapes = f"{describe_shape(fields[0].shape)} and {describe_shape(item.shape)}"
                raise TypeInferenceError(f"the tensors differ in rank: {shapes}")
            for i, dim in enumerate(item.shape):
                if i == axis:
                    continue
                note_equal(shape[i], dim)
                if known(shape[i]) is not None and known(dim) is not None and known(shape[i]) != known(dim):
                    raise TypeInferenceError(
                        f"dimension {i} is {describe_dim(shape[i])} in one tensor and {describe_dim(dim)} in another"
                    )
                if isinstance(shape[i], AnyDim):
                    shape[i] = dim
        shape[axis] = relations.dim_add(*[t.shape[axis] for t in fields])
        return TensorType(shape, fields[0].dtype)

    @staticmethod
    def compute(attrs: ConcatenateAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.concatenate(list(inputs), attrs.axis)]

    @staticmethod
    def evaluate(attrs: ConcatenateAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.concatenate(list(inputs), attrs.axis)]

    @staticmethod
    def gradient(attrs: ConcatenateAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        types = _fields(orig.args[0])
        if len(types) == 1:
            return [Tuple([grad])]
        axis = normalize_axis(attrs.axis, len(types[0].shape))
        ends, at = [], 0
        for type_ in types[:-1]:
            at += type_.concrete_shape[axis]
            ends.append(at)
        return [split(grad, ends, axis).astuple()]


concatenate = builder(Concatenate, axis=...)


class StackAttrs(Attrs):
    """Position of the new dimension."""

    axis: int = 0


class Stack(OpDef[StackAttrs]):
    """The tensors of ``data`` joined along a new dimension ``axis``."""

    name = "stack"
    support_level = 3
    inputs = ("data",)
    takes_tuple = True
    pattern = OpPattern.INJECTIVE
    moves = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: StackAttrs, solver: TypeSolver) -> Type | None:
        """The common shape with the number of tensors inserted."""
        fields = relations.tuple_of_tensors(types[0])
        relations.require(bool(fields), "the tuple is empty")
        relations.require_same_dtype(fields, "the tensors")
        shape = list(fields[0].shape)
        for item in fields[1:]:
            relations.require_rank(item, len(shape), "each tensor")
            for i, dim in enumerate(item.shape):
                solver.assert_equal(shape[i], dim, f"dimension {i}")
        axis = relations.normalize_axis(attrs.axis, len(shape) + 1)
        return TensorType([*shape[:axis], len(fields), *shape[axis:]], fields[0].dtype)

    @staticmethod
    def compute(attrs: StackAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.stack(list(inputs), attrs.axis)]

    @staticmethod
    def evaluate(attrs: StackAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.stack(list(inputs), attrs.axis)]

    @staticmethod
    def gradient(attrs: StackAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        count = len(_fields(orig.args[0]))
        axis = normalize_axis(attrs.axis, len(tensor_type(orig).shape))
        parts = split(grad, count, axis).astuple()
        return [Tuple([ops.squeeze(TupleGetItem(parts, i), [axis]) for i in range(count)])]


stack = builder(Stack, axis=...)


class SplitAttrs(Attrs):
    """The number of equal parts, or the indices to split at."""

    indices_or_sections: Any
    axis: int = 0


def _parts(extent: int, indices_or_sections: Any) -> list[int]:
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0 or extent % indices_or_sections:
            raise TypeInferenceError(f"cannot split {extent} into {indices_or_sections} equal parts")
        return [extent // indices_or_sections] * indices_or_sections
    cuts = [0, *[min(max(c + extent if c < 0 else c, 0), extent) for c in indices_or_sections], extent]
    return [max(0, b - a) for a, b in itertools.pairwise(cuts)]


def _unknown_parts(extent: PrimExpr, indices_or_sections: Any) -> list[PrimExpr]:
    """Return the parts of an unknown extent, and note the assumption that they fit in it."""
    if isinstance(indices_or_sections, int):
        part = relations.dim_floordiv(extent, indices_or_sections)
        note_equal(relations.dim_mul(part, indices_or_sections), extent)
        return [part] * indices_or_sections
    places = [as_expr(c) if c >= 0 else relations.dim_add(extent, c) for c in indices_or_sections]
    parts = []
    for begin, end in itertools.pairwise([as_expr(0), *places, extent]):
        part = relations.dim_map(lambda b, e: e - b, begin, end)
        number = known(part := relations.simple_dim(part))
        if number is None and not isinstance(part, AnyDim):
            note_equal(prim_ops.maximum(part, 0), part)
        parts.append(part if number is None else as_expr(max(number, 0)))
    return parts


def _split_layouts(
    attrs: SplitAttrs, new_in_layouts: Sequence[Layout], old_in_layouts: Sequence[Layout], old_in_types: Sequence[Type]
) -> layout_rules.InferCorrectLayoutOutput:
    """Take any layout whose blocks the split does not cut; all parts have it."""
    old, data = old_in_layouts[0], old_in_types[0]
    new = new_in_layouts[0] if new_in_layouts else old
    if old and old.is_primal and new is not old and convertible(old, new) and isinstance(data, TensorType):
        axis = int(attrs.axis) % len(data.shape)
        extent, block = known(data.shape[axis]), max(new.factor_of(old[axis]), 1)
        parts = _parts(extent, attrs.indices_or_sections) if extent is not None else [1]
        if all(part % block == 0 for part in parts):
            sections = attrs.indices_or_sections
            if not isinstance(sections, int):
                sections = tuple(cut // block for cut in itertools.accumulate(parts[:-1]))
            attrs = attrs.replace(indices_or_sections=sections, axis=new.index_of(old[axis]))
            return layout_rules.InferCorrectLayoutOutput([new], [new], attrs)
    return layout_rules.InferCorrectLayoutOutput([old], [old], attrs)


class Split(OpDef[SplitAttrs]):
    """Cut a tensor into a tuple of parts along a dimension."""

    name = "split"
    support_level = 3
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE
    moves = True

    infer_correct_layout = staticmethod(_split_layouts)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: SplitAttrs, solver: TypeSolver) -> Type | None:
        data = relations.tensor(types[0])
        axis = relations.normalize_axis(attrs.axis, len(data.shape))
        extent = known(data.shape[axis])
        sections = attrs.indices_or_sections
        if extent is None:
            dims = _unknown_parts(data.shape[axis], sections)
        else:
            dims = [as_expr(p) for p in _parts(extent, sections)]
        return TupleType([TensorType([*data.shape[:axis], d, *data.shape[axis + 1 :]], data.dtype) for d in dims])

    @staticmethod
    def compute(attrs: SplitAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        sections, axis = attrs.indices_or_sections, attrs.axis % inputs[0].ndim
        extent = known(inputs[0].shape[axis])
        if extent is not None:
            sections = tuple(itertools.accumulate(_parts(extent, sections)[:-1]))
        return list(topi.split(inputs[0], sections if isinstance(sections, int) else list(sections), axis))

    @staticmethod
    def evaluate(attrs: SplitAttrs, inputs: Sequence[Array]) -> list[Array]:
        parts = _parts(inputs[0].shape[attrs.axis], attrs.indices_or_sections)
        return [np.ascontiguousarray(p) for p in np.split(inputs[0], np.cumsum(parts)[:-1], attrs.axis)]

    @staticmethod
    def gradient(attrs: SplitAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        return [concatenate(grad, attrs.axis)]


class MeshgridAttrs(Attrs):
    """Matrix order (ij) or Cartesian order (xy)."""

    indexing: str = "ij"


class Meshgrid(OpDef[MeshgridAttrs]):
    """Coordinate grids of 1-D (or 0-D) tensors."""

    name = "meshgrid"
    inputs = ("data",)
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: MeshgridAttrs, solver: TypeSolver) -> Type | None:
        """One grid for each vector, of the shape that they span."""
        fields = relations.tuple_of_tensors(types[0])
        relations.require_same_dtype(fields, "the tensors")
        for item in fields:
            relations.require(len(item.shape) <= 1, "the tensors should have at most one dimension")
        shape = [item.shape[0] if item.shape else as_expr(1) for item in fields]
        if attrs.indexing == "xy" and len(shape) >= 2:
            shape[0], shape[1] = shape[1], shape[0]
        return TupleType([TensorType(shape, item.dtype) for item in fields])

    @staticmethod
    def compute(attrs: MeshgridAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return list(topi.meshgrid(list(inputs), attrs.indexing))

    @staticmethod
    def evaluate(attrs: MeshgridAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [
            np.ascontiguousarray(g) for g in np.meshgrid(*inputs, indexing="xy" if attrs.indexing == "xy" else "ij")
        ]


@exported
def split(data: RelayExpr, indices_or_sections: Any, axis: int = 0) -> TupleWrapper:
    """Split ``data`` into a number of equal parts, or before each of the indices."""
    if isinstance(indices_or_sections, (list, tuple)):
        sections: Any = ints(indices_or_sections)
        count = len(sections) + 1
    else:
        sections = count = whole_int(indices_or_sections)
    return TupleWrapper(call("split", [data], SplitAttrs(sections, int(axis))), count)


@exported
def meshgrid(data: Any, indexing: str = "ij") -> TupleWrapper:
    """Return the coordinate grids of the tensors of ``data``."""
    fields = tuple_operand(data)
    count = len(fields.fields) if isinstance(fields, TupleExpr) else len(data)
    return TupleWrapper(call("meshgrid", [fields], MeshgridAttrs(indexing)), count)
