"""Gathers, scatters, sorts and selections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.relay import op as relay_op
from tilewright.relay.expr import const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.dynamic import first
from tilewright.relay.frontend.tensorflow.context import Array, NodeContext
from tilewright.relay.frontend.tensorflow.registry import converter
from tilewright.relay.frontend.tensorflow.shape import vector


@converter("Gather", "GatherV2", "ResourceGather")
def convert_gather(ctx: NodeContext) -> RelayExpr:
    """The slices of a tensor at indices along an axis; for each of the leading dimensions its own."""
    data, indices = ctx.input(0), ctx.input(1)
    axis = ctx.axis(int(ctx.scalar(2, "the axis")) if ctx.node.op == "GatherV2" else 0, ctx.rank(data))
    batch = int(ctx.attr("batch_dims", 0))
    if batch:
        batch = ctx.axis(batch, ctx.rank(indices) + 1)
        return typed(relay_op.take(data, indices, axis=axis, batch_dims=batch))
    return ctx.part("Gather", [data, indices], axis=axis)


@converter("GatherNd")
def convert_gather_nd(ctx: NodeContext) -> RelayExpr:
    """The slices of a tensor at rows of indices."""
    indices = ctx.cast(ctx.input(1), "int64")
    return ctx.part("GatherND", [ctx.input(0), indices], batch_dims=int(ctx.attr("batch_dims", 0)))


def _scattered(ctx: NodeContext, tensors: Sequence[RelayExpr], how: str) -> RelayExpr:
    data, indices, updates = tensors
    return ctx.part("ScatterND", [data, ctx.cast(indices, "int64"), updates], reduction=how)


@converter("ScatterNd")
def convert_scatter_nd(ctx: NodeContext) -> RelayExpr:
    """Zeros with slices added at rows of indices."""
    indices, updates = ctx.input(0), ctx.input(1)
    zeros = ctx.part("Expand", [ctx.like(0, updates), vector(ctx, 2)])
    return _scattered(ctx, [zeros, indices, updates], "add")


@converter("TensorScatterUpdate")
def convert_tensor_scatter_update(ctx: NodeContext) -> RelayExpr:
    """A tensor with the slices at rows of indices replaced."""
    return _scattered(ctx, ctx.inputs(0, 3), "none")


@converter("TensorScatterAdd", "TensorScatterSub")
def convert_tensor_scatter_add(ctx: NodeContext) -> RelayExpr:
    """A tensor with slices added, or subtracted, at rows of indices."""
    data, indices, updates = ctx.inputs(0, 3)
    if ctx.node.op.endswith("Sub"):
        updates = typed(relay_op.negative(updates))
    return _scattered(ctx, [data, indices, updates], "add")


@converter("TensorScatterMax")
def convert_tensor_scatter_max(ctx: NodeContext) -> RelayExpr:
    """A tensor with the greater of its slices and others at rows of indices."""
    return _scattered(ctx, ctx.inputs(0, 3), "max")


@converter("TensorScatterMin")
def convert_tensor_scatter_min(ctx: NodeContext) -> RelayExpr:
    """A tensor with the lesser of its slices and others at rows of indices."""
    return _scattered(ctx, ctx.inputs(0, 3), "min")


@converter("OneHot")
def convert_one_hot(ctx: NodeContext) -> RelayExpr:
    """One value where an index is, another elsewhere, along a new axis; nowhere for an index out of range."""
    indices, on, off = ctx.input(0), ctx.input(2), ctx.input(3)
    depth, rank = int(ctx.scalar(1, "the depth")), ctx.rank(ctx.input(0)) + 1
    axis = ctx.axis(int(ctx.attr("axis", -1)), rank)
    shape = [depth if a == axis else 1 for a in range(rank)]
    places = const(np.arange(depth).reshape(shape).astype(ctx.dtype(indices)))
    hits = typed(relay_op.equal(relay_op.expand_dims(indices, axis=axis), places))
    return ctx.part("Where", [hits, on, off])


@converter("TopKV2", "TopK")
def convert_top_k(ctx: NodeContext) -> list[RelayExpr]:
    """The greatest elements along the last axis, and their places."""
    data = ctx.input(0)
    count = vector(ctx, 1) if ctx.node.op == "TopKV2" else ctx.int64([int(ctx.required("k"))])
    values, places = ctx.part("TopK", [data, count], axis=-1, outputs=2)
    return [values, ctx.cast(places, ctx.attr("index_type", "int32"))]


@converter("InTopKV2")
def convert_in_top_k(ctx: NodeContext) -> RelayExpr:
    """Whether the score of a target is among the greatest of its row."""
    scores, targets, count = ctx.input(0), ctx.input(1), ctx.input(2)
    own = typed(relay_op.take(scores, targets, axis=1, batch_dims=1))
    more = relay_op.cast(relay_op.greater(scores, relay_op.expand_dims(own, axis=1)), ctx.dtype(count))
    return typed(relay_op.less(relay_op.sum(typed(more), axis=[1]), count))


@converter("Where")
def convert_where(ctx: NodeContext) -> RelayExpr:
    """Rows of the places of what is not 0."""
    return ctx.part("Transpose", [ctx.part("NonZero", [ctx.input(0)])], perm=[1, 0])


@converter("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2")
def convert_unique(ctx: NodeContext) -> list[RelayExpr]:
    """The distinct elements in the order of their first places, which of these each element is, and how often."""
    data, dtype = ctx.input(0), ctx.attr("out_idx", "int32")
    if ctx.rank(data) != 1:
        ctx.unsupported(f"a tensor of rank {ctx.rank(data)}; vectors are supported")
    counted = "Counts" in ctx.node.op
    if (known := ctx.constant_or_none(data)) is not None:
        return [const(part) for part in _unique(known, dtype)[: 3 if counted else 2]]
    values, _, inverse, count, *counts = relay_op.unique(data, is_sorted=False, return_counts=counted)
    number = typed(relay_op.cast(count, "int64"))
    kept = [first(values, number), inverse, *(first(c, number) for c in counts)]
    return [typed(kept[0]), *(ctx.cast(typed(k), dtype) for k in kept[1:])]


def _unique(data: Array, dtype: str) -> list[Array]:
    """Return the distinct elements of a vector, which of these each element is, and how often each occurs."""
    values, places, inverse, counts = np.unique(data, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(places)
    return [values[order], np.argsort(order)[inverse].astype(dtype), counts[order].astype(dtype)]


@converter("InvertPermutation")
def convert_invert_permutation(ctx: NodeContext) -> RelayExpr:
    """The permutation that undoes another."""
    return typed(relay_op.invert_permutation(ctx.input(0)))


@converter("UnravelIndex")
def convert_unravel_index(ctx: NodeContext) -> RelayExpr:
    """Coordinates of flat indices."""
    return typed(relay_op.unravel_index(ctx.input(0), ctx.input(1)))


# ---- boxes ----


@converter("NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4", "NonMaxSuppressionV5")
def convert_non_max_suppression(ctx: NodeContext) -> list[Any]:
    """The best of overlapping boxes, in the order of their scores."""
    boxes, scores, version = ctx.input(0), ctx.input(1), int(ctx.node.op[-1])
    if version == 5 and ctx.scalar(5, "the deviation of soft suppression") != 0:
        ctx.unsupported("soft suppression")
    options = [ctx.cast(ctx.input(3), "float32")]
    if version > 2:
        options.append(ctx.cast(ctx.input(4), "float32"))
    batch = [typed(relay_op.expand_dims(boxes, axis=0)), typed(relay_op.expand_dims(scores, axis=0, num_newaxis=2))]
    flat = [ctx.part("Reshape", [o, ctx.int64([1])]) for o in options]
    rows = ctx.part("NonMaxSuppression", [*batch, vector(ctx, 2), *flat])
    places = ctx.cast(ctx.part("Gather", [rows, const(np.array(2, "int64"))], axis=1), "int32")
    valid = ctx.cast(ctx.part("Size", [places]), "int32")
    kept = ctx.part("Gather", [scores, places], axis=0) if version == 5 else None
    if ctx.attr("pad_to_max_output_size", False):
        missing = ctx.part("Sub", [vector(ctx, 2), ctx.part("Shape", [places])])
        pads = ctx.part("Concat", [ctx.int64([0]), missing], axis=0)
        places = ctx.part("Pad", [places, pads, const(np.array(0, "int32"))])
        kept = None if kept is None else ctx.part("Pad", [kept, pads, ctx.like(0, kept)])
    if version < 4:
        return [places]
    return [places, valid] if version == 4 else [places, kept, valid]


@converter("CombinedNonMaxSuppression")
def convert_combined_non_max_suppression(ctx: NodeContext) -> list[RelayExpr]:
    """The best of overlapping boxes of all classes of each image: boxes, scores, classes and how many there are."""
    boxes, scores = ctx.input(0), ctx.input(1)
    batch, count, groups, _ = ctx.shape(boxes)
    classes, total = ctx.shape(scores)[2], int(ctx.scalar(3, "the number of boxes"))
    if ctx.attr("pad_per_class", False) and (each := ctx.constant_or_none(ctx.input(2))) is not None:
        total = min(total, int(each.reshape(-1)[0]) * classes)
    if groups not in (1, classes):
        ctx.fail(f"its boxes have the shape {ctx.shape(boxes)}, its scores {ctx.shape(scores)}")
    per_class = groups if groups > 1 else 1
    flat_boxes = relay_op.reshape(relay_op.transpose(boxes, axes=(0, 2, 1, 3)), (batch * per_class, count, 4))
    flat_scores = relay_op.reshape(
        relay_op.transpose(scores, axes=(0, 2, 1)), (batch * per_class, classes // per_class, count)
    )
    options = [ctx.part("Reshape", [ctx.cast(ctx.input(i), d), ctx.int64([1])])
               for i, d in ((2, "int32"), (4, "float32"), (5, "float32"))]  # fmt: skip
    made = relay_op.vision.all_class_non_max_suppression(
        typed(flat_boxes), typed(flat_scores), options[0], options[1], options[2], "tensorflow"
    )
    return _best(ctx, boxes, [typed(m) for m in (made[i] for i in range(3))], per_class, total)


def _best(
    ctx: NodeContext, boxes: RelayExpr, made: list[RelayExpr], per_class: int, total: int
) -> list[RelayExpr]:  # fmt: skip
    """Return the first of all that were kept of each image, zeros where these are fewer."""
    batch, count = ctx.shape(boxes)[:2]
    rows, scores, counts = made  # (b * q, n, 2), (b * q, n), (b * q,)
    width = ctx.shape(scores)[1]
    valid = relay_op.less(const(np.arange(width)[None]), relay_op.expand_dims(relay_op.cast(counts, "int64"), axis=1))
    kept = relay_op.where(valid, scores, const(np.float32(-np.inf)))
    groups = const(np.tile(np.arange(per_class), batch).reshape(-1, 1))
    own = relay_op.cast(relay_op.take(rows, const(0), axis=2), "int64")
    classes = relay_op.add(own, groups) if per_class > 1 else own
    places = relay_op.cast(relay_op.take(rows, const(1), axis=2), "int64")
    flat = [relay_op.reshape(x, (batch, per_class * width)) for x in (kept, classes, places)]
    taken = min(total, per_class * width)
    top, order = relay_op.topk(typed(flat[0]), k=taken, axis=1, dtype="int64")
    chosen = [typed(relay_op.take(typed(x), order, axis=1, batch_dims=1)) for x in flat[1:]]
    good = typed(relay_op.greater(top, const(np.float32(-np.inf))))
    box_rows = relay_op.reshape(boxes, (batch, count * ctx.shape(boxes)[2], 4))
    where = chosen[1]
    if per_class > 1:
        where = relay_op.add(relay_op.multiply(chosen[1], const(per_class, "int64")), chosen[0])
    found = relay_op.take(typed(box_rows), typed(where), axis=1, batch_dims=1)
    if ctx.attr("clip_boxes", True):
        found = relay_op.clip(found, 0.0, 1.0)
    results: list[RelayExpr] = [
        relay_op.where(relay_op.expand_dims(good, axis=2), found, const(np.float32(0))),
        relay_op.where(good, top, const(np.float32(0))),
        relay_op.cast(relay_op.where(good, chosen[0], const(0, "int64")), "float32"),
    ]
    results = [_filled_up(ctx, typed(r), total) for r in results]
    return [*results, relay_op.sum(relay_op.cast(good, "int32"), axis=[1])]


def _filled_up(ctx: NodeContext, data: RelayExpr, total: int) -> RelayExpr:
    missing = total - ctx.shape(data)[1]
    return relay_op.nn.pad(data, [(0, 0), (0, missing), *[(0, 0)] * (ctx.rank(data) - 2)]) if missing else data
