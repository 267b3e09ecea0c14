"""Reading elements by index: take, gather, gather_nd, adv_index, one_hot, sequence_mask, unravel_index, ..."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TypeInferenceError, UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import PrimExpr
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call, Tuple, TupleGetItem
from tilewright.relay.op import relations
from tilewright.relay.op.builder import builder, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import Gradients, no_gradient, number, require_shape, reshaped, tensor_type, zeros_of
from tilewright.relay.op.relations import known, normalize_axis
from tilewright.relay.op.strategy.generic import schedule_injective, schedule_reduce
from tilewright.relay.op.transform.checks import checked
from tilewright.relay.type_infer.dimensions import note_equal
from tilewright.runtime.ndarray import numpy_dtype


class TakeAttrs(Attrs):
    """Number of batch dimensions, the indexed dimension, and the mode for indices out of range (clip, wrap, fast)."""

    batch_dims: int = 0
    axis: int | None = None
    mode: str = "clip"


def bounded(indices: Array, extent: int, mode: str) -> Array:
    """Clamp or wrap indices that are out of range."""
    indices = indices.astype(np.int64)
    return indices % extent if mode == "wrap" else np.clip(indices, 0, max(extent - 1, 0))


def _row(indices: RelayExpr, extent: int, mode: str) -> RelayExpr:
    """Indices within the extent, as tuples of one for ``scatter_nd``."""
    if mode == "wrap":
        indices = ops.floor_mod(indices, number(extent, indices))
    elif mode == "clip":
        indices = ops.clip(indices, 0, extent - 1)
    return ops.expand_dims(indices, 0)


class Take(OpDef[TakeAttrs]):
    """Elements of ``data`` at ``indices`` along ``axis`` (None: of the flattened data)."""

    name = "take"
    indirect = True
    support_level = 3
    inputs = ("data", "indices")
    pattern = OpPattern.INJECTIVE
    kind = "gather"
    moves = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: TakeAttrs, solver: TypeSolver) -> Type | None:
        """The dimension is replaced by the indices' shape."""
        data, indices = relations.tensors(types, Take.inputs)
        _require_integers(indices)
        if attrs.axis is None:
            return TensorType(indices.shape, data.dtype)
        axis = relations.normalize_axis(attrs.axis, len(data.shape))
        batch = attrs.batch_dims + (len(indices.shape) if attrs.batch_dims < 0 else 0)
        relations.require(0 <= batch <= axis, f"batch_dims {batch} should be at most axis {axis}")
        shape = (*data.shape[:axis], *indices.shape[batch:], *data.shape[axis + 1 :])
        return TensorType(shape, data.dtype)

    @staticmethod
    def compute(attrs: TakeAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.take(inputs[0], inputs[1], attrs.axis, attrs.batch_dims, attrs.mode)]

    @staticmethod
    def evaluate(attrs: TakeAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, indices = inputs
        if attrs.axis is None and not data.size:
            return [np.zeros(indices.shape, data.dtype)]
        if attrs.axis is None:
            return [data.reshape(-1)[bounded(indices, data.size, attrs.mode)]]
        axis = attrs.axis % data.ndim
        batch = attrs.batch_dims + (indices.ndim if attrs.batch_dims < 0 else 0)
        if not data.shape[axis]:
            return [np.zeros((*data.shape[:axis], *indices.shape[batch:], *data.shape[axis + 1 :]), data.dtype)]
        places = bounded(indices, data.shape[axis], attrs.mode)
        if batch == 0:
            return [np.take(data, places, axis)]
        lead = data.shape[:batch]
        rows = [np.take(data[b], places[b], axis - batch) for b in np.ndindex(*lead)]
        return [np.stack(rows).reshape(*lead, *rows[0].shape)]

    @staticmethod
    def gradient(attrs: TakeAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        data, indices = orig.args
        if attrs.batch_dims:
            raise UnsupportedError("the gradient of take is there for batch_dims=0; gather_nd has one with batch_dims")
        shape = require_shape(data, "take")
        dtype = tensor_type(data).dtype
        if attrs.axis is None:
            total = math.prod(shape)
            flat = ops.scatter_nd(ops.zeros((total,), dtype), _row(indices, total, attrs.mode), grad, "add")
            return [reshaped(flat, data), None]
        axis = normalize_axis(attrs.axis, len(shape))
        count = len(tensor_type(indices).shape)
        rank = len(shape) - 1 + count
        # the indexed dimensions come first in what is scattered
        lead = list(range(axis, axis + count))
        grad = ops.transpose(grad, [*lead, *(i for i in range(rank) if i not in lead)])
        order = [axis, *(i for i in range(len(shape)) if i != axis)]
        moved = ops.zeros([shape[i] for i in order], dtype)
        moved = ops.scatter_nd(moved, _row(indices, shape[axis], attrs.mode), grad, "add")
        return [ops.transpose(moved, [order.index(i) for i in range(len(shape))]), None]


take = builder(Take, order="data indices axis batch_dims mode")


def _require_integers(indices: TensorType) -> None:
    if not indices.dtype.startswith(("int", "uint")):
        raise TypeInferenceError(f"the indices should be integers, found {indices.dtype}")


class GatherAttrs(Attrs):
    """The dimension that is indexed."""

    axis: int


class Gather(OpDef[GatherAttrs]):
    """``data`` with the index along ``axis`` taken from ``indices``."""

    name = "gather"
    indirect = True
    support_level = 3
    inputs = ("data", "indices")
    pattern = OpPattern.INJECTIVE
    kind = "gather"
    moves = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: GatherAttrs, solver: TypeSolver) -> Type | None:
        data, indices = relations.tensors(types, Gather.inputs)
        _require_integers(indices)
        relations.require_rank(indices, len(data.shape), "indices")
        axis = relations.normalize_axis(attrs.axis, len(data.shape))
        for i, (a, b) in enumerate(zip(data.shape, indices.shape, strict=True)):
            if i != axis:
                relations.require_at_least(a, b, f"dimension {i} of the indices is {b}, of the data {a}")
        return TensorType(indices.shape, data.dtype)

    @staticmethod
    def compute(attrs: GatherAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.gather(inputs[0], attrs.axis, inputs[1])]

    @staticmethod
    def check_indices(attrs: GatherAttrs, args: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Indices must lie within ``axis``."""
        data, indices = args
        return [data, checked("gather", indices, data, [attrs.axis])]

    @staticmethod
    def evaluate(attrs: GatherAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, indices = inputs
        axis = attrs.axis % data.ndim
        places: list[Array] = list(np.indices(indices.shape))
        places[axis] = np.where(indices < 0, indices + data.shape[axis], indices).astype(np.int64)
        return [data[tuple(places)]]

    @staticmethod
    def gradient(attrs: GatherAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        data, indices = orig.args
        return [ops.scatter_add(zeros_of(data, "gather"), indices, grad, attrs.axis), None]


gather = builder(Gather, order="data axis indices")


class GatherNDAttrs(Attrs):
    """Number of batch dimensions; the number of indexed dimensions where the shape does not tell."""

    batch_dims: int = 0
    index_rank: int | None = None


class GatherND(OpDef[GatherNDAttrs]):
    """Slices of data at index tuples, which are in the first dimension of the indices."""

    name = "gather_nd"
    indirect = True
    support_level = 3
    inputs = ("data", "indices")
    pattern = OpPattern.INJECTIVE
    kind = "gather"
    moves = True

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: GatherNDAttrs, solver: TypeSolver) -> Type | None:
        """The indices' shape without the first dimension, then the rest of data's."""
        data, indices = relations.tensors(types, GatherND.inputs)
        _require_integers(indices)
        count = known(indices.shape[0]) if attrs.index_rank is None else attrs.index_rank
        if count is None:
            raise TypeInferenceError("the number of index values is not known; give index_rank")
        relations.require(
            count + attrs.batch_dims <= len(data.shape),
            f"{count} index values for data of {len(data.shape)} dimensions",
        )
        batches = [tuple(map(known, s[: attrs.batch_dims])) for s in (data.shape, indices.shape[1:])]
        alike = all(None in (a, b) or a == b for a, b in zip(*batches, strict=False))
        relations.require(
            alike, f"batches of {batches[0]} in the data and of {batches[1]} in the indices; they are alike"
        )
        for a, b in zip(data.shape[: attrs.batch_dims], indices.shape[1:], strict=False):
            note_equal(a, b)
        return TensorType((*indices.shape[1:], *data.shape[count + attrs.batch_dims :]), data.dtype)

    @staticmethod
    def compute(attrs: GatherNDAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.gather_nd(inputs[0], inputs[1], attrs.batch_dims)]

    @staticmethod
    def check_indices(attrs: GatherNDAttrs, args: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Coordinates index the dimensions after the batch dimensions."""
        data, indices = args
        count = attrs.index_rank or known(indices.checked_type.shape[0]) or 0  # type: ignore[attr-defined]
        axes = range(attrs.batch_dims, attrs.batch_dims + count)
        return [data, checked("gather_nd", indices, data, axes) if count else indices]

    @staticmethod
    def evaluate(attrs: GatherNDAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, indices = inputs
        batch = attrs.batch_dims
        grid = np.indices(indices.shape[1 : 1 + batch])
        lead = [g.reshape(g.shape + (1,) * (indices.ndim - 1 - batch)) for g in grid]
        places = [np.where(p < 0, p + data.shape[batch + i], p) for i, p in enumerate(indices.astype(np.int64))]
        return [np.ascontiguousarray(data[(*lead, *places)])]

    @staticmethod
    def gradient(attrs: GatherNDAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        data, indices = orig.args
        if attrs.batch_dims:
            raise UnsupportedError("the gradient of gather_nd is there for batch_dims=0")
        return [ops.scatter_nd(zeros_of(data, "gather_nd"), indices, grad, "add"), None]


gather_nd = builder(GatherND)


class AdvIndex(OpDef[None]):
    """data[i0, i1, ...] with integer tensors that broadcast; the inputs are one tuple."""

    name = "adv_index"
    inputs = ("inputs",)
    takes_tuple = True
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        """The broadcast shape of the indices, then the rest of data's."""
        fields = relations.tuple_of_tensors(types[0])
        data, *indices = fields
        relations.require(
            0 < len(indices) <= len(data.shape), f"{len(indices)} indices for {len(data.shape)} dimensions"
        )
        shape: tuple[PrimExpr, ...] = ()
        for index in indices:
            _require_integers(index)
            shape = relations.broadcast_shapes(shape, index.shape)
        return TensorType((*shape, *data.shape[len(indices) :]), data.dtype)

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.adv_index(inputs[0], list(inputs[1:]))]

    @staticmethod
    def check_indices(attrs: None, args: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Each tensor indexes one dimension of the data."""
        operands = args[0]
        if not isinstance(operands, Tuple):
            types = enumerate(operands.checked_type.fields)  # type: ignore[attr-defined]
            operands = Tuple([TupleGetItem(operands, i).with_checked_type(t) for i, t in types])
        data, *indices = operands.fields
        return [Tuple([data, *(checked("adv_index", index, data, [k]) for k, index in enumerate(indices))])]

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        return [np.ascontiguousarray(inputs[0][tuple(i.astype(np.int64) for i in inputs[1:])])]


adv_index = builder(AdvIndex)


class OneHotAttrs(Attrs):
    """Number of classes, position of their dimension, and dtype of the result."""

    depth: int
    axis: int
    dtype: str


class OneHot(OpDef[OneHotAttrs]):
    """``on_value`` at the classes in ``indices``, ``off_value`` elsewhere; both are scalars."""

    name = "one_hot"
    inputs = ("indices", "on_value", "off_value")
    pattern = OpPattern.OUT_ELEMWISE_FUSABLE

    schedule = schedule_injective

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: OneHotAttrs, solver: TypeSolver) -> Type | None:
        found = relations.tensors(types, OneHot.inputs)
        indices = found[0]
        _require_integers(indices)
        axis = relations.normalize_axis(attrs.axis, len(indices.shape) + 1)
        return TensorType((*indices.shape[:axis], attrs.depth, *indices.shape[axis:]), attrs.dtype)

    @staticmethod
    def compute(attrs: OneHotAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.one_hot(inputs[0], inputs[1](), inputs[2](), attrs.depth, attrs.axis, attrs.dtype)]

    @staticmethod
    def evaluate(attrs: OneHotAttrs, inputs: Sequence[Array]) -> list[Array]:
        hit = inputs[0][..., None] == np.arange(attrs.depth)
        result = np.where(hit, inputs[1].reshape(()), inputs[2].reshape(())).astype(numpy_dtype(attrs.dtype))
        return [np.ascontiguousarray(np.moveaxis(result, -1, attrs.axis))]

    @staticmethod
    def gradient(attrs: OneHotAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        indices, on_value, off_value = orig.args
        dtype = tensor_type(orig).dtype
        hot = one_hot(indices, number(1, orig), number(0, orig), attrs.depth, attrs.axis, dtype)
        off = ops.where(ops.equal(hot, number(0, orig)), grad, number(0, orig))
        return [
            None,
            ops.cast(ops.sum(ops.multiply(grad, hot)), tensor_type(on_value).dtype),
            ops.cast(ops.sum(off), tensor_type(off_value).dtype),
        ]


one_hot = builder(OneHot, required=True, computed="depth")


class SequenceMaskAttrs(Attrs):
    """The value outside the sequences, and which of the first two dimensions is time."""

    mask_value: float = 0.0
    axis: int = 0


class SequenceMask(OpDef[SequenceMaskAttrs]):
    """Replace the elements beyond each sequence's length by a value."""

    name = "sequence_mask"
    inputs = ("data", "valid_length")
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: SequenceMaskAttrs, solver: TypeSolver) -> Type | None:
        data, lengths = relations.tensors(types, SequenceMask.inputs)
        relations.require(
            attrs.axis in (0, 1) and len(data.shape) >= 2, "axis should be 0 or 1, of at least 2 dimensions"
        )
        relations.require_rank(lengths, 1, "valid_length")
        solver.assert_equal(data.shape[1 - attrs.axis], lengths.shape[0], "number of lengths")
        return data

    @staticmethod
    def compute(attrs: SequenceMaskAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.sequence_mask(inputs[0], inputs[1], attrs.mask_value, attrs.axis)]

    @staticmethod
    def evaluate(attrs: SequenceMaskAttrs, inputs: Sequence[Array]) -> list[Array]:
        data, lengths = inputs
        time = np.arange(data.shape[attrs.axis])
        valid = time[:, None] < lengths[None, :] if attrs.axis == 0 else time[None, :] < lengths[:, None]
        valid = valid.reshape(valid.shape + (1,) * (data.ndim - 2))
        return [np.where(valid, data, np.asarray(attrs.mask_value, data.dtype))]

    @staticmethod
    def gradient(attrs: SequenceMaskAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        return [sequence_mask(grad, orig.args[1], 0, attrs.axis), None]


sequence_mask = builder(SequenceMask)


class UnravelIndex(OpDef[None]):
    """Flat ``indices`` into a tensor of ``shape`` (a rank-1 tensor) as index tuples."""

    name = "unravel_index"
    inputs = ("indices", "shape")
    pattern = OpPattern.INJECTIVE
    gradient = staticmethod(no_gradient)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        """(rank, ...)"""
        indices, shape = relations.tensors(types, UnravelIndex.inputs)
        relations.require_rank(shape, 1, "shape")
        return TensorType((shape.shape[0], *indices.shape), indices.dtype)

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.unravel_index(inputs[0], inputs[1])]

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        places = np.unravel_index(inputs[0].astype(np.int64), tuple(int(d) for d in inputs[1]))
        return [np.stack([np.asarray(p) for p in places]).astype(inputs[0].dtype)]


unravel_index = builder(UnravelIndex)


class InvertPermutation(OpDef[None]):
    """The inverse of the permutation ``data``."""

    name = "invert_permutation"
    inputs = ("data",)
    pattern = OpPattern.OPAQUE
    gradient = staticmethod(no_gradient)

    schedule = schedule_reduce  # the kernel searches

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        data = relations.tensor(types[0])
        relations.require_rank(data, 1, "data")
        return data

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.invert_permutation(inputs[0])]

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        result = np.empty_like(inputs[0])
        result[inputs[0]] = np.arange(len(inputs[0]), dtype=inputs[0].dtype)
        return [result]


invert_permutation = builder(InvertPermutation)
